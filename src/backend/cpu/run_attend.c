/*
 * Attention. Single token: a task is a KV head and a page, so that threads share a long context; the task
 * that completes the last page of a head merges its pages, left to right. Many tokens: a task is a KV head
 * and a block of tokens, and merges page by page. Both merge the same pages in the same order.
 */
#include "backend/cpu/executor.h"

#include <math.h>
#include <string.h>

static const struct op *attend_op(const struct executor *executor, const struct group *group)
{
    return &executor->program->ops[group->first_op + group->ops_before];
}

static uint32_t heads_per_kv_head(const struct op *op)
{
    return op->attend.heads / op->attend.kv_heads;
}

/* The first position that the token at `position` attends to. */
static uint32_t first_seen(const struct op *op, uint32_t position)
{
    return op->attend.window && position + 1 > op->attend.window ? position + 1 - op->attend.window : 0;
}

static struct kv_page page_of(
    const struct executor *executor, const struct op *op, uint32_t page, uint32_t head)
{
    struct kv_room room = kv_pool_room(executor, op->attend.key_state, op->attend.value_state, page, head);
    return (struct kv_page){
        room.keys, room.values, room.key_scales, room.value_scales, room.type, room.head_dim};
}

/* The part of page `page` within begin .. end-1, counted within the page. */
static void clip_to_page(uint32_t page, uint32_t begin, uint32_t end, struct attend_query *query)
{
    const uint32_t first = page * PAGE_POSITIONS;
    query->begin = begin > first ? begin - first : 0;
    query->end = end > first ? (end - first < PAGE_POSITIONS ? end - first : PAGE_POSITIONS) : 0;
    if (query->begin > query->end)
        query->begin = query->end;
}

static void scale_query(const struct op *op, const float *q, float *out)
{
    for (uint32_t i = 0; i < op->attend.head_dim; i++)
        out[i] = q[i] * op->attend.scale;
}

/* ---- One token ---- */

static struct attend_result partial(
    const struct executor *executor, const struct op *op, uint32_t head, uint32_t page)
{
    const size_t stride = op->attend.head_dim + 2,
                 pages = (executor->options.context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    float *place = executor->partials + (head * pages + page) * stride;
    return (struct attend_result){place[0], place[1], place + 2};
}

static void set_partial(const struct executor *executor, const struct op *op, uint32_t head, uint32_t page,
    const struct attend_query *query)
{
    float *place = partial(executor, op, head, page).output - 2;
    place[0] = query->maximum;
    place[1] = query->sum;
}

/* Fused rope and append of one KV head. The task that has the token's page executes it before it reads the
 * page. */
static void append_inside(
    struct executor *executor, const struct group *group, uint32_t head, uint32_t thread)
{
    const struct program *program = executor->program;
    const struct op *rope = &program->ops[group->first_op + 1], *append = &program->ops[group->first_op + 2];
    const struct rope *angles = &program->ropes[rope->rope.rope];
    const uint32_t position = executor->rows[0].position, head_dim = append->kv_append.head_dim;
    const size_t place = (size_t)rope->rope.rope * executor->rope_pairs;
    float *key = row_of(executor, append->inputs[0], 0, thread) + (size_t)head * head_dim;
    const float *value = row_of(executor, append->inputs[1], 0, thread) + (size_t)head * head_dim;
    (angles->halves ? executor->kernels->rope_halves : executor->kernels->rope_neighbours)(
        executor->cosines + place, executor->sines + place, angles->dimensions / 2, key);
    struct kv_room room = kv_pool_room(executor, append->kv_append.key_state, append->kv_append.value_state,
        executor->runs[0].pages[position / PAGE_POSITIONS], head);
    executor->kernels->kv_append(&room, position % PAGE_POSITIONS, key, value);
}

/* This thread's copies of the queries of a KV head: rotated if rope is fused, and scaled. */
static void prepare_queries(
    struct executor *executor, const struct group *group, uint32_t kv_head, uint32_t thread)
{
    const struct op *op = attend_op(executor, group);
    const uint32_t each = heads_per_kv_head(op), head_dim = op->attend.head_dim;
    const float *q = row_of(executor, op->inputs[0], 0, thread) + (size_t)kv_head * each * head_dim;
    float *queries = executor->scratch[thread].queries;
    memcpy(queries, q, (size_t)each * head_dim * sizeof *q);
    for (uint32_t i = 0; i < each; i++) {
        float *query = queries + (size_t)i * head_dim;
        if (group->ops_before) {
            const struct op *rope = &executor->program->ops[group->first_op];
            const struct rope *angles = &executor->program->ropes[rope->rope.rope];
            const size_t place = (size_t)rope->rope.rope * executor->rope_pairs;
            (angles->halves ? executor->kernels->rope_halves : executor->kernels->rope_neighbours)(
                executor->cosines + place, executor->sines + place, angles->dimensions / 2, query);
        }
        scale_query(op, query, query);
    }
}

static void merge_pages(struct executor *executor, const struct op *op, uint32_t kv_head, uint32_t first_page,
    uint32_t end_page, uint32_t thread)
{
    const uint32_t each = heads_per_kv_head(op), head_dim = op->attend.head_dim;
    float *out = row_of(executor, op->out, 0, thread);
    for (uint32_t head = kv_head * each; head < (kv_head + 1) * each; head++) {
        struct attend_result result = partial(executor, op, head, first_page);
        for (uint32_t page = first_page + 1; page < end_page; page++)
            executor->kernels->attend_merge(partial(executor, op, head, page), head_dim, &result);
        executor->kernels->attend_finish(result, head_dim, out + (size_t)head * head_dim);
    }
}

static void attend_one_token(
    struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    const struct op *op = attend_op(executor, group);
    struct attend_query *queries = executor->scratch[thread].attend;
    const uint32_t each = heads_per_kv_head(op), head_dim = op->attend.head_dim;
    const uint32_t position = executor->rows[0].position, begin = first_seen(op, position);
    const uint32_t first_page = begin / PAGE_POSITIONS, end_page = position / PAGE_POSITIONS + 1,
                   pages = end_page - first_page;
    const uint32_t kv_head = task / pages, page = first_page + task % pages;

    if (group->ops_before && page + 1 == end_page)
        append_inside(executor, group, kv_head, thread);
    prepare_queries(executor, group, kv_head, thread);
    struct kv_page kv = page_of(executor, op, executor->runs[0].pages[page], kv_head);
    for (uint32_t i = 0; i < each; i++) {
        queries[i].query = executor->scratch[thread].queries + (size_t)i * head_dim;
        queries[i].output = partial(executor, op, kv_head * each + i, page).output;
        clip_to_page(page, begin, position + 1, &queries[i]);
    }
    executor->kernels->attend_page(&kv, queries, each, op->attend.cap, executor->scratch[thread].scores);
    for (uint32_t i = 0; i < each; i++)
        set_partial(executor, op, kv_head * each + i, page, &queries[i]);
    if (atomic_fetch_add(&executor->page_counts[kv_head], 1) + 1 == pages) {
        atomic_store_explicit(&executor->page_counts[kv_head], 0, memory_order_relaxed);
        merge_pages(executor, op, kv_head, first_page, end_page, thread);
    }
}

void attend_reset_pages(struct executor *executor)
{
    const struct program *program = executor->program;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        for (uint32_t head = 0; op->kind == OP_ATTEND && head < op->attend.kv_heads; head++)
            atomic_store_explicit(&executor->page_counts[head], 0, memory_order_relaxed);
    }
}

/* ---- Many tokens ---- */

static uint32_t tokens_per_block(const struct op *op)
{
    uint32_t each = heads_per_kv_head(op);
    return each >= ATTEND_QUERIES ? 1 : ATTEND_QUERIES / each;
}

/* A block of tokens of one run that a task computes. */
struct block {
    const struct run *run;
    uint32_t first, count; /* tokens, counted within the run */
    uint32_t kv_head;
};

static uint32_t count_blocks(const struct executor *executor, const struct op *op)
{
    uint32_t blocks = 0, size = tokens_per_block(op);
    for (uint32_t i = 0; i < executor->live[ROWS_RUNS]; i++)
        blocks += (executor->runs[i].count + size - 1) / size;
    return blocks * op->attend.kv_heads;
}

/* Late tokens see more keys: each thread begins with a late block and ends with an early one. */
static uint32_t blocks_per_thread(const struct executor *executor, uint32_t blocks)
{
    const uint32_t threads = team_threads(executor->team);
    return (blocks + threads - 1) / threads;
}

/* Blocks are numbered from the first token of the first run to the last token of the last run. */
static struct block find_block(const struct executor *executor, const struct op *op, uint32_t number)
{
    const uint32_t size = tokens_per_block(op);
    struct block block = {.kv_head = number % op->attend.kv_heads};
    uint32_t task = number / op->attend.kv_heads;
    for (block.run = executor->runs;; block.run++) {
        uint32_t blocks = (block.run->count + size - 1) / size;
        if (task < blocks)
            break;
        task -= blocks;
    }
    block.first = task * size;
    block.count = block.run->count - block.first < size ? block.run->count - block.first : size;
    return block;
}

static void attend_block(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    const struct op *op = attend_op(executor, group);
    const uint32_t blocks = count_blocks(executor, op), rounds = blocks_per_thread(executor, blocks),
                   late = task % rounds * team_threads(executor->team) + task / rounds;
    if (late >= blocks)
        return;
    const struct block block = find_block(executor, op, blocks - 1 - late);
    struct scratch *scratch = &executor->scratch[thread];
    const uint32_t each = heads_per_kv_head(op), head_dim = op->attend.head_dim, count = block.count * each;
    struct attend_result *running = scratch->results;
    const uint32_t first_position = block.run->first + block.first;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t row = block.run->first_row + block.first + i / each,
                       head = block.kv_head * each + i % each;
        float *out = row_of(executor, op->out, row, thread) + (size_t)head * head_dim;
        running[i] = (struct attend_result){-INFINITY, 0, out};
        scale_query(op, row_of(executor, op->inputs[0], row, thread) + (size_t)head * head_dim,
            scratch->queries + (size_t)i * head_dim);
    }
    const uint32_t last_page = (first_position + block.count - 1) / PAGE_POSITIONS;
    for (uint32_t page = first_seen(op, first_position) / PAGE_POSITIONS; page <= last_page; page++) {
        struct kv_page kv = page_of(executor, op, block.run->pages[page], block.kv_head);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t position = first_position + i / each;
            scratch->attend[i].query = scratch->queries + (size_t)i * head_dim;
            scratch->attend[i].output = scratch->outputs + (size_t)i * head_dim;
            clip_to_page(page, first_seen(op, position), position + 1, &scratch->attend[i]);
        }
        executor->kernels->attend_page(&kv, scratch->attend, count, op->attend.cap, scratch->scores);
        for (uint32_t i = 0; i < count; i++) {
            const struct attend_query *query = &scratch->attend[i];
            executor->kernels->attend_merge(
                (struct attend_result){query->maximum, query->sum, query->output}, head_dim, &running[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        executor->kernels->attend_finish(running[i], head_dim, running[i].output);
}

uint32_t attend_tasks(struct executor *executor, const struct group *group)
{
    const struct op *op = attend_op(executor, group);
    if (executor->plan->capacity[ROWS_TOKENS] == 1) {
        const uint32_t position = executor->rows[0].position;
        return op->attend.kv_heads *
               (position / PAGE_POSITIONS + 1 - first_seen(op, position) / PAGE_POSITIONS);
    }
    return blocks_per_thread(executor, count_blocks(executor, op)) * team_threads(executor->team);
}

void attend_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    if (executor->plan->capacity[ROWS_TOKENS] == 1)
        attend_one_token(executor, group, task, thread);
    else
        attend_block(executor, group, task, thread);
}

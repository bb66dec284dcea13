/*
 * From ops to groups. Consecutive row ops form one group. Consecutive matmuls form one group, which also
 * applies the glu of a feed-forward; the backend limits the number of their different inputs.
 *
 * A row group of a single token would leave all threads but one idle. Row ops whose results are read only by
 * the next matmuls or attention run inside the tasks of that group: every thread computes the norm itself,
 * which is cheaper than a barrier.
 */
#include "backend/common/fusion.h"

#include "program/placement.h"

#include <stdio.h>
#include <string.h>

static bool is_row_op(const struct op *op)
{
    return !op_infos[op->kind].has_own_phase;
}

struct lowering {
    const struct program *program;
    struct plan *plan;
    bool single;
    bool appends_inside; /* ropes and kv_append join attention */
    bool fine_alike;     /* fine matmuls may join others: a batch's kernels treat them alike */
    uint32_t max_inputs; /* of one group of matmuls */
    bool *shared; /* [buffers]: written by an op that does not run inside, so that it cannot be private */
};

/* An op that reads the previous row needs all rows of its input finished, and no other op may change them
 * while it runs. */
static bool must_wait_for_rows(const struct program *program, uint32_t first, uint32_t op)
{
    if (op_infos[program->ops[op].kind].reads_previous_row)
        return true;
    for (uint32_t i = first; i < op; i++) {
        if (op_infos[program->ops[i].kind].reads_previous_row &&
            op_writes_buffer(program, op, program->ops[i].inputs[0]))
            return true;
    }
    return false;
}

static uint32_t end_of_row_chain(const struct lowering *lowering, uint32_t first)
{
    const struct program *program = lowering->program;
    uint32_t end = first + 1;
    while (end < program->op_count && is_row_op(&program->ops[end]) &&
           program->ops[end].rows == program->ops[first].rows &&
           (lowering->single || !must_wait_for_rows(program, first, end)))
        end++;
    return end;
}

/* Adds the input of a matmul to the rounded inputs of the group; false when there are too many. */
static bool find_rounded_input(const struct lowering *lowering, const struct op *op, struct group *group)
{
    if ((lowering->single && op->matmul.rounding != ROUNDING_Q8) ||
        buffer_is_among(op->inputs[1], group->rounded_inputs, group->rounded_count))
        return true;
    if (group->rounded_count == lowering->max_inputs)
        return false;
    group->fine_inputs |= (uint32_t)op->matmul.fine << group->rounded_count;
    group->rounded_inputs[group->rounded_count++] = op->inputs[1];
    return true;
}

/* Whether a matmul can join the group that begins with op `first`: no matmul of the group writes a buffer
 * that another one reads or writes. In a batch all inputs are rounded alike. */
static bool can_join(const struct lowering *lowering, uint32_t first, uint32_t op, struct group *group)
{
    const struct op *ops = lowering->program->ops;
    if (ops[op].kind != OP_MATMUL || ops[op].rows != ops[first].rows)
        return false;
    if (!lowering->single && (ops[op].matmul.rounding != ops[first].matmul.rounding ||
                                 (!lowering->fine_alike && ops[op].matmul.fine != ops[first].matmul.fine)))
        return false;
    for (uint32_t i = first; i < op; i++) {
        if (ops[i].out == ops[op].inputs[1] || ops[i].out == ops[op].out || ops[i].inputs[1] == ops[op].out)
            return false;
        if (!lowering->fine_alike && ops[i].inputs[1] == ops[op].inputs[1] &&
            ops[i].matmul.rounding == ops[op].matmul.rounding && ops[i].matmul.fine != ops[op].matmul.fine)
            return false; /* each input is rounded once */
    }
    return find_rounded_input(lowering, &ops[op], group);
}

/* Collects the matmuls from op `first` on, and the glu after them. */
static void collect_matmuls(const struct lowering *lowering, uint32_t first, struct group *group)
{
    const struct program *program = lowering->program;
    const struct op *ops = program->ops;
    uint32_t end = first + 1;
    (void)find_rounded_input(lowering, &ops[first], group);
    while (end < program->op_count && can_join(lowering, first, end, group))
        end++;
    group->kind = GROUP_MATMUL;
    group->rows = ops[first].rows;
    group->rounding = ops[first].matmul.rounding;
    group->fine = ops[first].matmul.fine;
    for (uint32_t i = first; i < end && lowering->fine_alike; i++)
        group->fine = group->fine || ops[i].matmul.fine;
    group->matmuls = end - first;
    if (end - first == 2 && end < program->op_count && ops[end].kind == OP_GLU &&
        ops[end].inputs[0] == ops[first].out && ops[end].inputs[1] == ops[first + 1].out &&
        ops[first].matmul.fine == ops[first + 1].matmul.fine && !ops[first].matmul.accumulate &&
        !ops[first + 1].matmul.accumulate && !value_is_read(program, ops[first].out, end + 1) &&
        !value_is_read(program, ops[first + 1].out, end + 1)) {
        group->glu = true;
        end++;
    }
    group->op_count = end - group->first_op;
}

/* Whether an op reads a buffer that the ops from `first` to `last` - 1 write. */
static bool reads_results(const struct program *program, uint32_t op, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        if (op_reads_buffer(program, op, program->ops[i].out))
            return true;
    }
    return false;
}

/* The first op of the chain first .. matmul-1 from which on only the matmuls that end at `last` read the
 * results. Each thread computes these ops when it begins, while others may already be writing results. */
static uint32_t start_of_private_ops(
    const struct lowering *lowering, uint32_t first, uint32_t matmul, uint32_t last)
{
    const struct program *program = lowering->program;
    uint32_t start = matmul;
    while (start > first) {
        const buffer_id out = program->ops[start - 1].out;
        if (out == NO_BUFFER || lowering->shared[out] || op_reads_buffer(program, start - 1, out) ||
            value_is_read(program, out, last) || reads_results(program, start - 1, matmul, last))
            break;
        start--;
    }
    return start;
}

/* rope, rope and append right before the attention that uses them. */
static bool can_run_inside_attention(const struct program *program, uint32_t first, uint32_t attend)
{
    const struct op *ops = program->ops;
    return attend >= first + 3 && ops[attend - 3].kind == OP_ROPE && ops[attend - 2].kind == OP_ROPE &&
           ops[attend - 1].kind == OP_KV_APPEND && ops[attend - 3].out == ops[attend].inputs[0] &&
           ops[attend - 2].out == ops[attend - 1].inputs[0] &&
           !value_is_read(program, ops[attend].inputs[0], attend + 1) &&
           !value_is_read(program, ops[attend - 1].inputs[0], attend + 1) &&
           ops[attend].attend.key_state == ops[attend - 1].kv_append.key_state;
}

/* Whether an op works within the heads of a wkv7, so that it can run on the columns of one of them. */
static bool stays_within_heads(const struct program *program, const struct op *op, const struct op *wkv7)
{
    const uint32_t head_dim = wkv7->wkv7.head_dim;
    if (op->rows != wkv7->rows || op->out == NO_BUFFER ||
        program->buffers[op->out].columns != program->buffers[wkv7->out].columns)
        return false;
    switch (op_infos[op->kind].head_scope) {
    case HEAD_SCOPE_COLUMN:
        return true;
    case HEAD_SCOPE_GROUP:
        return head_dim % op->layer_norm.group == 0;
    case HEAD_SCOPE_HEAD:
        return op->rwkv_bonus.head_dim == head_dim;
    case HEAD_SCOPE_NONE:
        break;
    }
    return false;
}

/* Takes the ops around a single token's wkv7 into its group; returns the first of them. */
static uint32_t collect_around_wkv7(
    const struct program *program, uint32_t chain, uint32_t wkv7, struct group *group)
{
    const struct op *ops = program->ops;
    uint32_t start = wkv7;
    while (start > chain && stays_within_heads(program, &ops[start - 1], &ops[wkv7]))
        start--;
    while (wkv7 + 1 + group->ops_after < program->op_count &&
           stays_within_heads(program, &ops[wkv7 + 1 + group->ops_after], &ops[wkv7]))
        group->ops_after++;
    group->op_count += group->ops_after;
    return start;
}

static struct group *add_group(struct lowering *lowering, struct group group)
{
    struct group *added = &lowering->plan->groups[lowering->plan->group_count++];
    *added = group;
    for (uint32_t i = 0; i < group.op_count; i++)
        lowering->plan->group_of_op[group.first_op + i] = lowering->plan->group_count - 1;
    return added;
}

static void add_rows(struct lowering *lowering, uint32_t first, uint32_t end)
{
    if (first == end)
        return;
    add_group(lowering, (struct group){.kind = GROUP_ROWS,
                            .rows = lowering->program->ops[first].rows,
                            .first_op = first,
                            .op_count = end - first});
}

/* In a batch the inputs of matmuls are rounded once per row, by the row group before them or a row group of
 * their own. */
static void round_before(struct lowering *lowering, const struct group *matmul)
{
    struct plan *plan = lowering->plan;
    struct group *last = plan->group_count ? &plan->groups[plan->group_count - 1] : NULL;
    if (!last || last->kind != GROUP_ROWS || last->rows != matmul->rows || last->rounded_count)
        last = add_group(
            lowering, (struct group){.kind = GROUP_ROWS, .rows = matmul->rows, .first_op = matmul->first_op});
    memcpy(last->rounded_inputs, matmul->rounded_inputs, sizeof last->rounded_inputs);
    last->rounded_count = matmul->rounded_count;
    last->rounding = matmul->rounding;
    last->fine = matmul->fine;
}

/*
 * Lowers the ops from `chain` on: chain .. first-1 are row ops, `first` is another op. Returns the next op.
 */
static uint32_t lower_main_op(struct lowering *lowering, uint32_t chain, uint32_t first)
{
    const struct program *program = lowering->program;
    const struct op *op = &program->ops[first];
    struct group group = {.rows = op->rows, .first_op = first, .op_count = 1};
    uint32_t start = first;
    if (op->kind == OP_MATMUL) {
        collect_matmuls(lowering, first, &group);
        if (lowering->single)
            start = start_of_private_ops(lowering, chain, first, first + group.op_count);
        for (uint32_t i = start; i < first; i++)
            lowering->plan->is_private[program->ops[i].out] = true;
    } else if (op->kind == OP_ATTEND) {
        group.kind = GROUP_ATTEND;
        if (lowering->appends_inside && can_run_inside_attention(program, chain, first))
            start = first - 3;
    } else if (op->kind == OP_WKV7) {
        group.kind = GROUP_WKV7;
        if (lowering->single)
            start = collect_around_wkv7(program, chain, first, &group);
    } else {
        group.kind = GROUP_SAMPLE;
    }
    add_rows(lowering, chain, start);
    if (op->kind == OP_MATMUL && !lowering->single)
        round_before(lowering, &group);
    group.ops_before = first - start;
    group.first_op = start;
    group.op_count += group.ops_before;
    add_group(lowering, group);
    return start + group.op_count;
}

static void lower_ops(struct lowering *lowering)
{
    const struct program *program = lowering->program;
    lowering->plan->group_count = 0;
    memset(lowering->plan->is_private, 0, program->buffer_count * sizeof *lowering->plan->is_private);
    for (uint32_t i = 0; i < program->op_count;) {
        if (!is_row_op(&program->ops[i])) {
            i = lower_main_op(lowering, i, i);
            continue;
        }
        uint32_t end = end_of_row_chain(lowering, i);
        bool feeds_next = end < program->op_count && !is_row_op(&program->ops[end]) &&
                          program->ops[end].kind != OP_SAMPLE &&
                          program->ops[end].rows == program->ops[i].rows;
        if (feeds_next) {
            i = lower_main_op(lowering, i, end);
        } else {
            add_rows(lowering, i, end);
            i = end;
        }
    }
}

/* A buffer that is private in one group and written by another must not be private. True: lowering must start
 * again. */
static bool find_shared(struct lowering *lowering)
{
    const struct program *program = lowering->program;
    bool found = false;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct group *group = &lowering->plan->groups[lowering->plan->group_of_op[i]];
        const buffer_id out = program->ops[i].out;
        bool inside = group->kind == GROUP_MATMUL && i < group->first_op + group->ops_before;
        if (out != NO_BUFFER && !inside && lowering->plan->is_private[out] && !lowering->shared[out])
            found = lowering->shared[out] = true;
    }
    return found;
}

/* Private buffers do not share memory: they are few and small. */
static void place_private_buffers(const struct program *program, struct plan *plan)
{
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (!plan->is_private[i])
            continue;
        plan->offsets[i] = plan->private_bytes;
        plan->private_bytes += (program->buffers[i].columns * sizeof(float) + 63) / 64 * 64;
    }
}

enum salvo_status lower_program(const struct program *program, const struct lowering_options *options,
    struct arena *tables, struct plan *out)
{
    enum salvo_status status = SALVO_OK;
    struct lowering lowering = {.program = program,
        .plan = out,
        .single = options->capacity[ROWS_TOKENS] == 1,
        .appends_inside = options->capacity[ROWS_TOKENS] == 1 || options->appends_in_batches,
        .max_inputs = options->max_rounded};
    if (!lowering.single) {
        lowering.max_inputs = options->max_batch_inputs;
        lowering.fine_alike = options->fine_batches;
    }
    memcpy(out->capacity, options->capacity, sizeof out->capacity);
    TRY(ARENA_NEW(tables, &out->groups, (size_t)program->op_count * 2));
    TRY(ARENA_NEW(tables, &out->group_of_op, program->op_count));
    TRY(ARENA_NEW(tables, &out->offsets, program->buffer_count));
    TRY(ARENA_NEW(tables, &out->is_private, program->buffer_count));

    TRY(ARENA_NEW(tables, &lowering.shared, program->buffer_count));

    do {
        lower_ops(&lowering);
    } while (find_shared(&lowering));
    fuse_groups(program, options, out);
    TRY(placement_compute(program, out->capacity, out->group_of_op, true, out->offsets, &out->arena_bytes));
    place_private_buffers(program, out);
cleanup:
    return status;
}

enum salvo_status lower_single_and_batch(const struct program *program, const struct backend_options *options,
    struct lowering_options lowering, struct arena *tables, struct plan *out_single, struct plan *out_batch)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t single[ROW_KIND_COUNT] = {1, 1, 1},
                   batch[ROW_KIND_COUNT] = {options->batch, options->slots, options->outputs};
    memcpy(lowering.capacity, single, sizeof single);
    TRY(lower_program(program, &lowering, tables, out_single));
    memcpy(lowering.capacity, batch, sizeof batch);
    TRY(lower_program(program, &lowering, tables, out_batch));
cleanup:
    return status;
}

struct scratch_places plan_places(const struct plan *plan)
{
    return (struct scratch_places){plan, plan->offsets, plan->arena_bytes};
}

static size_t private_buffers_at(struct scratch_places places)
{
    return (places.bytes + 255) / 256 * 256;
}

size_t scratch_place(struct scratch_places places, buffer_id buffer)
{
    return places.plan->is_private[buffer] ? private_buffers_at(places) + places.plan->offsets[buffer]
                                           : places.offsets[buffer];
}

size_t scratch_bytes(struct scratch_places places)
{
    return private_buffers_at(places) + places.plan->private_bytes;
}

const char *group_kind_name(enum group_kind kind)
{
    static const char *const names[] = {
        [GROUP_ROWS] = "rows",
        [GROUP_MATMUL] = "matmul",
        [GROUP_ATTEND] = "attend",
        [GROUP_PROJECT_ATTEND] = "attend",
        [GROUP_WKV7] = "wkv7",
        [GROUP_SAMPLE] = "sample",
    };
    return names[kind];
}

void lower_describe_ops(
    const struct program *program, const struct plan *plan, uint32_t index, char *text, size_t size)
{
    const struct group *group = &plan->groups[index];
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < group->op_count && used < size; i++) {
        const struct op *op = &program->ops[group->first_op + i];
        const enum operand_kind first = op_infos[op->kind].inputs[0].kind;
        const bool has_weight = first == OPERAND_MATRIX || first == OPERAND_TABLE;
        const buffer_id named = has_weight ? op->inputs[0] : op->out;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s%s%s%s", i ? ", " : "", op_infos[op->kind].name,
                named == NO_BUFFER ? "" : " ", named == NO_BUFFER ? "" : program->buffers[named].name,
                i + 1 == group->ops_before ? " (inside)" : "");
    }
    for (uint32_t i = 0; group->kind == GROUP_ROWS && i < group->rounded_count && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%sround %s to %s", group->op_count || i ? ", " : "",
                program->buffers[group->rounded_inputs[i]].name, rounding_name(group->rounding));
    }
}

void lower_describe(
    const struct program *program, const struct plan *plan, uint32_t index, char *text, size_t size)
{
    const int used = snprintf(text, size, "%4u %-6s ", index, group_kind_name(plan->groups[index].kind));
    if (used > 0 && (size_t)used < size)
        lower_describe_ops(program, plan, index, text + used, size - (size_t)used);
}

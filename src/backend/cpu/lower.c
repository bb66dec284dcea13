/*
 * From ops to phases. Ops that work row by row are chained into one phase; matmuls of the same input run
 * together, with the gate of a feed-forward applied on the way out.
 *
 * For a single token a phase with one row would keep all threads but one waiting. There, row ops whose
 * results nobody else needs run inside the tasks of the phase that follows: every thread computes the norm
 * for itself, which is cheaper than meeting.
 */
#include "backend/cpu/executor.h"

#include "program/placement.h"

#include <stdio.h>
#include <string.h>

static bool is_row_op(const struct op *op)
{
    return op->kind != OP_MATMUL && op->kind != OP_ATTEND && op->kind != OP_SAMPLE;
}

struct lowering {
    const struct program *program;
    struct plan *plan;
    bool single;
    bool *shared; /* [buffers]: written by some op that does not run inside, so that it cannot be private */
};

static bool is_among(buffer_id buffer, const buffer_id *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i] == buffer)
            return true;
    }
    return false;
}

static bool reads(const struct program *program, uint32_t op, buffer_id buffer)
{
    buffer_id buffers[OP_MAX_BUFFERS];
    return is_among(buffer, buffers, op_reads(program, op, buffers));
}

static bool writes(const struct program *program, uint32_t op, buffer_id buffer)
{
    buffer_id buffers[OP_MAX_BUFFERS];
    return is_among(buffer, buffers, op_writes(program, op, buffers));
}

/* Whether nobody from op `end` on reads what `buffer` holds there: it is written anew before, or not touched
 * again. */
static bool is_over(const struct program *program, buffer_id buffer, uint32_t end)
{
    for (uint32_t i = end; i < program->op_count; i++) {
        if (reads(program, i, buffer))
            return false;
        if (writes(program, i, buffer))
            return true;
    }
    return true;
}

static uint32_t end_of_row_chain(const struct program *program, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < program->op_count && is_row_op(&program->ops[end]) &&
           program->ops[end].rows == program->ops[first].rows)
        end++;
    return end;
}

/* Fills in the matmuls from op `first` on, and a glu behind them. */
static void collect_matmuls(const struct program *program, uint32_t first, struct group *group)
{
    const struct op *ops = program->ops;
    uint32_t end = first + 1;
    while (end < program->op_count && ops[end].kind == OP_MATMUL && ops[end].rows == ops[first].rows &&
           ops[end].inputs[1] == ops[first].inputs[1] &&
           ops[end].matmul.rounding == ops[first].matmul.rounding)
        end++;
    group->kind = GROUP_MATMUL;
    group->rows = ops[first].rows;
    group->rounding = ops[first].matmul.rounding;
    group->matmuls = end - first;
    if (end - first == 2 && end < program->op_count && ops[end].kind == OP_GLU &&
        ops[end].inputs[0] == ops[first].out && ops[end].inputs[1] == ops[first + 1].out &&
        !ops[first].matmul.accumulate && !ops[first + 1].matmul.accumulate &&
        is_over(program, ops[first].out, end + 1) && is_over(program, ops[first + 1].out, end + 1)) {
        group->glu = true;
        end++;
    }
    group->op_count = end - group->first_op;
}

/* The first op of the chain first .. matmul-1 from which on all results are used up by the matmuls that end
 * at `last`. */
static uint32_t start_of_private_ops(
    const struct lowering *lowering, uint32_t first, uint32_t matmul, uint32_t last)
{
    const struct program *program = lowering->program;
    uint32_t start = matmul;
    while (start > first) {
        const buffer_id out = program->ops[start - 1].out;
        if (out == NO_BUFFER || lowering->shared[out] || reads(program, start - 1, out) ||
            !is_over(program, out, last))
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
           is_over(program, ops[attend].inputs[0], attend + 1) &&
           is_over(program, ops[attend - 1].inputs[0], attend + 1) &&
           ops[attend].attend.key_state == ops[attend - 1].kv_append.key_state;
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
                            .op_count = end - first,
                            .rounded = NO_BUFFER});
}

/* In a batch the input of matmuls is rounded once per row, by the row phase before them or one of its own. */
static void round_before(struct lowering *lowering, const struct group *matmul)
{
    struct plan *plan = lowering->plan;
    struct group *last = plan->group_count ? &plan->groups[plan->group_count - 1] : NULL;
    if (!last || last->kind != GROUP_ROWS || last->rows != matmul->rows || last->rounded != NO_BUFFER)
        last = add_group(
            lowering, (struct group){.kind = GROUP_ROWS, .rows = matmul->rows, .first_op = matmul->first_op});
    last->rounded = lowering->program->ops[matmul->first_op].inputs[1];
    last->rounding = matmul->rounding;
}

/* Lowers the ops from `chain` on, of which chain .. first-1 are row ops and `first` is none; returns the next
 * op. */
static uint32_t lower_heavy_op(struct lowering *lowering, uint32_t chain, uint32_t first)
{
    const struct program *program = lowering->program;
    const struct op *op = &program->ops[first];
    struct group group = {.rows = op->rows, .first_op = first, .op_count = 1, .rounded = NO_BUFFER};
    uint32_t inner = first;
    if (op->kind == OP_MATMUL) {
        collect_matmuls(program, first, &group);
        if (lowering->single)
            inner = start_of_private_ops(lowering, chain, first, first + group.op_count);
        for (uint32_t i = inner; i < first; i++)
            lowering->plan->is_private[program->ops[i].out] = true;
    } else if (op->kind == OP_ATTEND) {
        group.kind = GROUP_ATTEND;
        if (lowering->single && can_run_inside_attention(program, chain, first))
            inner = first - 3;
    } else {
        group.kind = GROUP_SAMPLE;
    }
    add_rows(lowering, chain, inner);
    if (op->kind == OP_MATMUL && !lowering->single)
        round_before(lowering, &group);
    group.inner = first - inner;
    group.first_op = inner;
    group.op_count += group.inner;
    add_group(lowering, group);
    return inner + group.op_count;
}

static void lower_ops(struct lowering *lowering)
{
    const struct program *program = lowering->program;
    lowering->plan->group_count = 0;
    memset(lowering->plan->is_private, 0, program->buffer_count * sizeof *lowering->plan->is_private);
    for (uint32_t i = 0; i < program->op_count;) {
        if (!is_row_op(&program->ops[i])) {
            i = lower_heavy_op(lowering, i, i);
            continue;
        }
        uint32_t end = end_of_row_chain(program, i);
        bool feeds_next = end < program->op_count && !is_row_op(&program->ops[end]) &&
                          program->ops[end].kind != OP_SAMPLE &&
                          program->ops[end].rows == program->ops[i].rows;
        if (feeds_next) {
            i = lower_heavy_op(lowering, i, end);
        } else {
            add_rows(lowering, i, end);
            i = end;
        }
    }
}

/* A buffer that is private in one place and written elsewhere too must not be private: true when lowering has
 * to start again. */
static bool find_shared(struct lowering *lowering)
{
    const struct program *program = lowering->program;
    bool found = false;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct group *group = &lowering->plan->groups[lowering->plan->group_of_op[i]];
        const buffer_id out = program->ops[i].out;
        bool inside = group->kind == GROUP_MATMUL && i < group->first_op + group->inner;
        if (out != NO_BUFFER && !inside && lowering->plan->is_private[out] && !lowering->shared[out])
            found = lowering->shared[out] = true;
    }
    return found;
}

/* Private buffers get places of their own, one after the other: they are few and small. */
static void place_private_buffers(const struct program *program, struct plan *plan)
{
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (!plan->is_private[i])
            continue;
        plan->offsets[i] = plan->private_bytes;
        plan->private_bytes += (program->buffers[i].columns * sizeof(float) + 63) / 64 * 64;
    }
}

enum salvo_status lower_program(
    struct executor *executor, const uint32_t capacity[ROW_KIND_COUNT], struct plan *out)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    struct lowering lowering = {.program = program, .plan = out, .single = capacity[ROWS_TOKENS] == 1};
    memcpy(out->capacity, capacity, sizeof out->capacity);
    TRY(ARENA_NEW(&executor->tables, &out->groups, (size_t)program->op_count * 2));
    TRY(ARENA_NEW(&executor->tables, &out->group_of_op, program->op_count));
    TRY(ARENA_NEW(&executor->tables, &out->offsets, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &out->is_private, program->buffer_count));

    TRY(ARENA_NEW(&executor->tables, &lowering.shared, program->buffer_count));

    do {
        lower_ops(&lowering);
    } while (find_shared(&lowering));
    TRY(placement_compute(program, capacity, out->group_of_op, true, out->offsets, &out->arena_bytes));
    place_private_buffers(program, out);
cleanup:
    return status;
}

void lower_describe(
    const struct executor *executor, const struct plan *plan, uint32_t index, char *text, size_t size)
{
    static const char *const kinds[] = {"rows", "matmul", "attend", "sample"};
    const struct program *program = executor->program;
    const struct group *group = &plan->groups[index];
    int used = snprintf(text, size, "%4u %-6s", index, kinds[group->kind]);
    for (uint32_t i = 0; i < group->op_count && used > 0 && (size_t)used < size; i++) {
        const struct op *op = &program->ops[group->first_op + i];
        buffer_id named = op->kind == OP_MATMUL || op->kind == OP_EMBED ? op->inputs[0] : op->out;
        used +=
            snprintf(text + used, size - (size_t)used, "%s%s%s%s", i ? ", " : " ", op_infos[op->kind].name,
                named == NO_BUFFER ? "" : " ", named == NO_BUFFER ? "" : program->buffers[named].name);
        if (i + 1 == group->inner && used > 0 && (size_t)used < size)
            used += snprintf(text + used, size - (size_t)used, " (inside)");
    }
    if (group->rounded != NO_BUFFER && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "%sround %s to %s", group->op_count ? ", " : " ",
            program->buffers[group->rounded].name, group->rounding == ROUNDING_Q8 ? "q8" : "f32 panels");
}

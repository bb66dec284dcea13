/*
 * Ops of recurrent models: ops on the columns of a row, the token shift, which reads the previous row, and
 * wkv7, whose tasks are heads of runs.
 *
 * For a single token, the ops around wkv7 that stay within a head run inside its tasks, on the head's
 * columns. For more tokens they are groups of their own, and the values of a head are divided among tasks.
 */
#include "backend/cpu/executor.h"

#include <string.h>

/* Values of a head per task when heads are divided. */
enum { VALUES_PER_TASK = 32 };

/* ---- Columns of a row ---- */

/* A norm over groups of `group` columns. */
static void normalise_groups(const struct executor *executor, const struct op *op, struct column_range range,
    const float *x, float *out)
{
    const float *weight =
        op->inputs[1] == NO_BUFFER ? NULL : executor->weights[op->inputs[1]].vector + range.first;
    for (size_t i = 0; i < range.count; i += op->layer_norm.group) {
        if (op->kind == OP_LAYER_NORM) {
            executor->kernels->layer_norm(x + i, weight + i,
                executor->weights[op->inputs[2]].vector + range.first + i, op->layer_norm.group,
                op->layer_norm.epsilon, out + i);
        } else {
            executor->kernels->l2_norm(
                x + i, weight ? weight + i : NULL, op->l2_norm.group, op->l2_norm.epsilon, out + i);
        }
    }
}

void recurrent_run_op(
    struct executor *executor, const struct op *op, uint32_t row, struct column_range range, uint32_t thread)
{
    const struct cpu_kernels *kernels = executor->kernels;
    const float *inputs[OP_MAX_INPUTS] = {0};
    for (int i = 0; i < OP_MAX_INPUTS; i++) {
        if (op->inputs[i] == NO_BUFFER)
            continue;
        inputs[i] = executor->program->buffers[op->inputs[i]].kind == BUFFER_WEIGHT
                        ? executor->weights[op->inputs[i]].vector
                        : row_of(executor, op->inputs[i], row, thread);
        inputs[i] += range.first;
    }
    float *out = row_of(executor, op->out, row, thread) + range.first;
    switch (op->kind) {
    case OP_LAYER_NORM:
    case OP_L2_NORM:
        normalise_groups(executor, op, range, inputs[0], out);
        break;
    case OP_MUL:
        kernels->mul(inputs[0], inputs[1], range.count, out);
        break;
    case OP_LERP:
        kernels->lerp(inputs[0], inputs[1], inputs[2], range.count, out);
        break;
    case OP_RWKV_KEY:
        kernels->rwkv_key(inputs[0], inputs[1], inputs[2], range.count, out);
        break;
    case OP_RWKV_BONUS:
        for (size_t i = 0; i < range.count; i += op->rwkv_bonus.head_dim)
            kernels->rwkv_bonus(inputs[0] + i, inputs[1] + i, inputs[2] + i, inputs[3] + i, inputs[4] + i,
                op->rwkv_bonus.head_dim, out + i);
        break;
    default:
        break;
    }
}

/* ---- Token shift ---- */

void recurrent_shift_row(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread)
{
    const struct run *run = &executor->runs[executor->rows[row].run];
    const size_t bytes = executor->program->buffers[op->out].columns * sizeof(float);
    const float *before = row > run->first_row ? row_of(executor, op->inputs[0], row - 1, thread)
                                               : recurrent_pool_before(executor, op->token_shift.state, run);
    float *out = row_of(executor, op->out, row, thread);
    if (before)
        memcpy(out, before, bytes);
    else
        memset(out, 0, bytes);
}

void recurrent_store_row(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread)
{
    const struct run *run = &executor->runs[executor->rows[row].run];
    if (row + 1 == run->first_row + run->count) {
        memcpy(recurrent_pool_after(executor, op->token_shift.state, run),
            row_of(executor, op->inputs[0], row, thread),
            executor->program->buffers[op->out].columns * sizeof(float));
    }
}

/* ---- wkv7 ---- */

static const struct op *wkv7_of(const struct executor *executor, const struct group *group)
{
    return &executor->program->ops[group->first_op + group->ops_before];
}

static uint32_t tasks_per_head(const struct op *op, const struct group *group)
{
    bool divided = group->ops_before + group->ops_after == 0 && op->wkv7.head_dim % VALUES_PER_TASK == 0;
    return divided ? op->wkv7.head_dim / VALUES_PER_TASK : 1;
}

uint32_t wkv7_tasks(const struct executor *executor, const struct group *group)
{
    const struct op *op = wkv7_of(executor, group);
    return executor->live[ROWS_RUNS] * op->wkv7.heads * tasks_per_head(op, group);
}

/* Computes values first .. first + count - 1 of a head, over the rows of a run. */
static void run_values(struct executor *executor, const struct op *op, const struct run *run, uint32_t head,
    uint32_t first, uint32_t count)
{
    const size_t head_dim = op->wkv7.head_dim, column = head * head_dim;
    const size_t place = head * head_dim * head_dim + first;
    const float *rows[OP_MAX_INPUTS];
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        rows[i] = row_of(executor, op->inputs[i], run->first_row, 0) + column;
    const float *before = recurrent_pool_before(executor, op->wkv7.state, run);
    float *after = recurrent_pool_after(executor, op->wkv7.state, run) + place;
    for (size_t i = 0; !before && i < head_dim; i++)
        memset(after + i * head_dim, 0, count * sizeof *after);
    executor->kernels->wkv7(&(struct wkv7_head){
        .r = rows[0],
        .w = rows[1],
        .k = rows[2],
        .v = rows[3] + first,
        .kk = rows[4],
        .a = rows[5],
        .out = row_of(executor, op->out, run->first_row, 0) + column + first,
        .before = before ? before + place : after,
        .after = after,
        .tokens = run->count,
        .stride = executor->program->buffers[op->out].columns,
        .head_dim = head_dim,
        .values = count,
    });
}

/* Runs ops first .. first + count - 1 on the columns of one head of a single row. */
static void run_around(struct executor *executor, uint32_t first, uint32_t count, struct column_range range)
{
    for (uint32_t i = 0; i < count; i++)
        recurrent_run_op(executor, &executor->program->ops[first + i], 0, range, 0);
}

void wkv7_work(struct executor *executor, const struct group *group, uint32_t task)
{
    const struct op *op = wkv7_of(executor, group);
    const uint32_t parts = tasks_per_head(op, group), values = op->wkv7.head_dim / parts;
    const uint32_t part = task % parts, head = task / parts % op->wkv7.heads;
    const struct run *run = &executor->runs[task / parts / op->wkv7.heads];
    const struct column_range range = {(size_t)head * op->wkv7.head_dim, op->wkv7.head_dim};
    run_around(executor, group->first_op, group->ops_before, range);
    run_values(executor, op, run, head, part * values, values);
    run_around(executor, group->first_op + group->ops_before + 1, group->ops_after, range);
}

#include "backend/common/debug.h"
#include "backend/common/steps.h"
#include "base/memory.h"
#include "engine/verify.h"

#include <math.h>
#include <string.h>

/* The progress of one side through its groups. */
struct walk {
    struct salvo_engine *engine;
    struct debug_step debug;
    uint32_t group;
    uint32_t end; /* end of the ops of all groups before `group` */
};

/* Both sides; `theirs` is expected. */
struct sides {
    struct walk ours, theirs;
    float **addends; /* [buffers]: their rows before ops added to them; NULL: no op of the segment adds */
};

void verify_list_free(struct verify_list *list)
{
    memory_free(list->records);
    *list = (struct verify_list){0};
}

static enum salvo_status add_record(struct verify_list *list, const struct verify_record *record)
{
    enum salvo_status status = SALVO_OK;
    TRY(GROW(&list->records, list->count, &list->capacity));
    list->records[list->count++] = *record;
cleanup:
    return status;
}

/* Groups without ops round the input of the next group and belong to it. */
static void pass_group(struct walk *walk)
{
    const struct plan *plan = walk->debug.plan;
    const struct group *group;
    do {
        group = &plan->groups[walk->group++];
    } while (group->op_count == 0 && walk->group < plan->group_count);
    walk->end = group->first_op + group->op_count;
}

/* Scratch that both sides store in memory, not only inside a kernel. */
static bool is_comparable(const struct sides *sides, buffer_id buffer)
{
    return sides->ours.engine->program->buffers[buffer].kind == BUFFER_SCRATCH &&
           debug_step_buffer(&sides->ours.debug, buffer) && debug_step_buffer(&sides->theirs.debug, buffer);
}

static uint32_t live_rows(const struct step *step, enum row_kind kind)
{
    uint32_t outputs = 0;
    if (kind == ROWS_TOKENS)
        return step->token_count;
    if (kind == ROWS_RUNS)
        return step->run_count;
    for (uint32_t i = 0; i < step->run_count; i++)
        outputs += run_output_count(&step->runs[i]);
    return outputs;
}

/* Copies all buffers that these ops read from `theirs` to `ours`. */
static void copy_inputs(const struct sides *sides, const struct step *step, uint32_t first, uint32_t end)
{
    const struct program *program = sides->ours.engine->program;
    buffer_id reads[OP_MAX_BUFFERS];
    for (uint32_t op = first; op < end; op++) {
        uint32_t count = op_reads(program, op, reads);
        for (uint32_t i = 0; i < count; i++) {
            if (!is_comparable(sides, reads[i]))
                continue;
            const struct program_buffer *buffer = &program->buffers[reads[i]];
            memcpy(debug_step_buffer(&sides->ours.debug, reads[i]),
                debug_step_buffer(&sides->theirs.debug, reads[i]),
                live_rows(step, buffer->row_kind) * buffer->columns * sizeof(float));
        }
    }
}

static bool is_written(const struct program *program, buffer_id buffer, uint32_t first, uint32_t end)
{
    buffer_id writes[OP_MAX_BUFFERS];
    for (uint32_t op = first; op < end; op++) {
        if (buffer_is_among(buffer, writes, op_writes(program, op, writes)))
            return true;
    }
    return false;
}

/* Keeps the rows to which these ops add; rows that the ops themselves write first are none. */
static enum salvo_status keep_addends(
    const struct sides *sides, const struct step *step, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = sides->ours.engine->program;
    for (uint32_t op = first; op < end; op++) {
        const buffer_id id = program->ops[op].out;
        if (!op_adds(&program->ops[op]) || !is_comparable(sides, id) || is_written(program, id, first, op))
            continue;
        const struct program_buffer *buffer = &program->buffers[id];
        const size_t elements = live_rows(step, buffer->row_kind) * buffer->columns;
        TRY(NEW(&sides->addends[id], elements));
        memcpy(sides->addends[id], debug_step_buffer(&sides->theirs.debug, id), elements * sizeof(float));
    }
cleanup:
    return status;
}

static void drop_addends(const struct sides *sides)
{
    for (uint32_t i = 0; sides->addends && i < sides->ours.engine->program->buffer_count; i++) {
        memory_free(sides->addends[i]);
        sides->addends[i] = NULL;
    }
}

static void point_at(
    struct salvo_verify_output *output, uint32_t row, uint32_t column, float got, float expected)
{
    output->row = row;
    output->column = column;
    output->got = got;
    output->expected = expected;
}

static double larger_magnitude(double largest, float value)
{
    return fabs((double)value) > largest ? fabs((double)value) : largest;
}

/* `addends`: the rows to which `theirs` were added, or NULL. */
static void compare_rows(
    const float *ours, const float *theirs, const float *addends, struct salvo_verify_output *output)
{
    double squares = 0, expected_squares = 0;
    output->error = -1;
    for (uint32_t row = 0; row < output->rows; row++) {
        const float *a = ours + (size_t)row * output->columns, *b = theirs + (size_t)row * output->columns;
        double largest = 0, difference = 0;
        uint32_t column = 0;
        for (uint32_t i = 0; i < output->columns; i++) {
            if (!isfinite(a[i]) || !isfinite(b[i])) {
                if (a[i] != b[i] && output->not_finite++ == 0) /* also NaN on both sides */
                    point_at(output, row, i, a[i], b[i]);
                continue;
            }
            squares += (double)a[i] * (double)a[i];
            expected_squares += (double)b[i] * (double)b[i];
            largest = larger_magnitude(largest, b[i]);
            if (addends)
                largest = larger_magnitude(largest, addends[(size_t)row * output->columns + i]);
            if (fabs((double)a[i] - (double)b[i]) > difference) {
                difference = fabs((double)a[i] - (double)b[i]);
                column = i;
            }
        }
        double error = difference == 0 ? 0 : largest > 0 ? difference / largest : (double)INFINITY;
        if (error > output->error) {
            output->error = error;
            if (output->not_finite == 0)
                point_at(output, row, column, a[column], b[column]);
        }
    }
    output->error = output->error < 0 ? 0 : output->error;
    output->norm = sqrt(squares);
    output->expected_norm = sqrt(expected_squares);
}

/* Ops first .. end-1, which both sides have run. */
struct segment {
    const struct sides *sides;
    const struct step *step;
    uint32_t group, first, end;
    double tolerance; /* sum over its ops */
};

static struct verify_record new_record(
    const struct segment *segment, uint32_t op, buffer_id id, uint32_t rows)
{
    const struct program *program = segment->sides->ours.engine->program;
    struct verify_record record = {
        .output =
            {
                .buffer = program->buffers[id].name,
                .group = segment->group,
                .rows = rows,
                .columns = (uint32_t)program->buffers[id].columns,
                .decode = segment->step->token_count == 1,
                .tolerance = segment->tolerance,
            },
    };
    program_describe_op(program, op, record.operation, sizeof record.operation);
    return record;
}

static enum salvo_status compare_scratch(
    const struct segment *segment, uint32_t op, buffer_id id, struct verify_list *list)
{
    const struct sides *sides = segment->sides;
    uint32_t rows = live_rows(segment->step, sides->ours.engine->program->buffers[id].row_kind);
    struct verify_record record = new_record(segment, op, id, rows);
    compare_rows(debug_step_buffer(&sides->ours.debug, id), debug_step_buffer(&sides->theirs.debug, id),
        sides->addends[id], &record.output);
    return add_record(list, &record);
}

static enum salvo_status compare_state(
    const struct segment *segment, uint32_t op, buffer_id id, struct verify_list *list)
{
    enum salvo_status status = SALVO_OK;
    const struct run *run = &segment->step->runs[0];
    struct verify_record record = new_record(segment, op, id, run->count);
    float *ours = NULL, *theirs = NULL;
    TRY(verify_read_state(segment->sides->ours.engine, run, id, &ours));
    TRY(verify_read_state(segment->sides->theirs.engine, run, id, &theirs));
    compare_rows(ours, theirs, NULL, &record.output);
    TRY(add_record(list, &record));
cleanup:
    memory_free(ours);
    memory_free(theirs);
    return status;
}

/* Compares the outputs of the ops; a record names the last op that wrote the buffer. */
static enum salvo_status compare_outputs(struct segment *segment, struct verify_list *list)
{
    enum salvo_status status = SALVO_OK;
    const struct sides *sides = segment->sides;
    const struct program *program = sides->ours.engine->program;
    buffer_id writes[OP_MAX_BUFFERS], done[64];
    uint32_t done_count = 0;
    for (uint32_t op = segment->first; op < segment->end; op++)
        segment->tolerance += (double)op_tolerance(&program->ops[op]);
    for (uint32_t op = segment->end; op-- > segment->first;) {
        uint32_t count = op_writes(program, op, writes);
        for (uint32_t i = 0; i < count; i++) {
            buffer_id id = writes[i];
            if (buffer_is_among(id, done, done_count) || done_count == sizeof done / sizeof *done)
                continue;
            done[done_count++] = id;
            if (verify_state_is_readable(sides->ours.engine, id) &&
                verify_state_is_readable(sides->theirs.engine, id))
                TRY(compare_state(segment, op, id, list));
            else if (is_comparable(sides, id) && value_is_read(program, id, segment->end))
                TRY(compare_scratch(segment, op, id, list));
        }
    }
cleanup:
    return status;
}

/* Two backends may have different groups: advances both to the next common end. */
static void find_common_end(struct walk *ours, struct walk *theirs)
{
    pass_group(ours);
    pass_group(theirs);
    while (ours->end != theirs->end) {
        struct walk *behind = ours->end < theirs->end ? ours : theirs;
        if (behind->group == behind->debug.plan->group_count)
            return;
        pass_group(behind);
    }
}

static enum salvo_status run_groups(const struct debug_step *debug, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    for (uint32_t group = first; group < end; group++)
        TRY(debug->backend->debug.run(debug->executor, group));
cleanup:
    return status;
}

static enum salvo_status begin(struct walk *walk, struct salvo_engine *engine, const struct step *step)
{
    walk->engine = engine;
    return debug_step_begin(&walk->debug, engine->backend, engine->executor, engine->program, step);
}

enum salvo_status verify_step(
    const struct verify_pair *pair, const struct step *step, struct verify_list *list)
{
    enum salvo_status status = SALVO_OK;
    struct sides sides = {0};
    struct walk *ours = &sides.ours, *theirs = &sides.theirs;
    TRY(begin(ours, pair->ours, step));
    TRY(begin(theirs, pair->theirs, step));
    TRY(NEW(&sides.addends, pair->ours->program->buffer_count));
    while (ours->group < ours->debug.plan->group_count && theirs->group < theirs->debug.plan->group_count) {
        uint32_t first = ours->end, our_group = ours->group, their_group = theirs->group;
        find_common_end(ours, theirs);
        copy_inputs(&sides, step, first, ours->end);
        TRY(keep_addends(&sides, step, first, ours->end));
        TRY(run_groups(&ours->debug, our_group, ours->group));
        TRY(run_groups(&theirs->debug, their_group, theirs->group));
        struct segment segment = {&sides, step, our_group, first, ours->end, 0};
        TRY(compare_outputs(&segment, list));
        drop_addends(&sides);
    }
cleanup:
    drop_addends(&sides);
    memory_free(sides.addends);
    debug_step_end(&ours->debug);
    debug_step_end(&theirs->debug);
    return status;
}

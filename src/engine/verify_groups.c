#include "base/memory.h"
#include "engine/verify.h"

#include <math.h>
#include <string.h>

/* The progress of one side through its groups. */
struct walk {
    struct salvo_engine *engine;
    uint32_t group, group_count;
    uint32_t end; /* ops before it are done after the groups before `group` */
};

void verify_list_free(struct verify_list *list)
{
    memory_free(list->records);
    *list = (struct verify_list){0};
}

static enum salvo_status add_record(struct verify_list *list, const struct verify_record *record)
{
    enum salvo_status status = SALVO_OK;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 256;
        TRY(RESIZE(&list->records, capacity));
        list->capacity = capacity;
    }
    list->records[list->count++] = *record;
cleanup:
    return status;
}

/* Groups without ops round the input of the next group: they belong to it. */
static void pass_group(struct walk *walk)
{
    uint32_t first, count;
    do {
        walk->engine->backend->debug_group(walk->engine->executor, walk->group++, &first, &count);
    } while (count == 0 && walk->group < walk->group_count);
    walk->end = first + count;
}

static float *buffer_of(const struct salvo_engine *engine, buffer_id buffer)
{
    return engine->backend->debug_buffer(engine->executor, buffer);
}

/* Scratch that both sides have in memory, not only inside a kernel. */
static bool is_comparable(const struct verify_pair *pair, buffer_id buffer)
{
    return pair->ours->program->buffers[buffer].kind == BUFFER_SCRATCH && buffer_of(pair->ours, buffer) &&
           buffer_of(pair->theirs, buffer);
}

static uint32_t live_rows(const struct step *step, enum row_kind kind)
{
    uint32_t outputs = 0;
    if (kind == ROWS_TOKENS)
        return step->token_count;
    if (kind == ROWS_RUNS)
        return step->run_count;
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        outputs += run->logits == LOGITS_ALL ? run->count : run->logits == LOGITS_LAST;
    }
    return outputs;
}

/* Copies all buffers that these ops read from `theirs` to `ours`. */
static void copy_inputs(const struct verify_pair *pair, const struct step *step, uint32_t first, uint32_t end)
{
    const struct program *program = pair->ours->program;
    buffer_id reads[OP_MAX_BUFFERS];
    for (uint32_t op = first; op < end; op++) {
        uint32_t count = op_reads(program, op, reads);
        for (uint32_t i = 0; i < count; i++) {
            if (!is_comparable(pair, reads[i]))
                continue;
            const struct program_buffer *buffer = &program->buffers[reads[i]];
            memcpy(buffer_of(pair->ours, reads[i]), buffer_of(pair->theirs, reads[i]),
                live_rows(step, buffer->row_kind) * buffer->columns * sizeof(float));
        }
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

static void compare_rows(const float *ours, const float *theirs, struct salvo_verify_output *output)
{
    double squares = 0, expected_squares = 0;
    output->error = -1;
    for (uint32_t row = 0; row < output->rows; row++) {
        const float *a = ours + (size_t)row * output->columns, *b = theirs + (size_t)row * output->columns;
        double largest = 0, difference = 0;
        uint32_t column = 0;
        for (uint32_t i = 0; i < output->columns; i++) {
            if (!isfinite(a[i]) || !isfinite(b[i])) {
                if (a[i] != b[i] && output->not_finite++ == 0) /* NaN on both sides counts as well */
                    point_at(output, row, i, a[i], b[i]);
                continue;
            }
            squares += (double)a[i] * (double)a[i];
            expected_squares += (double)b[i] * (double)b[i];
            largest = fabs((double)b[i]) > largest ? fabs((double)b[i]) : largest;
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
    const struct verify_pair *pair;
    const struct step *step;
    uint32_t group, first, end;
    double tolerance; /* sum over its ops */
};

static struct verify_record new_record(
    const struct segment *segment, uint32_t op, buffer_id id, uint32_t rows)
{
    const struct program *program = segment->pair->ours->program;
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
    const struct verify_pair *pair = segment->pair;
    uint32_t rows = live_rows(segment->step, pair->ours->program->buffers[id].row_kind);
    struct verify_record record = new_record(segment, op, id, rows);
    compare_rows(buffer_of(pair->ours, id), buffer_of(pair->theirs, id), &record.output);
    return add_record(list, &record);
}

static enum salvo_status compare_state(
    const struct segment *segment, uint32_t op, buffer_id id, struct verify_list *list)
{
    enum salvo_status status = SALVO_OK;
    const struct run *run = &segment->step->runs[0];
    struct verify_record record = new_record(segment, op, id, run->count);
    float *ours = NULL, *theirs = NULL;
    TRY(verify_read_state(segment->pair->ours, run, id, &ours));
    TRY(verify_read_state(segment->pair->theirs, run, id, &theirs));
    compare_rows(ours, theirs, &record.output);
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
    const struct verify_pair *pair = segment->pair;
    const struct program *program = pair->ours->program;
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
            if (verify_state_is_readable(pair->ours, id) && verify_state_is_readable(pair->theirs, id))
                TRY(compare_state(segment, op, id, list));
            else if (is_comparable(pair, id) && value_is_read(program, id, segment->end))
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
        if (behind->group == behind->group_count)
            return;
        pass_group(behind);
    }
}

static enum salvo_status run_groups(struct salvo_engine *engine, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    for (uint32_t group = first; group < end; group++)
        TRY(engine->backend->debug_run(engine->executor, group));
cleanup:
    return status;
}

enum salvo_status verify_step(
    const struct verify_pair *pair, const struct step *step, struct verify_list *list)
{
    enum salvo_status status = SALVO_OK;
    struct walk ours = {.engine = pair->ours}, theirs = {.engine = pair->theirs};
    TRY(ours.engine->backend->debug_begin(ours.engine->executor, step));
    TRY(theirs.engine->backend->debug_begin(theirs.engine->executor, step));
    ours.group_count = ours.engine->backend->group_count(ours.engine->executor, step);
    theirs.group_count = theirs.engine->backend->group_count(theirs.engine->executor, step);
    while (ours.group < ours.group_count && theirs.group < theirs.group_count) {
        uint32_t first = ours.end, our_group = ours.group, their_group = theirs.group;
        find_common_end(&ours, &theirs);
        copy_inputs(pair, step, first, ours.end);
        TRY(run_groups(ours.engine, our_group, ours.group));
        TRY(run_groups(theirs.engine, their_group, theirs.group));
        struct segment segment = {pair, step, our_group, first, ours.end, 0};
        TRY(compare_outputs(&segment, list));
    }
cleanup:
    ours.engine->backend->debug_end(ours.engine->executor);
    theirs.engine->backend->debug_end(theirs.engine->executor);
    return status;
}

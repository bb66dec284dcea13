/* Placement: on random programs, no buffer's value is overwritten while an op still needs it. */
#include "cmocka_test.h"

#include "gguf_model.h"
#include "program/placement.h"
#include "test_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 4, BUFFERS = 12, VOCABULARY = 32 };
static const uint32_t sizes[SIZES] = {8, 16, 40, 72};
static const uint32_t capacities[ROW_KIND_COUNT] = {[ROWS_TOKENS] = 7, [ROWS_RUNS] = 3, [ROWS_OUTPUTS] = 2};

/* A matrix from every size to every size, and an embedding. */
static void make_file(struct gguf_model *model)
{
    *model = (struct gguf_model){0};
    model_tensor(model, TYPE_F32, sizes[0], VOCABULARY, "table");
    for (uint32_t from = 0; from < SIZES; from++) {
        for (uint32_t to = 0; to < SIZES; to++)
            model_tensor(model, TYPE_F32, sizes[from], sizes[to], "m.%u.%u", from, to);
    }
}

/* Ops between buffers of random sizes; each reads something written before. */
static struct program *make_program(const struct gguf *gguf, uint64_t *random)
{
    struct builder builder;
    struct program *program;
    buffer_id buffers[BUFFERS];
    uint32_t size_of[BUFFERS];
    bool written[BUFFERS] = {true};
    assert_int_equal(builder_open(&builder, gguf), SALVO_OK);
    buffer_id table = builder_weight(&builder, VOCABULARY, sizes[0], "table");
    for (uint32_t i = 0; i < BUFFERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%u", i);
        size_of[i] = i ? test_random(random, SIZES) : 0;
        buffers[i] = builder_scratch(&builder, ROWS_TOKENS, sizes[size_of[i]], name);
    }
    build_embed(&builder, buffers[0], table, 1);
    for (uint32_t i = test_random(random, 40); i > 0; i--) {
        uint32_t from = test_random(random, BUFFERS), to = test_random(random, BUFFERS);
        if (!written[from] || from == to)
            continue;
        if (written[to] && size_of[from] == size_of[to] && test_random(random, 2)) {
            build_add(&builder, buffers[to], buffers[from]);
            continue;
        }
        buffer_id weight = builder_weight(
            &builder, sizes[size_of[to]], sizes[size_of[from]], "m.%u.%u", size_of[from], size_of[to]);
        build_matmul(
            &builder, buffers[to], weight, buffers[from], NO_BUFFER, written[to] && test_random(random, 2));
        written[to] = true;
    }
    buffer_id last = builder_scratch(&builder, ROWS_OUTPUTS, sizes[0], "last");
    buffer_id logits = builder_scratch(&builder, ROWS_OUTPUTS, VOCABULARY, "logits");
    build_select_rows(&builder, last, buffers[0]);
    build_matmul(&builder, logits, table, last, NO_BUFFER, false);
    build_sample(&builder, logits);
    assert_int_equal(builder_finish(&builder, &program), SALVO_OK);
    return program;
}

static size_t size_of_buffer(const struct program *program, buffer_id id)
{
    const struct program_buffer *buffer = &program->buffers[id];
    return (size_t)buffer->columns * capacities[buffer->row_kind] * sizeof(float);
}

static bool overlap(const struct program *program, const size_t *offsets, buffer_id a, buffer_id b)
{
    return offsets[a] < offsets[b] + size_of_buffer(program, b) &&
           offsets[b] < offsets[a] + size_of_buffer(program, a);
}

static bool is_scratch(const struct program *program, buffer_id id)
{
    return program->buffers[id].kind == BUFFER_SCRATCH;
}

static bool writes(const struct program *program, uint32_t op, buffer_id buffer)
{
    buffer_id written[OP_MAX_BUFFERS];
    uint32_t count = op_writes(program, op, written);
    for (uint32_t i = 0; i < count; i++) {
        if (written[i] == buffer)
            return true;
    }
    return false;
}

/* An op before `reader` has written `buffer`. No group from the writer's to the reader's may write to its
 * memory. */
static void check_value_survives(const struct program *program, const uint32_t *groups, const size_t *offsets,
    uint32_t reader, buffer_id buffer)
{
    uint32_t writer = reader;
    while (writer > 0 && !writes(program, writer - 1, buffer))
        writer--;
    assert_true(writer > 0);
    const uint32_t first_group = writer ? groups[writer - 1] : 0;
    for (uint32_t op = 0; op < program->op_count; op++) {
        if (groups[op] < first_group || groups[op] > groups[reader])
            continue;
        for (buffer_id other = 0; other < (buffer_id)program->buffer_count; other++) {
            if (other != buffer && is_scratch(program, other) && writes(program, op, other))
                assert_false(overlap(program, offsets, buffer, other));
        }
    }
}

static size_t check_placement(
    const struct program *program, const uint32_t *groups, bool share, size_t *out_sum)
{
    size_t total, sum = 0, *offsets = calloc(program->buffer_count, sizeof *offsets);
    bool used[64] = {false};
    assert_in_range(program->buffer_count, 1, 64);
    assert_int_equal(placement_compute(program, capacities, groups, share, offsets, &total), SALVO_OK);
    for (uint32_t op = 0; op < program->op_count; op++) {
        buffer_id buffers[OP_MAX_BUFFERS];
        uint32_t count = op_writes(program, op, buffers);
        for (uint32_t i = 0; i < count; i++)
            used[buffers[i]] = true;
        count = op_reads(program, op, buffers);
        for (uint32_t i = 0; i < count; i++) {
            if (is_scratch(program, buffers[i]))
                check_value_survives(program, groups, offsets, op, buffers[i]);
        }
    }
    for (buffer_id id = 0; id < (buffer_id)program->buffer_count; id++) {
        if (!used[id] || !is_scratch(program, id)) {
            assert_true(offsets[id] == SIZE_MAX);
            continue;
        }
        assert_int_equal(offsets[id] % PLACEMENT_ALIGNMENT, 0);
        assert_in_range(offsets[id] + size_of_buffer(program, id), 1, total);
        sum += (size_of_buffer(program, id) + 63) / 64 * 64;
        for (buffer_id other = 0; !share && other < id; other++)
            assert_false(used[other] && is_scratch(program, other) && overlap(program, offsets, id, other));
    }
    free(offsets);
    *out_sum = sum;
    return total;
}

static void values_live_as_long_as_they_are_needed(void **state)
{
    (void)state;
    struct gguf_model file;
    make_file(&file);
    const struct gguf *gguf = model_open(&file);
    uint64_t random = 42;
    size_t all = 0, shared = 0;
    for (int i = 0; i < 300; i++) {
        struct program *program = make_program(gguf, &random);
        uint32_t groups[64], group = 0;
        size_t sum;
        assert_in_range(program->op_count, 1, 64);
        for (uint32_t op = 0; op < program->op_count; op++) {
            groups[op] = group;
            group += test_random(&random, 3) > 0;
        }
        size_t total = check_placement(program, groups, false, &sum);
        assert_int_equal(total, sum);
        total = check_placement(program, groups, true, &sum);
        assert_in_range(total, 1, sum);
        all += sum;
        shared += total;
        program_close(program);
    }
    assert_in_range(shared, 1, all * 3 / 4);
    model_close(&file);
}

/* x lives throughout; h, the inner buffers and the buffers of a second layer share memory. */
static void layers_use_the_same_memory(void **state)
{
    (void)state;
    struct gguf_model file;
    struct builder builder;
    struct program *program;
    uint32_t groups[64];
    size_t total[2], offsets[64];
    make_file(&file);
    for (uint32_t layers = 1; layers <= 2; layers++) {
        assert_int_equal(builder_open(&builder, model_open(&file)), SALVO_OK);
        buffer_id table = builder_weight(&builder, VOCABULARY, 8, "table");
        buffer_id up = builder_weight(&builder, 72, 8, "m.0.3"),
                  down = builder_weight(&builder, 8, 72, "m.3.0");
        buffer_id x = builder_scratch(&builder, ROWS_TOKENS, 8, "x");
        buffer_id last = builder_scratch(&builder, ROWS_OUTPUTS, 8, "last");
        buffer_id logits = builder_scratch(&builder, ROWS_OUTPUTS, VOCABULARY, "logits");
        build_embed(&builder, x, table, 1);
        for (uint32_t i = 0; i < layers; i++) {
            buffer_id inner = builder_scratch(&builder, ROWS_TOKENS, 72, i ? "inner.1" : "inner.0");
            build_matmul(&builder, inner, up, x, NO_BUFFER, false);
            build_matmul(&builder, x, down, inner, NO_BUFFER, true);
        }
        build_select_rows(&builder, last, x);
        build_matmul(&builder, logits, table, last, NO_BUFFER, false);
        build_sample(&builder, logits);
        assert_int_equal(builder_finish(&builder, &program), SALVO_OK);
        for (uint32_t op = 0; op < program->op_count; op++)
            groups[op] = op;
        assert_int_equal(
            placement_compute(program, capacities, groups, true, offsets, &total[layers - 1]), SALVO_OK);
        program_close(program);
        model_close(&file);
    }
    assert_int_equal(total[0], total[1]);
}

static void too_much_is_refused(void **state)
{
    (void)state;
    struct gguf_model file;
    struct builder builder;
    struct program *program;
    make_file(&file);
    assert_int_equal(builder_open(&builder, model_open(&file)), SALVO_OK);
    buffer_id table = builder_weight(&builder, VOCABULARY, 8, "table");
    buffer_id x = builder_scratch(&builder, ROWS_TOKENS, 8, "x"),
              last = builder_scratch(&builder, ROWS_OUTPUTS, 8, "last");
    buffer_id logits = builder_scratch(&builder, ROWS_OUTPUTS, VOCABULARY, "logits");
    builder_scratch(&builder, ROWS_RUNS, INT32_MAX, "huge");
    build_embed(&builder, x, table, 1);
    build_select_rows(&builder, last, x);
    build_matmul(&builder, logits, table, last, NO_BUFFER, false);
    build_sample(&builder, logits);
    assert_int_equal(builder_finish(&builder, &program), SALVO_OK);
    size_t offsets[64], total;
    const uint32_t groups[] = {0, 1, 2, 3};
    const uint32_t many[ROW_KIND_COUNT] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    assert_int_equal(placement_compute(program, many, groups, true, offsets, &total), SALVO_ERROR_MEMORY);
    assert_non_null(strstr(salvo_error(), "'huge'"));
    program_close(program);
    model_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_live_as_long_as_they_are_needed),
        cmocka_unit_test(layers_use_the_same_memory),
        cmocka_unit_test(too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

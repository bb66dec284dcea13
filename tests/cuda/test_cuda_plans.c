/*
 * Plans of CUDA for devices of all sizes, of large models without their weights: whether all fit, and blocks
 * multiply every row of a matrix once.
 */
#include "cmocka_test.h"
#include "cuda/fake_device.h"
#include "cuda/find_fake_cuda.h"
#include "cuda/hollow_model.h"
#include "engine_fixture.h"

#include "arch/arch.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_weight_tiles.h"
#include "backend/cuda/sample_plan.h"

#include <stdlib.h>
#include <string.h>

static int open_fake(void **state)
{
    if (find_fake(state))
        return -1;
    fake->memory = (size_t)1 << 42;
    return 0;
}

/* ---- Plans alone ---- */

static const struct backend_options usual = {
    .slots = 1, .context = 8192, .batch = 512, .outputs = 32, .kv_type = TYPE_F16};

static void say(const struct model_shape *shape, const char *mix, const char *what)
{
    const struct cuda_device *device = cuda_device_at(0);
    print_message("%s (width %u, feed-forward %u, vocabulary %u) %s, %d bytes, %d multiprocessors: %s\n",
        shape->name, shape->width, shape->feed_forward, shape->vocabulary, mix, device->shared_bytes,
        device->multiprocessors, what);
}

static uint64_t share_bytes(const struct cuda_share *share, uint32_t tile_bytes)
{
    return (uint64_t)share->tile_rows * share->parts_per_pass * share->part_groups * tile_bytes;
}

/* As many bytes are copied for a block as its records multiply. */
static void check_streams(const struct executor *executor, uint32_t block)
{
    const struct cuda_tables *tables = &executor->single.tables;
    const uint32_t *starts = tables->record_starts + (size_t)block * (tables->phase_count + 1);
    uint64_t copied = 0, multiplied = 0;
    for (uint32_t i = 0; i < tables->stream_count; i++) {
        const struct cuda_stream *stream = &tables->streams[i];
        const uint32_t owner = (block + executor->blocks - stream->first_block) % executor->blocks;
        copied += owner < stream->owners ? stream->owner_bytes : 0;
    }
    for (uint32_t i = starts[0]; i < starts[tables->phase_count]; i++) {
        const struct cuda_matmul_record *record = &tables->records[i].matmul;
        if (tables->records[i].kind > CUDA_RECORD_MATMUL)
            continue;
        for (int j = 0; j < (record->flags & MATMUL_GLU ? 2 : 1); j++)
            multiplied += share_bytes(&record->shares[j],
                cuda_matrix_shape((enum tensor_type)record->shares[j].type, 8, 128, 1).tile_bytes);
    }
    assert_int_equal(copied, multiplied);
}

/* Every logit is one block's. */
static void check_logits(const struct executor *executor)
{
    const struct cuda_tables *tables = &executor->single.tables;
    const struct cuda_scratch *scratch = &executor->single.scratch;
    const cuda_address logits = scratch->arena + scratch->offsets[executor->program->logits];
    const uint32_t vocabulary = executor->program->vocabulary;
    uint8_t *seen = test_calloc(vocabulary, 1);
    for (uint32_t i = 0; i < tables->record_count; i++) {
        const struct cuda_matmul_record *record = &tables->records[i].matmul;
        if (tables->records[i].kind > CUDA_RECORD_MATMUL || !(record->flags & MATMUL_PLAIN))
            continue;
        for (uint32_t row = 0; row < record->rows; row++) {
            const uint64_t id = (record->out - logits) / sizeof(float) + row;
            assert_true(id < vocabulary && !seen[id]);
            seen[id] = 1;
        }
    }
    assert_null(memchr(seen, 0, vocabulary));
    test_free(seen);
}

static void check_plan(const struct executor *executor)
{
    const struct cuda_tables *tables = &executor->single.tables;
    struct cuda_machine machine = {0};
    ASSERT_OK(cuda_layout_shared(executor, tables, &machine));
    assert_true(machine.shared_bytes <= (uint32_t)executor->device->shared_bytes);
    assert_true(machine.weight_ring_bytes >= tables->most_chunk_bytes);
    assert_true(machine.weight_ring_at - machine.vectors_at >= CUDA_SAMPLE_SHARED);
    for (uint32_t block = 0; block < executor->blocks; block += executor->blocks / 3 + 1)
        check_streams(executor, block);
    check_logits(executor);
}

static bool has_pieces(const struct executor *executor)
{
    const struct cuda_tables *tables = &executor->single.tables;
    for (uint32_t i = 0; i < tables->record_count; i++) {
        if (tables->records[i].kind == CUDA_RECORD_PIECES)
            return true;
    }
    return false;
}

/* ---- Inputs of matmuls ---- */

/* Whether a record writes its results from this address on. */
static bool writes(const struct cuda_tables *tables, const struct cuda_record *record, cuda_address address)
{
    if (record->kind <= CUDA_RECORD_MATMUL)
        return record->matmul.out == address;
    if (record->kind == CUDA_RECORD_ATTEND)
        return record->attend.out == address;
    if (record->kind == CUDA_RECORD_EMBED)
        return record->embed.out == address;
    if (record->kind == CUDA_RECORD_WKV7_HEAD)
        return record->wkv7.out == address;
    if (record->kind != CUDA_RECORD_ROWS)
        return false;
    const uint8_t *memory = tables->row_tables + (size_t)record->row_table * tables->row_table_bytes;
    struct cuda_row_table table;
    struct cuda_store store;
    memcpy(&table, memory, sizeof table);
    memcpy(&store, memory + table.stores_at, sizeof store);
    return table.store_count && store.to == address;
}

/* Matmuls read results of phases before theirs. */
static void check_addresses(const struct cuda_tables *tables)
{
    cuda_address *checked = test_calloc(tables->phase_count, sizeof *checked);
    for (uint32_t i = 0; i < tables->record_count; i++) {
        const struct cuda_record *record = &tables->records[i];
        const cuda_address from = record->matmul.vector.from;
        if (record->kind > CUDA_RECORD_MATMUL || (from && checked[record->phase] == from))
            continue;
        uint32_t writer = 0;
        while (writer < tables->record_count && (tables->records[writer].phase >= record->phase ||
                                                    !writes(tables, &tables->records[writer], from)))
            writer++;
        assert_true(from && writer < tables->record_count);
        checked[record->phase] = from;
    }
    test_free(checked);
}

/* Matmuls whose input is mixed with the previous token's input read the state of their own token_shift. */
static void check_shifts(const struct executor *executor)
{
    const struct cuda_tables *tables = &executor->single.tables;
    const struct program *program = executor->program;
    const uint64_t none = UINT64_MAX;
    uint64_t *states = test_malloc(tables->phase_count * sizeof *states);
    uint32_t phase = 0;
    for (uint32_t i = 0; i < tables->phase_count; i++)
        states[i] = none;
    for (uint32_t i = 0; i < tables->record_count; i++) {
        const struct cuda_record *record = &tables->records[i];
        if (record->kind <= CUDA_RECORD_MATMUL && record->matmul.vector.lerp)
            states[record->phase] = record->matmul.vector.state;
    }
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind != OP_TOKEN_SHIFT)
            continue;
        const uint64_t expected = executor->state.recurrent_offsets[program->ops[i].token_shift.state];
        while (phase < tables->phase_count && states[phase] == none)
            phase++;
        assert_true(phase < tables->phase_count && states[phase] == expected);
        while (phase < tables->phase_count && (states[phase] == none || states[phase] == expected))
            phase++;
    }
    while (phase < tables->phase_count && states[phase] == none)
        phase++;
    assert_int_equal(tables->phase_count, phase);
    test_free(states);
}

struct size {
    int shared_bytes, multiprocessors;
};

/* A plan for each size of device, checked. */
static void plan_all(
    const struct model_shape *shape, const struct model_mix *mix, const struct size *sizes, size_t count)
{
    struct hollow_model model;
    struct program *program;
    hollow_model_open(shape, mix, &model);
    ASSERT_OK(arch_build_for(model.gguf, usual.context, &program));
    for (size_t i = 0; i < count; i++) {
        struct executor *executor;
        set_fake_device(sizes[i].shared_bytes, sizes[i].multiprocessors);
        if (cuda_executor_plan(program, &usual, &executor) != SALVO_OK) {
            say(shape, mix->name, salvo_error());
            assert_true(false);
        }
        check_plan(executor);
        if (sizes[i].shared_bytes == FAKE_SHARED && executor->fit == CUDA_FIT_ROOMY)
            assert_false(has_pieces(executor));
        cuda_executor_close(executor);
    }
    program_close(program);
    hollow_model_close(&model);
}

static size_t list_sizes(
    const int *shared_bytes, size_t shared_count, const int *blocks, size_t block_count, struct size *out)
{
    size_t count = 0;
    for (size_t i = 0; i < shared_count; i++) {
        for (size_t j = 0; j < block_count; j++)
            out[count++] = (struct size){shared_bytes[i], blocks[j]};
    }
    return count;
}

static void devices_that_people_own(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-1b", "llama-8b", "rwkv7-2.9b"};
    static const int shared_bytes[] = {LITTLE_SHARED, MIDDLE_SHARED, FAKE_SHARED},
                     blocks[] = {20, 24, 46, 82, 128, 170};
    struct size sizes[18];
    const size_t count = list_sizes(shared_bytes, 3, blocks, 6, sizes);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (const struct model_mix *mix = model_mixes; mix->name; mix++)
            plan_all(find_shape(shapes[i]), mix, sizes, count);
    }
}

/* Rows and vocabularies of the largest models, heads of 256, and next to no blocks. */
static void awkward_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *base;
        uint32_t layers, width, heads, feed_forward, vocabulary;
    } shapes[] = {
        {"llama-8b", 2, 8192, 64, 28672, 128256},
        {"llama-8b", 2, 4096, 16, 14336, 262144},
        {"llama-1b", 2, 2048, 8, 16384, 262144},
        {"llama-8b", 2, 12288, 96, 28672, 32768},
        {"llama-1b", 2, 2240, 40, 5632, 32003},
        {"rwkv7-2.9b", 2, 4096, 0, 16384, 65536},
    };
    static const char *const mixes[] = {"Q4_0", "Q8_0", "Q4_K_M"};
    static const int shared_bytes[] = {LITTLE_SHARED, FAKE_SHARED}, blocks[] = {8, 20, 170};
    struct size sizes[6];
    const size_t count = list_sizes(shared_bytes, 2, blocks, 3, sizes);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct model_shape shape = *find_shape(shapes[i].base);
        shape.layers = shapes[i].layers;
        shape.width = shapes[i].width;
        shape.heads = shapes[i].heads;
        shape.feed_forward = shapes[i].feed_forward;
        shape.vocabulary = shapes[i].vocabulary;
        for (size_t j = 0; j < sizeof mixes / sizeof *mixes; j++)
            plan_all(&shape, find_mix(mixes[j]), sizes, count);
    }
}

/* An H200 has room for everything: no input is divided, and records hold all of them. */
static void roomy_devices(void **state)
{
    (void)state;
    static const char *const shapes[] = {"smollm-135m", "llama-1b", "llama-8b", "rwkv7-2.9b"};
    set_fake_device(FAKE_SHARED, 132);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct hollow_model model;
        struct program *program;
        struct executor *executor;
        hollow_model_open(find_shape(shapes[i]), find_mix("Q4_0"), &model);
        ASSERT_OK(arch_build_for(model.gguf, usual.context, &program));
        ASSERT_OK(cuda_executor_plan(program, &usual, &executor));
        assert_int_equal(CUDA_FIT_ROOMY, executor->fit);
        assert_false(has_pieces(executor));
        check_addresses(&executor->single.tables);
        check_shifts(executor);
        cuda_executor_close(executor);
        program_close(program);
        hollow_model_close(&model);
    }
}

static void expect_refusal(
    const struct model_shape *shape, int shared_bytes, const char *text, const char *more)
{
    struct hollow_model model;
    struct program *program;
    struct executor *executor;
    const size_t taken = fake->taken;
    set_fake_device(shared_bytes, 46);
    hollow_model_open(shape, find_mix("Q4_0"), &model);
    ASSERT_OK(arch_build_for(model.gguf, usual.context, &program));
    assert_int_equal(SALVO_ERROR_UNSUPPORTED, cuda_executor_plan(program, &usual, &executor));
    assert_non_null(strstr(salvo_error(), text));
    assert_non_null(strstr(salvo_error(), more));
    assert_int_equal(taken, fake->taken);
    program_close(program);
    hollow_model_close(&model);
}

static void refused_before_loading(void **state)
{
    (void)state;
    struct model_shape shape = *find_shape("llama-8b");
    shape.width = 65536;
    shape.heads = 512;
    expect_refusal(&shape, LITTLE_SHARED, "101376", "65536");

    shape = *find_shape("llama-8b"); /* heads that need more shared memory than there is, too */
    shape.heads = shape.kv_heads = 4;
    shape.head_size = 1024;
    expect_refusal(&shape, FAKE_SHARED, "heads of 1024 elements", "at most 256");
    shape = *find_shape("rwkv7-2.9b");
    shape.head_size = 256;
    expect_refusal(&shape, FAKE_SHARED, "recurrent heads of 256 elements", "at most 170");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_that_people_own),
        cmocka_unit_test(awkward_shapes),
        cmocka_unit_test(roomy_devices),
        cmocka_unit_test(refused_before_loading),
    };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}

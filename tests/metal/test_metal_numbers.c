/* Kernels alone: matmuls in every shape, and numbers that the models of other tests do not have. */
#include "backend/metal/metal_device.h"
#include "metal/find_fake_metal.h"
#include "quant/quant.h"

#include <math.h>

/* Offsets in the one buffer, in bytes. */
enum { WEIGHTS = 0, GATED = 1 << 16, ARENA = 1 << 17, VECTORS = ARENA + (1 << 15), STEP = ARENA + (1 << 16) };

struct bench {
    struct metal_device device;
    struct metal_buffer buffer;
    float *arena, *vectors;
};

/* With a step of one row of each kind, at position 0 of page 0. */
static struct bench bench_open(void)
{
    struct bench bench = {0};
    assert_true(metal_device_count() > 0);
    ASSERT_OK(metal_device_open(0, &bench.device));
    ASSERT_OK(metal_buffer_open(&bench.device, STEP + (1 << 16), "a test", &bench.buffer));
    memset(bench.buffer.bytes, 0, bench.buffer.size);
    bench.arena = (float *)(void *)(bench.buffer.bytes + ARENA);
    bench.vectors = (float *)(void *)(bench.buffer.bytes + VECTORS);
    *(struct step_header *)(void *)(bench.buffer.bytes + STEP) = (struct step_header){.live = {1, 1, 1},
        .rows_at = sizeof(struct step_header) / 4,
        .pages_at = sizeof(struct step_header) / 4 + 2,
        .pages_stride = 1};
    return bench;
}

static void bench_close(struct bench *bench)
{
    metal_buffer_close(&bench->buffer);
    metal_device_close(&bench->device);
}

struct launch {
    const char *kernel;
    uint32_t constants[METAL_CONSTANTS], groups, threads;
    void *arguments;
    size_t argument_bytes;
    objc_count bindings[10], binding_count; /* places in the buffer, from index 1 on */
};

static void run(struct bench *bench, const struct launch *launch)
{
    struct metal_pipeline pipeline = {.kernel = launch->kernel};
    memcpy(pipeline.constants, launch->constants, sizeof pipeline.constants);
    ASSERT_OK(metal_pipeline_open(&bench->device, launch->threads, &pipeline));
    void *pool = objc.push_pool();
    objc_id commands = objc_command_buffer(bench->device.queue), encoder = objc_encoder(commands, 1);
    objc_set_pipeline(encoder, pipeline.handle);
    objc_set_bytes(encoder, launch->arguments, launch->argument_bytes, 0);
    for (objc_count i = 0; i < launch->binding_count; i++)
        objc_set_buffer(encoder, bench->buffer.handle, launch->bindings[i], i + 1);
    objc_set_threadgroup_memory(encoder, 256, 0);
    objc_dispatch(
        encoder, (struct objc_size){launch->groups, 1, 1}, (struct objc_size){launch->threads, 1, 1});
    objc_end_encoding(encoder);
    objc_commit(commands);
    objc_wait_until_completed(commands);
    objc.pop_pool(pool);
    objc_release(pipeline.handle);
}

/* ---- Matmuls ---- */

enum { ROWS = 11, COLUMNS = 768, X = 0, TO = COLUMNS };

/* A matmul of one row; `sums` and `all_sums`: of a thread, of a row. */
struct shape {
    uint32_t rows, simdgroups, sums, all_sums;
};

/* The result is behind x, in the arena. */
static void multiply(struct bench *bench, enum tensor_type type, uint32_t rows, uint32_t columns,
    bool is_fused, struct shape shape)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    struct matmul_arguments arguments = {.row_bytes = columns / info->block_elements * info->block_bytes,
        .rows = rows,
        .columns = columns,
        .x = X,
        .to = TO,
        .bias = METAL_NO_OPERAND,
        .epsilon = 1e-5F};
    const uint32_t lanes = shape.all_sums / shape.sums, of_group = 32 * shape.simdgroups / lanes * shape.rows;
    const struct launch launch = {.kernel = "matmul",
        .constants = {[METAL_CONSTANT_KIND] = type,
            [METAL_CONSTANT_LANES] = lanes,
            [METAL_CONSTANT_TOKENS] = 1,
            [METAL_CONSTANT_ROUNDS] = type == TYPE_F16,
            [METAL_CONSTANT_NORMS] = is_fused,
            [METAL_CONSTANT_GATES] = is_fused,
            [METAL_CONSTANT_ROWS] = shape.rows,
            [METAL_CONSTANT_SIMDGROUPS] = shape.simdgroups,
            [METAL_CONSTANT_SUMS] = shape.sums},
        .groups = (rows + of_group - 1) / of_group,
        .threads = 32 * shape.simdgroups,
        .arguments = &arguments,
        .argument_bytes = sizeof arguments,
        .bindings = {WEIGHTS, ARENA, VECTORS, STEP, GATED},
        .binding_count = 5};
    for (uint32_t i = 0; i < rows; i++)
        bench->arena[TO + i] = NAN;
    run(bench, &launch);
}

/* Numbers from -1 to 1. */
static void fill(float *out, uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        out[i] = (float)(seed >> 8) / 8388608 - 1;
    }
}

/* Two matrices, x and the weights of its norm. */
static void fill_matmul(struct bench *bench, enum tensor_type type)
{
    static float values[ROWS * COLUMNS];
    for (uint32_t i = 0; i < 2; i++) {
        fill(values, ROWS * COLUMNS, type + 100 * i);
        quantize(type, values, ROWS * COLUMNS, bench->buffer.bytes + (i ? GATED : WEIGHTS));
    }
    fill(bench->arena + X, COLUMNS, 7);
    fill(bench->vectors, COLUMNS, 8);
}

/* The sum of a row in double precision, without rounding of x. */
static void check_row(struct bench *bench, enum tensor_type type, uint32_t row)
{
    static float weights[ROWS * COLUMNS];
    double sum = 0;
    dequantize(type, bench->buffer.bytes + WEIGHTS, ROWS * COLUMNS, weights);
    for (uint32_t i = 0; i < COLUMNS; i++)
        sum += (double)weights[row * COLUMNS + i] * (double)bench->arena[X + i];
    assert_true(fabs((double)bench->arena[TO + row] - sum) < 0.01);
}

/* By memcmp: which threads share a row is chosen by a timing. */
static void check_shapes(struct bench *bench, enum tensor_type type, bool is_fused, uint32_t all_sums)
{
    float expected[ROWS];
    multiply(bench, type, ROWS, COLUMNS, is_fused, (struct shape){1, 2, 1, all_sums});
    memcpy(expected, bench->arena + TO, sizeof expected);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_false(isnan(expected[i]));
        if (!is_fused)
            check_row(bench, type, i);
    }
    for (uint32_t rows = 1; rows <= METAL_MATMUL_ROWS; rows *= 2) {
        for (uint32_t simdgroups = METAL_MATMUL_SIMDGROUPS; simdgroups <= 4; simdgroups *= 2) {
            for (uint32_t sums = 1; sums <= METAL_MATMUL_SUMS; sums++) {
                multiply(
                    bench, type, ROWS, COLUMNS, is_fused, (struct shape){rows, simdgroups, sums, all_sums});
                assert_memory_equal(expected, bench->arena + TO, sizeof expected);
            }
        }
    }
}

static void every_shape_of_a_matmul_gives_the_same_bits(void **state)
{
    (void)state;
    static const enum tensor_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0,
        TYPE_Q5_1, TYPE_Q8_0, TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS,
        TYPE_MXFP4};
    struct bench bench = bench_open();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        fill_matmul(&bench, types[i]);
        for (uint32_t all_sums = 8; all_sums <= 32; all_sums *= 2) {
            check_shapes(&bench, types[i], false, all_sums);
            check_shapes(&bench, types[i], true, all_sums);
        }
    }
    bench_close(&bench);
}

/* A product of one with x, which is rounded. */
static float rounded(struct bench *bench, float x)
{
    const float one = 1;
    memset(bench->buffer.bytes, 0, ARENA);
    quantize(TYPE_F16, &one, 1, bench->buffer.bytes + WEIGHTS);
    memset(bench->arena, 0, COLUMNS * sizeof(float));
    bench->arena[X] = x;
    multiply(bench, TYPE_F16, 1, 32, false, (struct shape){1, 2, 1, 8});
    return bench->arena[TO];
}

static void rounded_activations_are_finite(void **state)
{
    (void)state;
    struct bench bench = bench_open();
    assert_true(rounded(&bench, 1.0004F) == 1);
    assert_true(rounded(&bench, 1e6F) == 65504);
    assert_true(rounded(&bench, -65520) == -65504); /* the first number that a half has not */
    assert_true(isnan(rounded(&bench, NAN)));
    bench_close(&bench);
}

/* The next row of x may be anything. */
static void columns_behind_the_last_are_not_read(void **state)
{
    (void)state;
    enum { ODD = 24 };
    static const enum tensor_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    struct bench bench = bench_open();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        fill_matmul(&bench, types[i]);
        for (uint32_t column = ODD; column < 32; column++)
            bench.arena[X + column] = NAN;
        multiply(&bench, types[i], ROWS, ODD, false, (struct shape){1, 2, 1, 8});
        for (uint32_t row = 0; row < ROWS; row++)
            assert_false(isnan(bench.arena[TO + row]));
    }
    bench_close(&bench);
}

/* Attention at the first position is the value that it computes itself, here from an odd number of parts. */
static void check_projection(struct bench *bench, uint32_t sums)
{
    enum { DIM = 8, SHORT = 160, KEYS = STEP + (1 << 14), VALUES = STEP + (1 << 15) };
    static float weights[DIM * SHORT];
    const struct projected_matrix matrix = {.row_bytes = SHORT / 32 * 18, .bias = METAL_NO_OPERAND};
    struct attend_arguments arguments = {.to = TO,
        .heads = 1,
        .kv_heads = 1,
        .head_bytes = DIM * sizeof(float),
        .scale = 1,
        .columns = SHORT,
        .projections = {matrix, matrix, matrix}};
    double squares = 0;
    fill_matmul(bench, TYPE_Q4_0);
    dequantize(TYPE_Q4_0, bench->buffer.bytes + GATED, DIM * SHORT, weights);
    for (uint32_t i = 0; i < SHORT; i++)
        squares += (double)bench->arena[X + i] * (double)bench->arena[X + i];
    for (uint32_t i = SHORT; i < COLUMNS; i++)
        bench->arena[X + i] = NAN;
    run(bench,
        &(struct launch){.kernel = "attend",
            .constants = {[METAL_CONSTANT_KIND] = TYPE_Q4_0,
                [METAL_CONSTANT_LANES] = 8 / sums,
                [METAL_CONSTANT_SUMS] = sums,
                [METAL_CONSTANT_NORMS] = 1,
                [METAL_CONSTANT_ROTATES] = 1,
                [METAL_CONSTANT_PROJECTS] = 1,
                [METAL_CONSTANT_DIM] = DIM},
            .groups = 1,
            .threads = METAL_ATTEND_THREADS,
            .arguments = &arguments,
            .argument_bytes = sizeof arguments,
            .bindings = {ARENA, KEYS, VALUES, STEP, WEIGHTS, VECTORS, VECTORS, WEIGHTS, WEIGHTS, GATED},
            .binding_count = 10});
    for (uint32_t row = 0; row < DIM; row++) {
        double sum = 0;
        for (uint32_t i = 0; i < SHORT; i++)
            sum += (double)weights[row * SHORT + i] * (double)bench->arena[X + i] * (double)bench->vectors[i];
        assert_true(fabs((double)bench->arena[TO + row] - sum / sqrt(squares / SHORT)) < 1e-4);
    }
}

static void attention_projects_rows_of_each_length(void **state)
{
    (void)state;
    struct bench bench = bench_open();
    for (uint32_t sums = 1; sums <= METAL_MATMUL_SUMS; sums++)
        check_projection(&bench, sums);
    bench_close(&bench);
}

/* ---- Norms ---- */

/* Shorter vectors are scaled as if epsilon were their length. */
static void l2_norms_of_short_vectors_have_a_limit(void **state)
{
    (void)state;
    enum { GROUP = 16 };
    struct bench bench = bench_open();
    struct row_arguments arguments = {.to = 2 * GROUP,
        .weight = METAL_NO_OPERAND,
        .bias = METAL_NO_OPERAND,
        .columns = 2 * GROUP,
        .group = GROUP,
        .number = 1e-12F};
    for (uint32_t i = 0; i < GROUP; i++) {
        bench.arena[i] = 1e-15F;
        bench.arena[GROUP + i] = 1e-11F;
    }
    run(&bench, &(struct launch){.kernel = "normalise",
                    .constants = {[METAL_CONSTANT_KIND] = METAL_L2_NORM},
                    .groups = 2,
                    .threads = METAL_ROW_THREADS,
                    .arguments = &arguments,
                    .argument_bytes = sizeof arguments,
                    .bindings = {ARENA, VECTORS, STEP},
                    .binding_count = 3});
    for (uint32_t i = 0; i < GROUP; i++) {
        assert_float_equal(1e-3F, bench.arena[2 * GROUP + i], 1e-8F);
        assert_float_equal(0.25F, bench.arena[3 * GROUP + i], 1e-6F);
    }
    bench_close(&bench);
}

/* ---- The cache ---- */

enum { HEAD = 32, SCALE_NAN = 0x7e00 };

/* Appends x as a key with one scale, which is returned as the bits of a half. */
static uint32_t append(struct bench *bench, const float *x, int8_t *out_codes)
{
    struct append_arguments arguments = {.heads = 1, .head_dim = HEAD, .head_bytes = HEAD + 2};
    uint16_t scale;
    memcpy(bench->arena, x, HEAD * sizeof *x);
    run(bench, &(struct launch){.kernel = "append",
                   .constants = {[METAL_CONSTANT_CACHE] = METAL_Q8_0},
                   .groups = 1,
                   .threads = METAL_ROW_THREADS,
                   .arguments = &arguments,
                   .argument_bytes = sizeof arguments,
                   .bindings = {ARENA, WEIGHTS, GATED, STEP},
                   .binding_count = 4});
    memcpy(out_codes, bench->buffer.bytes + WEIGHTS, HEAD);
    memcpy(&scale, bench->buffer.bytes + WEIGHTS + HEAD, sizeof scale);
    return scale;
}

/* Values that bytes and a scale cannot express get a scale that is NaN, so attention fails as with floats. */
static void bytes_of_the_cache_show_what_is_not_finite(void **state)
{
    (void)state;
    static const float refused[] = {NAN, -NAN, INFINITY, -INFINITY, 127 * 65520.0F};
    struct bench bench = bench_open();
    float x[HEAD] = {0};
    int8_t codes[HEAD], zeros[HEAD] = {0};
    assert_int_equal(0, append(&bench, x, codes));
    assert_memory_equal(zeros, codes, sizeof codes);
    x[3] = 127;
    x[9] = -63.5F;
    assert_int_equal(0x3c00, append(&bench, x, codes));
    assert_int_equal(127, codes[3]);
    assert_int_equal(-64, codes[9]);     /* to the even one of two neighbours */
    const float least = 1.4F * 0x1p-24F; /* a scale that a half rounds down to 2^-24 */
    for (uint32_t i = 0; i < HEAD; i++)
        x[i] = i % 2 ? -127 * least : 127 * least;
    assert_int_equal(1, append(&bench, x, codes));
    assert_int_equal(127, codes[0]);
    assert_int_equal(-127, codes[1]);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        x[5] = refused[i];
        assert_int_equal(SCALE_NAN, append(&bench, x, codes));
        assert_memory_equal(zeros, codes, sizeof codes);
    }
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_of_a_matmul_gives_the_same_bits),
        cmocka_unit_test(columns_behind_the_last_are_not_read),
        cmocka_unit_test(attention_projects_rows_of_each_length),
        cmocka_unit_test(rounded_activations_are_finite),
        cmocka_unit_test(l2_norms_of_short_vectors_have_a_limit),
        cmocka_unit_test(bytes_of_the_cache_show_what_is_not_finite),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}

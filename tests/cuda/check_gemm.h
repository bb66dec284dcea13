/* Matmuls of many tokens: every format, shapes that are no multiple of a tile, and all
 * operations after the sum. */
#ifndef TESTS_CUDA_CHECK_GEMM_H
#define TESTS_CUDA_CHECK_GEMM_H

#include "cuda/check_device.h"

#include <memory>

/* ---- The kernels ---- */

typedef void gemm_kernel(const cuda_machine *, const cuda_gemm);

#define DECLARE(name) \
    extern "C" __global__ void name(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)
#define DECLARE_ALL(kind)                  \
    DECLARE(salvo_gemm_##kind##_few);      \
    DECLARE(salvo_gemm_##kind##_few_glu);  \
    DECLARE(salvo_gemm_##kind##_some);     \
    DECLARE(salvo_gemm_##kind##_some_glu); \
    DECLARE(salvo_gemm_##kind##_many);     \
    DECLARE(salvo_gemm_##kind##_many_glu)
DECLARE_ALL(q8);
DECLARE_ALL(f16);
DECLARE_ALL(f32);
DECLARE(salvo_gemm_halves_16);
DECLARE(salvo_gemm_halves_16_glu);
DECLARE(salvo_gemm_halves_32);
DECLARE(salvo_gemm_halves_32_glu);
DECLARE(salvo_gemm_halves_64);
DECLARE(salvo_gemm_halves_64_glu);
DECLARE(salvo_gemm_halves_128);
DECLARE(salvo_gemm_halves_128_glu);
DECLARE(salvo_gemm_thin_16);
DECLARE(salvo_gemm_thin_16_glu);
DECLARE(salvo_gemm_thin_32);
#undef DECLARE_ALL
#undef DECLARE

inline gemm_kernel *find_gemm_kernel(const char *name)
{
    const struct {
        const char *name;
        gemm_kernel *kernel;
    } kernels[] = {
        {"salvo_gemm_q8_few", salvo_gemm_q8_few},
        {"salvo_gemm_q8_few_glu", salvo_gemm_q8_few_glu},
        {"salvo_gemm_q8_some", salvo_gemm_q8_some},
        {"salvo_gemm_q8_some_glu", salvo_gemm_q8_some_glu},
        {"salvo_gemm_q8_many", salvo_gemm_q8_many},
        {"salvo_gemm_q8_many_glu", salvo_gemm_q8_many_glu},
        {"salvo_gemm_f16_few", salvo_gemm_f16_few},
        {"salvo_gemm_f16_few_glu", salvo_gemm_f16_few_glu},
        {"salvo_gemm_f16_some", salvo_gemm_f16_some},
        {"salvo_gemm_f16_some_glu", salvo_gemm_f16_some_glu},
        {"salvo_gemm_f16_many", salvo_gemm_f16_many},
        {"salvo_gemm_f16_many_glu", salvo_gemm_f16_many_glu},
        {"salvo_gemm_f32_few", salvo_gemm_f32_few},
        {"salvo_gemm_f32_few_glu", salvo_gemm_f32_few_glu},
        {"salvo_gemm_f32_some", salvo_gemm_f32_some},
        {"salvo_gemm_f32_some_glu", salvo_gemm_f32_some_glu},
        {"salvo_gemm_f32_many", salvo_gemm_f32_many},
        {"salvo_gemm_f32_many_glu", salvo_gemm_f32_many_glu},
        {"salvo_gemm_halves_16", salvo_gemm_halves_16},
        {"salvo_gemm_halves_16_glu", salvo_gemm_halves_16_glu},
        {"salvo_gemm_halves_32", salvo_gemm_halves_32},
        {"salvo_gemm_halves_32_glu", salvo_gemm_halves_32_glu},
        {"salvo_gemm_halves_64", salvo_gemm_halves_64},
        {"salvo_gemm_halves_64_glu", salvo_gemm_halves_64_glu},
        {"salvo_gemm_halves_128", salvo_gemm_halves_128},
        {"salvo_gemm_halves_128_glu", salvo_gemm_halves_128_glu},
        {"salvo_gemm_thin_16", salvo_gemm_thin_16},
        {"salvo_gemm_thin_16_glu", salvo_gemm_thin_16_glu},
        {"salvo_gemm_thin_32", salvo_gemm_thin_32},
    };
    for (const auto &kernel : kernels) {
        if (!strcmp(name, kernel.name))
            return kernel.kernel;
    }
    printf("no kernel %s\n", name);
    exit(2);
}

/* ---- Inputs ---- */

/* With warpgroups quantised weights take halves, too. */
inline uint32_t rounding_of(enum tensor_type type, bool warpgroups)
{
    const bool halves = type == TYPE_F16 || (warpgroups && type != TYPE_F32 && type != TYPE_BF16);
    return halves ? ROUNDING_F16 : type == TYPE_F32 || type == TYPE_BF16 ? ROUNDING_F32 : ROUNDING_Q8;
}

/* A packed input on the device, and the numbers that it represents. The first `fine` rows have two terms.
 */
struct test_packed_input {
    cuda_packed_input packed_input;
    uint32_t fine;
    std::vector<uint8_t> bytes;
    std::vector<float> rounded; /* [tokens][columns] */

    test_packed_input(uint32_t rounding, const std::vector<float> &x, uint32_t tokens, uint32_t capacity,
        uint32_t columns, uint32_t fine_, bool warpgroups)
        : fine(fine_), bytes(cuda_packed_input_bytes(rounding, columns, capacity), 0xff), rounded(x)
    {
        const uint64_t base = device_new(bytes.size());
        packed_input = cuda_packed_input_at(rounding, columns, capacity, base);
        packed_input.grouped = warpgroups && rounding == ROUNDING_F16 ? (capacity + 7) / 8 * 8 : 0;
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t i = 0; i < packed_input.columns; i += 32)
                round_group(t, i, columns, base);
        }
        device_put(base, bytes.data(), bytes.size());
    }

    ~test_packed_input() { device_free(packed_input.values); }

    template <class T> void set(uint64_t base, uint64_t array, size_t index, T value)
    {
        memcpy(bytes.data() + (array - base) + index * sizeof value, &value, sizeof value);
    }

    void round_group(uint32_t t, uint32_t first, uint32_t columns, uint64_t base)
    {
        float *x = rounded.data() + (size_t)t * columns;
        const size_t row = (size_t)t * packed_input.columns;
        float largest = 0;
        for (uint32_t i = first; i < first + 32 && i < columns; i++)
            largest = std::fmax(largest, std::fabs(x[i]));
        const int unit = t < fine ? 128 : 1;
        const float scale = largest / (float)(127 * unit), inverse = scale > 0 ? 1 / scale : 0;
        int sums[2] = {0, 0};
        for (uint32_t i = first; i < first + 32; i++) {
            float value = i < columns ? x[i] : 0;
            if (packed_input.rounding == ROUNDING_F32) {
                set(base, packed_input.values, row + i, value);
            } else if (packed_input.rounding == ROUNDING_F16) {
                set(base, packed_input.values, half_place(packed_input, t, i), f16_from_f32(value));
                value = f16_to_f32(f16_from_f32(value));
            } else {
                const int integer = (int)std::nearbyint(value * inverse),
                          first_term = (int)std::floor((float)integer / (float)unit + 0.5f);
                set(base, packed_input.values, row + i, (int8_t)first_term);
                if (t < fine)
                    set(base, packed_input.seconds, row + i, (int8_t)(integer - first_term * unit));
                sums[i % 32 / 16] += integer;
                value = scale * (float)integer;
            }
            if (i < columns)
                x[i] = value;
        }
        if (packed_input.rounding == ROUNDING_Q8) {
            set(base, packed_input.scales, (row + first) / 32, scale * (float)unit);
            set(base, packed_input.sums, (row + first) / 16, scale * (float)sums[0]);
            set(base, packed_input.sums, (row + first) / 16 + 1, scale * (float)sums[1]);
        }
    }
};

/* A matrix in weight tiles on the device, and the numbers that it represents. */
struct test_matrix {
    cuda_matrix matrix;
    std::vector<float> values; /* [rows][columns] */

    test_matrix(
        numbers &random, enum tensor_type type, uint32_t rows, uint32_t columns, uint32_t tile_rows_per_block)
        : values(random.vector((size_t)rows * columns, 1 / std::sqrt((float)columns)))
    {
        const struct tensor_type_info *info = tensor_type_info(type);
        std::vector<uint8_t> blocks(values.size() / info->block_elements * info->block_bytes);
        quantize(type, values.data(), values.size(), blocks.data());
        dequantize(type, blocks.data(), values.size(), values.data());
        matrix = cuda_matrix_shape(type, rows, columns, tile_rows_per_block);
        std::vector<uint8_t> tiles(cuda_matrix_bytes(&matrix));
        cuda_pack_owners(&matrix, blocks.data(), 0, matrix.owners, tiles.data());
        matrix.base = device_new(tiles.size());
        device_put(matrix.base, tiles.data(), tiles.size());
    }

    test_matrix(const test_matrix &) = delete;
    test_matrix &operator=(const test_matrix &) = delete;
    ~test_matrix() { device_free(matrix.base); }
};

/* ---- The reference ---- */

inline double reference_activation(uint32_t activation, double x)
{
    switch (activation) {
    case ACTIVATION_SILU:
        return x / (1 + std::exp(-x));
    case ACTIVATION_GELU:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACTIVATION_TANH:
        return std::tanh(x);
    case ACTIVATION_SIGMOID:
        return 1 / (1 + std::exp(-x));
    case ACTIVATION_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    case ACTIVATION_DECAY:
        return std::exp(-std::exp(-0.5) / (1 + std::exp(-x)));
    default:
        return x;
    }
}

/* `spread` becomes at least the root of the sum of squares of the products. */
inline double reference_dot(const test_matrix &matrix, uint32_t row, const float *x, double &spread)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < matrix.matrix.columns; i++) {
        const double product = (double)matrix.values[(size_t)row * matrix.matrix.columns + i] * x[i];
        sum += product;
        squares += product * product;
    }
    spread = std::fmax(spread, std::sqrt(squares));
    return sum;
}

/* ---- Cases ---- */

enum { MOST_SHARED = 227 * 1024, LITTLE_SHARED = 99 * 1024 };

struct gemm_case {
    std::vector<enum tensor_type> types;
    std::vector<uint32_t> rows;
    uint32_t columns, tokens, capacity;
    uint32_t glu = ACTIVATION_NONE;
    bool bias = false, accumulate = false, of_outputs = false;
    uint32_t activation = ACTIVATION_NONE;
    float cap = 0;
    bool rounds = false; /* its result */
    cuda_room room = {MOST_SHARED, 1};
    std::vector<uint32_t> widths = {}; /* columns of each matmul; empty: `columns` */
    bool thin = false;                 /* by salvo_gemm_thin_*, also where there are many tokens */

    uint32_t columns_of(size_t matmul) const { return widths.empty() ? columns : widths[matmul]; }
};

inline std::string gemm_name(const gemm_case &c)
{
    std::string name = "gemm";
    for (size_t i = 0; i < c.types.size(); i++)
        name += std::string(" ") + tensor_type_info(c.types[i])->name + "[" + std::to_string(c.rows[i]) + "]";
    name += " K";
    for (size_t i = 0; i < (c.widths.empty() ? 1 : c.widths.size()); i++)
        name += " " + std::to_string(c.columns_of(i));
    name += " T " + std::to_string(c.tokens) + " of " + std::to_string(c.capacity);
    name += c.glu ? " glu" : "";
    name += c.bias ? " bias" : "";
    name += c.accumulate ? " accumulate" : "";
    name += c.activation ? " activation " + std::to_string(c.activation) : "";
    return name + (c.cap != 0 ? " cap" : "") + (c.rounds ? " rounded" : "");
}

inline void check_gemm(checks &results, const gemm_case &c, uint64_t seed)
{
    numbers random(seed);
    const uint32_t rounding = rounding_of(c.types[0], c.room.warpgroups);
    /* With `of_outputs` every token but one has logits. */
    std::vector<test_run> runs = {
        {0, 0, c.tokens, c.of_outputs ? (uint32_t)LOGITS_ALL : (uint32_t)LOGITS_LAST}};
    if (c.of_outputs)
        runs.push_back({1, 0, 1, LOGITS_NONE});
    test_machine machine(runs, 2, 1024, 1);
    std::vector<std::unique_ptr<test_packed_input>> inputs; /* a glu has one */
    std::vector<test_matrix *> matrices;
    std::vector<std::vector<float>> biases, before;
    std::vector<device_array<float> *> bias_arrays, outs;
    cuda_gemm gemm = {};
    gemm.token_rows = machine.token_rows();
    gemm.count = (uint32_t)c.types.size();
    gemm.glu = c.glu;
    gemm.rows = c.of_outputs ? ROWS_OUTPUTS : ROWS_TOKENS;
    const uint32_t tile_rows_per_block = 1 + random.below(5);
    for (size_t i = 0; i < c.types.size(); i++) {
        const uint32_t columns = c.columns_of(i);
        if (!c.glu || i == 0)
            inputs.push_back(std::make_unique<test_packed_input>(rounding,
                random.vector((size_t)c.tokens * columns), c.tokens, c.capacity, columns,
                c.of_outputs ? c.tokens : (uint32_t)EARLY_POSITIONS, c.room.warpgroups));
        gemm.inputs[i] = inputs.back()->packed_input;
        gemm.inputs[i].fine = c.of_outputs;
        matrices.push_back(new test_matrix(
            random, c.types[i], c.rows[i], columns, c.glu ? tile_rows_per_block : 1 + random.below(5)));
        biases.push_back(random.vector(c.rows[i]));
        before.push_back(random.vector((size_t)c.capacity * c.rows[i]));
        bias_arrays.push_back(new device_array<float>(biases[i]));
        outs.push_back(new device_array<float>((size_t)c.capacity * c.rows[i]));
        if (c.accumulate)
            device_put(outs[i]->address, before[i].data(), (size_t)c.tokens * c.rows[i] * 4);
        gemm.matmuls[i] = {matrices[i]->matrix, c.bias ? bias_arrays[i]->address : 0, outs[i]->address,
            c.glu ? (uint32_t)ACTIVATION_NONE : c.activation, c.accumulate, c.cap};
    }
    const bool grouped = gemm.inputs[0].grouped != 0, few = c.capacity <= GEMM_FEW_TOKENS,
               thin = grouped && (c.thin || (few && !(c.glu && c.types[0] == TYPE_F16)));
    const uint32_t next_rounding = c.room.warpgroups ? ROUNDING_F16 : ROUNDING_Q8;
    const device_array<uint8_t> rounded(cuda_packed_input_bytes(next_rounding, c.rows[0], c.capacity));
    if (c.rounds)
        gemm.rounded = cuda_packed_input_at(next_rounding, c.rows[0], c.capacity, rounded.address);
    gemm.rounded.grouped = c.room.warpgroups ? (c.capacity + 7) / 8 * 8 : 0;
    const cuda_launch launch = !grouped || few ? cuda_gemm_launch(&gemm, c.capacity, &c.room)
                               : thin          ? cuda_gemm_thin_launch(&gemm, c.capacity, &c.room)
                                               : cuda_gemm_halves_launch(&gemm, c.capacity, &c.room);
    const cuda_machine *device = machine.upload();
    launch_cluster() = gemm.splits;
    launch_kernel(launch, find_gemm_kernel(launch.kernel), device, gemm);
    device_wait();

    double worst = 0;
    bool whole = rounded.guard_is_whole();
    for (uint32_t t = 0; c.rounds && t < c.tokens; t++)
        whole &= packed_input_is_right(gemm.rounded, rounded.get(), rounded.address, t, c.rows[0],
            outs[0]->get().data() + (size_t)t * c.rows[0], t < EARLY_POSITIONS);
    std::vector<std::vector<float>> first;
    for (size_t i = 0; i < (c.glu ? 1 : c.types.size()); i++) {
        const std::vector<float> out = outs[i]->get();
        first.push_back(out);
        std::vector<double> reference(c.rows[i]);
        for (uint32_t t = 0; t < c.tokens; t++) {
            const float *row = inputs[i]->rounded.data() + (size_t)t * c.columns_of(i);
            double spread = 0;
            for (uint32_t n = 0; n < c.rows[i]; n++) {
                double value = reference_dot(*matrices[i], n, row, spread) + (c.bias ? biases[i][n] : 0);
                if (c.glu) {
                    const double up =
                        reference_dot(*matrices[1], n, row, spread) + (c.bias ? biases[1][n] : 0);
                    value = reference_activation(c.glu, value) * up;
                } else {
                    value = reference_activation(c.activation, value);
                }
                if (c.cap != 0)
                    value = c.cap * std::tanh(value / c.cap);
                reference[n] = value + (c.accumulate ? before[i][(size_t)t * c.rows[i] + n] : 0);
            }
            worst = std::fmax(
                worst, row_error(out.data() + (size_t)t * c.rows[i], reference.data(), c.rows[i], spread));
        }
        for (size_t j = (size_t)c.tokens * c.rows[i]; j < out.size(); j++)
            whole &= is_poison(out[j]);
        whole &= outs[i]->guard_is_whole();
    }
    /* Once more: the same bits. */
    for (size_t i = 0; i < outs.size() && c.accumulate; i++)
        device_put(outs[i]->address, before[i].data(), (size_t)c.tokens * c.rows[i] * 4);
    launch_kernel(launch, find_gemm_kernel(launch.kernel), device, gemm);
    device_wait();
    launch_cluster() = 0;
    bool same = true;
    for (size_t i = 0; i < first.size(); i++) {
        const std::vector<float> again = outs[i]->get();
        same &= !memcmp(first[i].data(), again.data(), again.size() * 4);
    }
    const bool is_thin = strstr(launch.kernel, "_thin_"), is_wide = strstr(launch.kernel, "_halves_"),
               right_kernel = is_thin == thin && is_wide == (grouped && !thin);
    /* Weights as halves: code times scale is rounded. */
    const double most = !c.room.warpgroups || c.types[0] == TYPE_F16 ? 2e-5 : c.glu ? 4e-3 : 1e-3;
    results.report(gemm_name(c), worst < most && whole && same && right_kernel, worst,
        !whole          ? "wrote where it must not, or rounding"
        : !same         ? "other bits the second time"
        : !right_kernel ? "by another kernel"
                        : "");
    for (size_t i = 0; i < matrices.size(); i++) {
        delete matrices[i];
        delete bias_arrays[i];
        delete outs[i];
    }
}

/* Warpgroups: blocks of 64 tokens where there would be too few blocks of 128. */
inline void check_wide_gemms(checks &results, uint64_t seed)
{
    const cuda_room large = {MOST_SHARED, 1, true}, small = {MOST_SHARED, 8, true};
    const enum tensor_type f16 = TYPE_F16;
    check_gemm(results, {{f16}, {40}, 333, 70, 256, 0, true, false, false, 0, 0, false, large}, seed++);
    check_gemm(results, {{f16}, {130}, 100, 256, 256, 0, false, true, false, 0, 0, false, small}, seed++);
    check_gemm(results, {{f16}, {129}, 2048, 5, 256, 0, true, true, false, 0, 0, false, small}, seed++);
    check_gemm(results, {{f16}, {264}, 640, 150, 300, 0, true, true, true, 0, 0, false, large}, seed++);
    check_gemm(results,
        {{f16, f16, f16}, {136, 33, 8}, 256, 129, 257, 0, true, false, false, ACTIVATION_TANH, 0, false,
            large},
        seed++);
    for (const cuda_room &room : {large, small}) {
        check_gemm(results,
            {{f16, f16}, {72, 72}, 416, 130, 256, ACTIVATION_SILU, true, false, false, 0, 0, false, room},
            seed++);
        check_gemm(results,
            {{f16, f16}, {128, 128}, 1100, 200, 256, ACTIVATION_GELU, false, false, false, 0, 0, true, room},
            seed++);
        check_gemm(
            results, {{f16}, {128}, 128, 140, 256, 0, true, false, false, 0, 1.5f, true, room}, seed++);
    }
    for (uint32_t tokens : {1, 8, 63, 64, 65, 127, 128, 129, 200, 512}) {
        for (uint32_t rows : {1, 100, 130, 576}) {
            for (uint32_t columns : {64, 256, 768, 2048}) {
                if (!ON_DEVICE)
                    continue;
                const uint32_t blocks = (rows + GEMM_HALVES_ROWS - 1) / GEMM_HALVES_ROWS * (512 / 64);
                for (const cuda_room &room : {large, cuda_room{MOST_SHARED, blocks, true}})
                    check_gemm(results,
                        {{f16}, {rows}, columns, tokens, 512, 0, true, tokens % 2 == 0, false, 0, 0, false,
                            room},
                        seed++);
            }
        }
    }
}

/* Types whose matmuls multiply halves. */
constexpr enum tensor_type half_types[] = {TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0, TYPE_Q5_1, TYPE_Q8_0, TYPE_IQ4_NL,
    TYPE_MXFP4, TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_XS, TYPE_F16};

/* salvo_gemm_thin_32: a single multiprocessor has enough blocks of so many rows. The last one is not full. */
inline void check_thin_gemms(checks &results, uint64_t seed)
{
    const cuda_room room = {MOST_SHARED, 1, true};
    for (enum tensor_type type : half_types) {
        const uint32_t columns = tensor_type_info(type)->block_elements == 256 ? 768 : 416;
        check_gemm(results,
            {{type}, {300}, columns, 16, 16, 0, true, false, seed % 2 == 0, 0, 0, false, room}, seed);
        seed++;
        check_gemm(results,
            {{type}, {130}, columns, 5, 16, 0, false, true, false, ACTIVATION_TANH, 0, false, room}, seed++);
    }
    check_gemm(results, {{TYPE_Q4_0}, {256}, 512, 9, 16, 0, true, false, false, 0, 0, true, room}, seed++);
    check_gemm(results,
        {{TYPE_Q4_K, TYPE_Q6_K, TYPE_Q8_0}, {40, 200, 8}, 2048, 13, 16, 0, true, true, false, 0, 0, false,
            room},
        seed++);
    /* Several blocks of tokens. */
    const cuda_room large = {MOST_SHARED, 40, true};
    for (const cuda_room &each : {room, large}) {
        check_gemm(results,
            {{TYPE_Q5_0}, {130}, 416, 40, 64, 0, true, true, false, 0, 0, false, each, {}, true}, seed++);
        check_gemm(results,
            {{TYPE_Q4_K, TYPE_Q6_K, TYPE_Q8_0}, {40, 200, 8}, 2048, 19, 24, 0, true, true, true, 0, 0, false,
                each, {}, true},
            seed++);
        check_gemm(results,
            {{TYPE_Q4_0, TYPE_Q4_0}, {128, 128}, 576, 33, 48, ACTIVATION_SILU, true, false, false, 0, 0, true,
                each, {}, true},
            seed++);
        check_gemm(results,
            {{TYPE_Q4_1}, {256}, 1536, 17, 33, 0, false, false, false, 0, 0, true, each, {}, true}, seed++);
    }
}

/* The kernel of a matmul of `rows` rows and `columns` columns on an H200. */
inline void check_gemm_choice(checks &results, enum tensor_type type, uint32_t rows, uint32_t columns,
    bool glu, uint32_t capacity, const char *kernel)
{
    const cuda_room h200 = {227 << 10, 132, true};
    cuda_gemm gemm = {};
    gemm.count = glu ? 2 : 1;
    gemm.glu = glu ? ACTIVATION_SILU : ACTIVATION_NONE;
    for (uint32_t i = 0; i < gemm.count; i++) {
        gemm.matmuls[i].matrix = cuda_matrix_shape(type, rows, columns, 1);
        gemm.inputs[i].grouped = capacity;
    }
    const cuda_launch launch = cuda_gemm_launch(&gemm, capacity, &h200);
    const std::string name = std::string("kernel of ") + tensor_type_info(type)->name + "[" +
                             std::to_string(rows) + "] K " + std::to_string(columns) + " T " +
                             std::to_string(capacity);
    results.report(name, strstr(launch.kernel, kernel) == launch.kernel, 0, launch.kernel);
}

/* Measured on an H200: matrices of SmolLM-135M, a 1B and RWKV-7 0.1B. */
inline void check_gemm_choices(checks &results)
{
    check_gemm_choice(results, TYPE_Q4_0, 576, 576, false, 64, "salvo_gemm_thin_16");
    check_gemm_choice(results, TYPE_Q4_0, 1536, 576, true, 64, "salvo_gemm_thin_16_glu");
    check_gemm_choice(results, TYPE_Q4_0, 1536, 576, true, 128, "salvo_gemm_halves_");
    check_gemm_choice(results, TYPE_Q4_0, 2048, 2048, false, 32, "salvo_gemm_thin_16");
    check_gemm_choice(results, TYPE_Q4_0, 8192, 2048, true, 32, "salvo_gemm_halves_");
    check_gemm_choice(results, TYPE_Q8_0, 49152, 576, false, 64, "salvo_gemm_halves_");
    check_gemm_choice(results, TYPE_Q6_K, 768, 768, false, 64, "salvo_gemm_thin_16");
    check_gemm_choice(results, TYPE_Q6_K, 768, 768, false, 128, "salvo_gemm_halves_");
    check_gemm_choice(results, TYPE_F16, 576, 576, false, 64, "salvo_gemm_halves_");
    check_gemm_choice(results, TYPE_F16, 576, 576, false, 16, "salvo_gemm_thin_16");
    check_gemm_choice(results, TYPE_Q4_0, 576, 576, false, 512, "salvo_gemm_halves_");
}

/* Clusters of one to eight blocks, every format and number of tokens. */
inline void check_split_gemms(checks &results, uint64_t seed)
{
    uint32_t number = 0;
    for (enum tensor_type type : half_types) {
        static const uint32_t tokens[][2] = {
            {2, 16}, {16, 16}, {17, 32}, {31, 32}, {33, 64}, {64, 64}, {65, 128}, {128, 128}};
        const bool whole = tensor_type_info(type)->block_elements == 256;
        for (const auto &count : tokens) {
            number++;
            if (!ON_DEVICE && number % 3 != 1)
                continue;
            const cuda_room room = {MOST_SHARED, 1 + number * 3 % 17, true};
            const uint32_t columns = whole ? 768 : 416;
            check_gemm(results,
                {{type}, {130}, columns, count[0], count[1], 0, true, number % 2 == 0, number % 4 == 0, 0, 0,
                    false, room},
                seed++);
            check_gemm(results,
                {{type, type}, {128, 128}, columns, count[0], count[1], ACTIVATION_SILU, false, false, false,
                    0, 0, true, room},
                seed++);
        }
    }
    /* Several types at once, and more tokens than a block has. */
    for (uint32_t multiprocessors : {1, 5, 12, 60})
        check_gemm(results,
            {{TYPE_Q4_K, TYPE_Q6_K, TYPE_Q8_0}, {40, 200, 8}, 2048, 19, 32, 0, true, true, false, 0, 0, false,
                {MOST_SHARED, multiprocessors, true}},
            seed++);
    check_gemm(results,
        {{TYPE_Q4_0}, {72}, 1536, 300, 384, 0, true, true, true, 0, 0, false, {MOST_SHARED, 9, true}},
        seed++);
}

inline void check_gemms(checks &results)
{
    const std::vector<enum tensor_type> types = {TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0, TYPE_Q5_1, TYPE_Q8_0,
        TYPE_IQ4_NL, TYPE_MXFP4, TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_XS, TYPE_F16,
        TYPE_BF16, TYPE_F32};
    const bool full = ON_DEVICE;
    uint64_t seed = 1;
    if (has_kernel((const void *)salvo_gemm_halves_64)) {
        check_wide_gemms(results, 1000);
        check_split_gemms(results, 2000);
        check_thin_gemms(results, 3000);
        check_gemm_choices(results);
    }
    for (enum tensor_type type : types) {
        const bool large = tensor_type_info(type)->block_elements == 256;
        check_gemm(results, {{type}, {40}, large ? 512u : 288u, 9, 16}, seed++);
        check_gemm(results, {{type}, {33}, large ? 768u : 416u, 70, 80, 0, true}, seed++);
        check_gemm(results, {{type, type}, {24, 24}, 256, 5, 8, ACTIVATION_SILU, true}, seed++);
        check_gemm(results, {{type, type}, {40, 40}, 256, 35, 40, ACTIVATION_GELU}, seed++);
        check_gemm(results, {{type}, {35}, 2048, 70, 256, 0, false, true}, seed++);
        check_gemm(results, {{type, type}, {40, 40}, 256, 70, 256, ACTIVATION_SILU}, seed++);
        for (uint32_t tokens : {1, 2, 7, 8, 16, 17, 31, 33, 63, 64, 65, 127, 200}) {
            for (uint32_t rows : {1, 8, 31, 100, 130, 576}) {
                for (uint32_t columns : {256, 768, 2048}) {
                    if (!full)
                        continue;
                    const uint32_t capacity = tokens <= 16 ? 16 : 256;
                    check_gemm(results, {{type}, {rows}, columns, tokens, capacity, 0, true, tokens % 2 == 0},
                        seed++);
                }
            }
        }
    }
    /* Floats need no whole groups. */
    for (enum tensor_type type : {TYPE_F16, TYPE_BF16, TYPE_F32}) {
        check_gemm(results, {{type}, {17}, 100, 6, 16}, seed++);
        check_gemm(results, {{type}, {17}, 333, 20, 40}, seed++);
    }
    /* Several at once, of several types. */
    check_gemm(results, {{TYPE_Q4_K, TYPE_Q6_K, TYPE_Q4_0, TYPE_Q2_K}, {40, 72, 8, 33}, 512, 13, 16}, seed++);
    check_gemm(results, {{TYPE_Q8_0, TYPE_Q5_K}, {64, 17}, 512, 13, 16}, seed++);
    check_gemm(results, {{TYPE_Q4_K, TYPE_Q6_K, TYPE_Q8_0}, {40, 72, 8}, 256, 33, 64, 0, true, true}, seed++);
    check_gemm(results, {{TYPE_F32, TYPE_BF16}, {40, 72}, 200, 18, 32, 0, true, true}, seed++);
    /* Inputs of different lengths, more and fewer parts than a block has pairs of warps. */
    for (enum tensor_type type : {TYPE_F16, TYPE_BF16, TYPE_F32}) {
        check_gemm(results,
            {{type, type, type, type}, {40, 72, 33, 8}, 0, 21, 40, 0, true, true, false, ACTIVATION_TANH, 0,
                false, {MOST_SHARED, 1}, {64, 1200, 100, 320}},
            seed++);
        check_gemm(results,
            {{type, type}, {40, 72}, 0, 70, 256, 0, false, false, false, 0, 0, false, {MOST_SHARED, 1},
                {900, 96}},
            seed++);
    }
    /* Activations, softcap, bias and addition after the sum. */
    for (uint32_t activation = ACTIVATION_TANH; activation < ACTIVATION_COUNT; activation++)
        check_gemm(results, {{TYPE_Q8_0}, {40}, 128, 3, 16, 0, true, false, false, activation}, seed++);
    check_gemm(results, {{TYPE_Q8_0}, {40}, 128, 3, 16, 0, false, false, false, 0, 1.5f}, seed++);
    check_gemm(results, {{TYPE_Q8_0}, {40}, 128, 3, 16, 0, true, true, true}, seed++);
    check_gemm(results, {{TYPE_F16}, {40}, 128, 20, 32, 0, true, true, true}, seed++);
    /* More blocks than there would be with many tokens per block. */
    check_gemm(results,
        {{TYPE_Q4_0}, {40}, 800, 70, 256, 0, true, false, false, 0, 0, false, {MOST_SHARED, 30}}, seed++);
    /* Blocks with less shared memory have fewer warps. */
    check_gemm(results,
        {{TYPE_Q4_1}, {40}, 800, 70, 256, 0, true, false, false, 0, 0, false, {LITTLE_SHARED, 1}}, seed++);
    check_gemm(results,
        {{TYPE_Q4_0, TYPE_Q4_0}, {40, 40}, 800, 70, 256, ACTIVATION_SILU, false, false, false, 0, 0, false,
            {LITTLE_SHARED, 1}},
        seed++);
    for (enum tensor_type type : {TYPE_Q4_0, TYPE_F32}) {
        for (uint32_t tokens : {5, 40, 70}) {
            const uint32_t capacity = tokens * 4;
            check_gemm(results,
                {{type}, {128}, 128, tokens, capacity, 0, false, false, false, ACTIVATION_RELU_SQUARED, 0,
                    true},
                seed++);
            check_gemm(results,
                {{type, type}, {256, 256}, 128, tokens, capacity, ACTIVATION_SILU, false, false, false, 0, 0,
                    true},
                seed++);
        }
    }
}

#if ON_DEVICE
inline void time_gemm(const char *what, const std::vector<enum tensor_type> &types,
    const std::vector<uint32_t> &rows, uint32_t columns, uint32_t tokens, uint32_t capacity, bool glu)
{
    numbers random(7);
    test_machine machine({{0, 0, tokens}}, 1, capacity, 1);
    const uint32_t rounding = rounding_of(types[0], has_kernel((const void *)salvo_gemm_halves_64));
    const test_packed_input x(rounding, random.vector((size_t)tokens * columns), tokens, capacity, columns,
        (uint32_t)EARLY_POSITIONS, has_kernel((const void *)salvo_gemm_halves_64));
    std::vector<test_matrix *> matrices;
    cuda_gemm gemm = {};
    gemm.token_rows = machine.token_rows();
    gemm.count = (uint32_t)types.size();
    gemm.glu = glu ? ACTIVATION_SILU : ACTIVATION_NONE;
    gemm.rows = ROWS_TOKENS;
    double bytes = 0, products = 0;
    std::vector<device_array<float> *> outs;
    for (size_t i = 0; i < types.size(); i++) {
        const uint32_t tile_rows = (rows[i] + 7) / 8;
        matrices.push_back(new test_matrix(random, types[i], rows[i], columns, (tile_rows + 131) / 132));
        outs.push_back(new device_array<float>((size_t)capacity * rows[i]));
        gemm.inputs[i] = x.packed_input;
        gemm.matmuls[i] = {matrices[i]->matrix, 0, outs[i]->address, ACTIVATION_NONE, 0, 0};
        bytes += (double)cuda_matrix_bytes(&matrices[i]->matrix);
        products += (double)rows[i] * columns * tokens;
    }
    const cuda_room room = {MOST_SHARED, 132, has_kernel((const void *)salvo_gemm_halves_64)};
    const cuda_launch launch = cuda_gemm_launch(&gemm, capacity, &room);
    const cuda_machine *device = machine.upload();
    launch_cluster() = gemm.splits;
    const double time =
        time_of([&] { launch_kernel(launch, find_gemm_kernel(launch.kernel), device, gemm); });
    launch_cluster() = 0;
    printf("%-44s T %4u of %4u  %8.2f us  %7.1f GB/s of weights  %7.2f TOPS  grid %u x %u of %s\n", what,
        tokens, capacity, time, bytes / time / 1e3, products * 2 / time / 1e6, launch.grid_x, launch.grid_y,
        launch.kernel);
    for (size_t i = 0; i < matrices.size(); i++) {
        delete matrices[i];
        delete outs[i];
    }
}

inline void time_gemms()
{
    const uint32_t counts[][2] = {{2, 16}, {8, 16}, {16, 16}, {64, 128}, {128, 128}, {256, 512}, {512, 512}};
    for (const auto &count : counts) {
        const uint32_t t = count[0], capacity = count[1];
        time_gemm("SmolLM-135M Q4_0 q, k, v", {TYPE_Q4_0, TYPE_Q4_0, TYPE_Q4_0}, {576, 192, 192}, 576, t,
            capacity, false);
        time_gemm("SmolLM-135M Q4_0 o", {TYPE_Q4_0}, {576}, 576, t, capacity, false);
        time_gemm("SmolLM-135M Q4_0 gate, up", {TYPE_Q4_0, TYPE_Q4_0}, {1536, 1536}, 576, t, capacity, true);
        time_gemm("SmolLM-135M Q4_0 down", {TYPE_Q4_0}, {576}, 1536, t, capacity, false);
        time_gemm("SmolLM-135M Q4_1 gate, up", {TYPE_Q4_1, TYPE_Q4_1}, {1536, 1536}, 576, t, capacity, true);
        time_gemm("RWKV-7 0.1B Q4_K 768 x 768", {TYPE_Q4_K}, {768}, 768, t, capacity, false);
        time_gemm("RWKV-7 0.1B Q6_K 768 x 768", {TYPE_Q6_K}, {768}, 768, t, capacity, false);
        time_gemm("RWKV-7 0.1B Q4_K 3072 x 768", {TYPE_Q4_K}, {3072}, 768, t, capacity, false);
        time_gemm("RWKV-7 0.1B Q6_K 768 x 3072", {TYPE_Q6_K}, {768}, 3072, t, capacity, false);
        time_gemm("RWKV-7 0.1B F32 64 x 768", {TYPE_F32}, {64}, 768, t, capacity, false);
        time_gemm("RWKV-7 0.1B F32 768 x 64", {TYPE_F32}, {768}, 64, t, capacity, false);
        time_gemm("Llama-1B Q4_0 gate, up", {TYPE_Q4_0, TYPE_Q4_0}, {8192, 8192}, 2048, t, capacity, true);
        time_gemm("Llama-1B Q4_0 down", {TYPE_Q4_0}, {2048}, 8192, t, capacity, false);
        time_gemm("Llama-1B F16 q, k, v", {TYPE_F16, TYPE_F16, TYPE_F16}, {2048, 512, 512}, 2048, t, capacity,
            false);
        time_gemm("Llama-1B F16 o", {TYPE_F16}, {2048}, 2048, t, capacity, false);
        time_gemm("Llama-1B F16 down", {TYPE_F16}, {2048}, 8192, t, capacity, false);
        time_gemm("Llama-1B F16 gate, up", {TYPE_F16, TYPE_F16}, {8192, 8192}, 2048, t, capacity, true);
        time_gemm("49152 x 576 Q8_0", {TYPE_Q8_0}, {49152}, 576, t, capacity, false);
    }
}
#endif

#endif

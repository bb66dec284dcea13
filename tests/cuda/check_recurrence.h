/* The recurrence of RWKV-7 over many tokens. */
#ifndef TESTS_CUDA_CHECK_RECURRENCE_H
#define TESTS_CUDA_CHECK_RECURRENCE_H

#include "cuda/check_device.h"

typedef void wkv7_kernel(const cuda_machine *, const cuda_wkv7_many);

#define WKV7_KERNELS(X) \
    X(salvo_wkv7_64) X(salvo_wkv7_128) X(salvo_wkv7_256) X(salvo_wkv7_prepare) X(salvo_wkv7_chunks)

#define DECLARE(name) \
    extern "C" __global__ void name(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_many wkv7);
WKV7_KERNELS(DECLARE)
#undef DECLARE

inline wkv7_kernel *find_wkv7_kernel(const char *name)
{
#define FIND(kernel)            \
    if (!strcmp(name, #kernel)) \
        return kernel;
    WKV7_KERNELS(FIND)
#undef FIND
    printf("no kernel %s\n", name);
    exit(2);
}

/* r, w, k, v, kk, a as models make them: w between 0.545 and 1, kk of length 1 in every head, a between 0
 * and 1. */
inline std::vector<std::vector<float>> recurrence_inputs(
    numbers &random, uint32_t tokens, uint32_t heads, uint32_t head_dim)
{
    const size_t count = (size_t)tokens * heads * head_dim;
    std::vector<std::vector<float>> in(6);
    for (int i = 0; i < 6; i++)
        in[i] = random.vector(count, i == 2 || i == 3 ? 0.5f : 1);
    for (size_t i = 0; i < count; i++) {
        in[1][i] = std::exp(-0.60653066f / (1 + std::exp(-in[1][i])));
        in[5][i] = 1 / (1 + std::exp(-in[5][i]));
    }
    for (size_t i = 0; i < count; i += head_dim) {
        float sum = 0;
        for (uint32_t j = 0; j < head_dim; j++)
            sum += in[4][i + j] * in[4][i + j];
        for (uint32_t j = 0; j < head_dim; j++)
            in[4][i + j] /= std::sqrt(sum);
    }
    return in;
}

/* One head of a run; the state is replaced. `spread`: per token the largest root of the sum of squares of the
 * products that a result adds. */
inline void reference_wkv7(const std::vector<std::vector<float>> &in, size_t first, uint32_t row,
    uint32_t tokens, uint32_t head_dim, std::vector<double> &state, std::vector<double> &out,
    std::vector<double> &spread)
{
    out.assign((size_t)tokens * head_dim, 0);
    spread.assign(tokens, 0);
    for (uint32_t t = 0; t < tokens; t++) {
        const size_t at = first + (size_t)t * row;
        for (uint32_t i = 0; i < head_dim; i++) {
            double removed = 0, sum = 0, squares = 0;
            for (uint32_t j = 0; j < head_dim; j++)
                removed += state[j * head_dim + i] * in[4][at + j];
            for (uint32_t j = 0; j < head_dim; j++) {
                double &s = state[j * head_dim + i];
                s = s * in[1][at + j] - removed * ((double)in[4][at + j] * in[5][at + j]) +
                    (double)in[3][at + i] * in[2][at + j];
                const double product = s * in[0][at + j];
                sum += product;
                squares += product * product;
            }
            out[(size_t)t * head_dim + i] = sum;
            spread[t] = std::fmax(spread[t], std::sqrt(squares));
        }
    }
}

inline void launch_wkv7(const cuda_launch &launch, const cuda_machine *device, const cuda_wkv7_many &wkv7)
{
    launch_kernel(launch, find_wkv7_kernel(launch.kernel), device, wkv7);
}

/* Token by token or in chunks; `steep`: one decay in 50 is next to nothing; `at_once`: runs with blocks of
 * their own. */
struct wkv7_form {
    bool chunks = false, steep = false;
    uint32_t at_once = 5;
};

inline void check_wkv7(checks &results, const std::vector<test_run> &runs, uint32_t heads, uint32_t head_dim,
    uint64_t seed, wkv7_form form = {})
{
    numbers random(seed);
    const uint32_t slots = 5, row = heads * head_dim, state_at = 24;
    const size_t state_size = (size_t)heads * head_dim * head_dim, elements = state_at + state_size + 8;
    test_machine machine(runs, slots, 4096, 1);
    const std::vector<float> states = random.vector(slots * 2 * elements, 0.3f);
    const device_array<float> state_array(states);
    std::vector<std::vector<float>> in = recurrence_inputs(random, machine.tokens, heads, head_dim);
    for (size_t i = 0; form.steep && i < in[1].size(); i++)
        in[1][i] = random.below(50) ? in[1][i] : i % 2 ? 0 : 1e-12f;
    const uint32_t capacity = machine.tokens + 20;
    const device_array<float> out_array((size_t)capacity * row);
    std::vector<device_array<float> *> in_arrays;
    cuda_wkv7_many wkv7 = {};
    for (int i = 0; i < 6; i++) {
        in_arrays.push_back(new device_array<float>(in[i]));
        wkv7.in[i] = in_arrays[i]->address;
    }
    wkv7.out = out_array.address;
    wkv7.state = state_at;
    wkv7.heads = heads;
    wkv7.head_dim = head_dim;
    machine.machine.recurrent = state_array.address;
    machine.machine.recurrent_elements = elements;
    std::vector<cuda_slot> slot_states(slots);
    for (uint32_t i = 0; i < slots; i++)
        slot_states[i].version = i % 2;
    device_put(machine.machine.slot_states, slot_states.data(), slots * sizeof(cuda_slot));
    const device_array<uint8_t> chunks(cuda_wkv7_chunk_bytes(&wkv7, capacity, slots));
    wkv7.chunks = chunks.address;
    const cuda_machine *device = machine.upload();
    if (form.chunks) {
        launch_wkv7(cuda_wkv7_prepare_launch(&wkv7, capacity, slots), device, wkv7);
        launch_wkv7(cuda_wkv7_chunks_launch(&wkv7, form.at_once), device, wkv7);
    } else {
        launch_wkv7(cuda_wkv7_launch(&wkv7, slots), device, wkv7);
    }
    device_wait();
    const std::vector<float> out = out_array.get(), after = state_array.get();

    double worst = 0;
    bool whole = out_array.guard_is_whole() && state_array.guard_is_whole() && chunks.guard_is_whole();
    std::vector<float> expected = states; /* what must not change */
    for (size_t i = 0, first = 0; i < runs.size(); first += runs[i++].count) {
        const uint32_t slot = runs[i].slot, version = slot % 2;
        const size_t before = ((size_t)slot * 2 + version) * elements + state_at,
                     behind = ((size_t)slot * 2 + 1 - version) * elements + state_at;
        for (uint32_t head = 0; head < heads; head++) {
            const size_t part = (size_t)head * head_dim * head_dim;
            std::vector<double> state(head_dim * head_dim, 0), reference, spread;
            for (size_t j = 0; runs[i].first && j < state.size(); j++)
                state[j] = states[before + part + j];
            reference_wkv7(
                in, first * row + head * head_dim, row, runs[i].count, head_dim, state, reference, spread);
            for (uint32_t t = 0; t < runs[i].count; t++)
                worst = std::fmax(worst, row_error(&out[(first + t) * row + head * head_dim],
                                             &reference[(size_t)t * head_dim], head_dim, spread[t]));
            worst = std::fmax(worst, row_error(&after[behind + part], state.data(), state.size()));
        }
        memcpy(&expected[behind], &after[behind], state_size * 4);
    }
    whole &= !memcmp(expected.data(), after.data(), after.size() * 4);
    for (size_t i = (size_t)machine.tokens * row; i < out.size(); i++)
        whole &= is_poison(out[i]);
    std::string name = "wkv7 " + std::to_string(heads) + " heads of " + std::to_string(head_dim) + ", runs";
    for (const test_run &run : runs)
        name += " " + std::to_string(run.first) + "+" + std::to_string(run.count);
    name += std::string(form.chunks ? " in chunks" : "") + (form.steep ? ", steep" : "");
    results.report(name, worst < 2e-5 && whole, worst, whole ? "" : "wrote where it must not");
    for (device_array<float> *array : in_arrays)
        delete array;
}

inline void check_recurrences(checks &results)
{
    uint64_t seed = 2000;
    check_wkv7(results, {{0, 0, 20}}, 2, 64, seed++);
    check_wkv7(results, {{1, 5, 3}, {4, 0, 17}, {2, 9, 1}}, 2, 64, seed++);
    check_wkv7(results, {{3, 5, 33}}, 1, 24, seed++);
    check_wkv7(results, {{3, 5, 16}}, 3, 8, seed++);
    check_wkv7(results, {{0, 5, 5}, {1, 0, 2}}, 1, 128, seed++);
    check_wkv7(results, {{0, 5, 5}}, 1, 96, seed++);
    check_wkv7(results, {{0, 5, 2}}, 1, 256, seed++);
    for (bool steep : {false, true}) {
        check_wkv7(results, {{0, 0, 20}}, 2, 64, seed++, {true, steep});
        check_wkv7(results, {{1, 5, 3}, {4, 0, 49}, {2, 9, 1}, {3, 4, 16}}, 2, 64, seed++, {true, steep});
        check_wkv7(results, {{1, 5, 15}, {4, 0, 65}, {2, 9, 1}, {3, 4, 17}, {0, 3, 63}}, 1, 64, seed++,
            {true, steep, 1});
    }
    if (ON_DEVICE) {
        for (uint32_t count : {1, 2, 15, 16, 17, 32, 100, 512}) {
            check_wkv7(results, {{0, 0, count}, {1, 7, count / 2 + 1}}, 12, 64, seed++);
            check_wkv7(results, {{0, 0, count}, {1, 7, count / 2 + 1}}, 12, 64, seed++, {true, false});
        }
    }
}

#if ON_DEVICE
inline void time_recurrences()
{
    for (uint32_t tokens : {64, 512}) {
        for (uint32_t heads : {12, 16, 32}) {
            numbers random(5);
            const uint32_t head_dim = 64;
            const size_t elements = (size_t)heads * head_dim * head_dim;
            test_machine machine({{0, 0, tokens}}, 1, 4096, 1);
            const device_array<float> states(random.vector(2 * elements)),
                out((size_t)tokens * heads * head_dim);
            const std::vector<std::vector<float>> in = recurrence_inputs(random, tokens, heads, head_dim);
            std::vector<device_array<float> *> arrays;
            cuda_wkv7_many wkv7 = {};
            for (int i = 0; i < 6; i++) {
                arrays.push_back(new device_array<float>(in[i]));
                wkv7.in[i] = arrays[i]->address;
            }
            wkv7.out = out.address;
            wkv7.heads = heads;
            wkv7.head_dim = head_dim;
            machine.machine.recurrent = states.address;
            machine.machine.recurrent_elements = elements;
            const device_array<uint8_t> chunks(cuda_wkv7_chunk_bytes(&wkv7, tokens, 1));
            wkv7.chunks = chunks.address;
            const cuda_machine *device = machine.upload();
            const double time = time_of([&] { launch_wkv7(cuda_wkv7_launch(&wkv7, 1), device, wkv7); }),
                         in_chunks = time_of([&] {
                             launch_wkv7(cuda_wkv7_prepare_launch(&wkv7, tokens, 1), device, wkv7);
                             launch_wkv7(cuda_wkv7_chunks_launch(&wkv7, 1), device, wkv7);
                         });
            printf("%-44s T %4u  %8.2f us  in chunks %8.2f us\n",
                ("wkv7, " + std::to_string(heads) + " heads of 64").c_str(), tokens, time, in_chunks);
            for (device_array<float> *array : arrays)
                delete array;
        }
    }
}
#endif

#endif

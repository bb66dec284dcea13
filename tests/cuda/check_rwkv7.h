/* Row ops of RWKV-7 for many tokens: norm, token shift and lerps; the ops before and after the recurrence. */
#ifndef TESTS_CUDA_CHECK_RWKV7_H
#define TESTS_CUDA_CHECK_RWKV7_H

#include "cuda/check_device.h"

#include <algorithm>
#include <memory>

extern "C" __global__ void salvo_rwkv7_mix(const cuda_machine *machine, const __grid_constant__ cuda_mix mix);
extern "C" __global__ void salvo_rwkv7_inputs(
    const cuda_machine *machine, const __grid_constant__ cuda_wkv7_inputs inputs);
extern "C" __global__ void salvo_rwkv7_results(
    const cuda_machine *machine, const __grid_constant__ cuda_wkv7_results results);

enum test_norm { TEST_NORM_NONE, TEST_NORM_RMS, TEST_NORM_LAYER };

inline std::vector<double> reference_norm(
    const float *x, uint32_t columns, test_norm norm, double epsilon, const float *weight, const float *bias)
{
    std::vector<double> out(x, x + columns);
    double mean = 0, squares = 0;
    if (norm == TEST_NORM_NONE)
        return out;
    for (uint32_t i = 0; i < columns && norm == TEST_NORM_LAYER; i++)
        mean += out[i] / columns;
    for (uint32_t i = 0; i < columns; i++)
        squares += (out[i] - mean) * (out[i] - mean);
    const double scale = 1 / std::sqrt(squares / columns + epsilon);
    for (uint32_t i = 0; i < columns; i++)
        out[i] = (out[i] - mean) * scale * weight[i] + (norm == TEST_NORM_LAYER ? bias[i] : 0);
    return out;
}

/* A packed input in memory of its own, poisoned. */
struct test_packed {
    device_array<uint8_t> memory;
    cuda_packed_input input;

    test_packed(uint32_t rounding, uint32_t columns, uint32_t capacity, bool grouped, bool fine)
        : memory(cuda_packed_input_bytes(rounding, columns, capacity)),
          input(cuda_packed_input_at(rounding, columns, capacity, memory.address))
    {
        input.grouped = grouped && rounding == ROUNDING_F16 ? (capacity + 7) / 8 * 8 : 0;
        input.fine = fine;
    }

    /* Poisoned again. */
    void clear() const
    {
        const std::vector<uint8_t> poison(memory.get().size(), 0xff);
        device_put(memory.address, poison.data(), poison.size());
    }

    bool is_right(uint32_t row, uint32_t columns, const float *values, bool early) const
    {
        return packed_input_is_right(
            input, memory.get(), memory.address, row, columns, values, input.fine || early);
    }

    /* Values of rows that no kernel writes. */
    bool is_untouched(uint32_t row) const
    {
        const std::vector<uint8_t> bytes = memory.get();
        bool good = true;
        for (uint32_t i = 0; i < input.columns; i++) {
            const uint64_t at = (uint64_t)row * input.columns + i;
            if (input.rounding == ROUNDING_F16)
                good &= read_packed_input<uint16_t>(bytes, half_place(input, row, i) * 2) == 0xffff;
            else if (input.rounding == ROUNDING_F32)
                good &= is_poison(read_packed_input<float>(bytes, at * 4));
            else
                good &= bytes[at] == 0xff;
        }
        return good;
    }
};

struct mix_form {
    test_norm norm = TEST_NORM_LAYER;
    uint32_t lerps = MIX_LERPS;
    uint32_t rounding = ROUNDING_F16;
    bool grouped = false;
    bool one_block = false; /* for all lerps of a row */
    bool fine = false;      /* every second one */
};

/* Once more, storing no rows but those that are not rounded, as most layers do: the same rounded rows and
 * states. */
inline bool mixes_alike_without_rows(cuda_mix mix, const cuda_launch &launch, const cuda_machine *device,
    const device_array<float> &states, const std::vector<float> &before,
    const std::vector<std::unique_ptr<test_packed>> &packed)
{
    const std::vector<float> after = states.get();
    std::vector<std::vector<uint8_t>> rounded;
    mix.out = mix.before = 0;
    for (uint32_t i = 0; i < mix.count; i++) {
        rounded.push_back(packed[i]->memory.get());
        packed[i]->clear();
        if (mix.lerps[i].packed.values)
            mix.lerps[i].out = 0;
    }
    device_put(states.address, before.data(), before.size() * sizeof(float));
    launch_kernel(launch, salvo_rwkv7_mix, device, mix);
    device_wait();
    bool same = !memcmp(states.get().data(), after.data(), after.size() * sizeof(float));
    for (uint32_t i = 0; i < mix.count; i++)
        same &= packed[i]->memory.get() == rounded[i] && packed[i]->memory.guard_is_whole();
    return same;
}

/* The run `dead` has no rows: it does not begin at its slot's next position. */
inline void check_mix(
    checks &results, const std::vector<test_run> &runs, uint32_t columns, uint64_t seed, mix_form form)
{
    numbers random(seed);
    const uint32_t slots = 6, state_at = 24, dead = runs.size() > 2 ? 1 : UINT32_MAX;
    const size_t elements = state_at + columns + 8;
    test_machine machine(runs, slots, 4096, 1);
    if (dead < runs.size())
        machine.run_at(dead)->count = 0;
    const uint32_t capacity = machine.tokens + 2;
    std::vector<float> x = random.vector((size_t)capacity * columns, 1.5f);
    for (float &value : x)
        value += 0.7f; /* a mean */
    const std::vector<float> weight = random.vector(columns), bias = random.vector(columns),
                             states = random.vector(slots * 2 * elements);
    const device_array<float> x_array(x), weight_array(weight), bias_array(bias), state_array(states),
        out_array((size_t)capacity * columns), before_array((size_t)capacity * columns);
    std::vector<std::vector<float>> shares;
    std::vector<std::unique_ptr<device_array<float>>> share_arrays, outs;
    std::vector<std::unique_ptr<test_packed>> packed;
    cuda_mix mix = {};
    mix.x = x_array.address;
    mix.weight = form.norm == TEST_NORM_NONE ? 0 : weight_array.address;
    mix.bias = form.norm == TEST_NORM_LAYER ? bias_array.address : 0;
    mix.out = out_array.address;
    mix.before = form.lerps ? before_array.address : 0;
    mix.state = state_at;
    mix.columns = columns;
    mix.count = form.lerps;
    mix.epsilon = 1e-5f;
    for (uint32_t i = 0; i < form.lerps; i++) {
        shares.push_back(random.vector(columns));
        share_arrays.push_back(std::make_unique<device_array<float>>(shares[i]));
        outs.push_back(std::make_unique<device_array<float>>((size_t)capacity * columns));
        packed.push_back(std::make_unique<test_packed>(
            form.rounding, columns, capacity, form.grouped, form.fine && i % 2));
        mix.lerps[i].weight = share_arrays[i]->address;
        mix.lerps[i].out = outs[i]->address;
        if (i != 1) /* it is only stored */
            mix.lerps[i].packed = packed[i]->input;
    }
    machine.machine.recurrent = state_array.address;
    machine.machine.recurrent_elements = elements;
    std::vector<cuda_slot> slot_states(slots);
    for (uint32_t i = 0; i < slots; i++)
        slot_states[i].version = i % 2;
    device_put(machine.machine.slot_states, slot_states.data(), slots * sizeof(cuda_slot));
    const cuda_machine *device = machine.upload();
    cuda_launch launch = cuda_mix_launch(&mix, capacity);
    if (form.one_block)
        launch.grid_y = mix.blocks = 1;
    launch_kernel(launch, salvo_rwkv7_mix, device, mix);
    device_wait();

    const std::vector<float> out = out_array.get(), before = before_array.get(), after = state_array.get();
    std::vector<std::vector<float>> mixed;
    for (const auto &array : outs)
        mixed.push_back(array->get());
    std::vector<float> expected = states; /* what must not change */
    bool good = out_array.guard_is_whole() && before_array.guard_is_whole() && state_array.guard_is_whole();
    double worst = 0;
    const auto check_dead = [&](uint32_t row) {
        for (uint32_t i = 0; i < columns; i++) {
            good &= is_poison(out[(size_t)row * columns + i]) && is_poison(before[(size_t)row * columns + i]);
            for (uint32_t j = 0; j < form.lerps; j++)
                good &= is_poison(mixed[j][(size_t)row * columns + i]);
        }
        for (uint32_t j = 0; j < form.lerps; j++)
            good &= packed[j]->is_untouched(row);
    };
    uint32_t row = 0;
    for (size_t i = 0; i < runs.size(); i++) {
        const uint32_t slot = runs[i].slot, version = slot % 2;
        const size_t old_state = ((size_t)slot * 2 + version) * elements + state_at,
                     new_state = ((size_t)slot * 2 + 1 - version) * elements + state_at;
        std::vector<double> last(columns, 0);
        for (uint32_t j = 0; runs[i].first && j < columns; j++)
            last[j] = states[old_state + j];
        for (uint32_t t = 0; t < runs[i].count; t++, row++) {
            if (i == dead) {
                check_dead(row);
                continue;
            }
            const size_t at = (size_t)row * columns;
            const std::vector<double> normed =
                reference_norm(&x[at], columns, form.norm, mix.epsilon, weight.data(), bias.data());
            worst = std::fmax(worst, row_error(&out[at], normed.data(), columns));
            if (form.lerps)
                worst = std::fmax(worst, row_error(&before[at], last.data(), columns));
            for (uint32_t j = 0; j < form.lerps; j++) {
                std::vector<double> reference(columns);
                for (uint32_t c = 0; c < columns; c++)
                    reference[c] = normed[c] + (last[c] - normed[c]) * shares[j][c];
                worst = std::fmax(worst, row_error(&mixed[j][at], reference.data(), columns));
                good &= mix.lerps[j].packed.values
                            ? packed[j]->is_right(row, columns, &mixed[j][at], machine.is_early(row))
                            : packed[j]->is_untouched(row);
            }
            last = normed;
            if (t + 1 == runs[i].count && form.lerps)
                memcpy(&expected[new_state], &out[at], columns * sizeof(float));
        }
    }
    for (; row < capacity; row++)
        check_dead(row);
    for (uint32_t j = 0; j < form.lerps; j++)
        good &= outs[j]->guard_is_whole() && packed[j]->memory.guard_is_whole();
    good &= !memcmp(expected.data(), after.data(), after.size() * sizeof(float));
    if (form.lerps)
        good &= mixes_alike_without_rows(mix, launch, device, state_array, states, packed);
    std::string name = "mix: norm " + std::to_string(form.norm) + ", " + std::to_string(columns) +
                       " columns, " + std::to_string(form.lerps) + " lerps, rounding " +
                       std::to_string(form.rounding) + (form.grouped ? " grouped" : "") +
                       (form.one_block ? ", one block" : "") + ", runs";
    for (const test_run &run : runs)
        name += " " + std::to_string(run.first) + "+" + std::to_string(run.count);
    results.report(name, worst < 2e-6 && good, worst, good ? "" : "rounding, or wrote where it must not");
}

/* Rows of the same length that a kernel reads. */
struct test_rows {
    std::vector<float> values;
    device_array<float> array;

    test_rows(numbers &random, size_t count) : values(random.vector(count)), array(values) {}

    void clear(size_t first, size_t count)
    {
        std::fill_n(values.begin() + first, count, 0);
        device_put(array.address, values.data(), values.size() * sizeof(float));
    }
};

inline void check_wkv7_inputs(
    checks &results, uint32_t rows, uint32_t heads, uint32_t head_dim, bool mixes, uint64_t seed)
{
    numbers random(seed);
    const uint32_t columns = heads * head_dim, capacity = rows + 2;
    const size_t size = (size_t)capacity * columns;
    test_machine machine({{0, 3, rows}}, 1, 4096, 1);
    test_rows k(random, size);
    const test_rows a(random, size), v(random, size), first(random, size), share(random, size),
        direction(random, columns), to_key(random, columns);
    k.clear(head_dim, head_dim); /* the second head of the first row has no direction */
    const device_array<float> kk(size), key(size), value(size);
    cuda_wkv7_inputs inputs = {};
    inputs.k = k.array.address;
    inputs.a = a.array.address;
    inputs.v = mixes ? v.array.address : 0;
    inputs.first = first.array.address;
    inputs.share = share.array.address;
    inputs.direction_weight = direction.array.address;
    inputs.key_weight = to_key.array.address;
    inputs.kk = kk.address;
    inputs.key = key.address;
    inputs.value = value.address;
    inputs.columns = columns;
    inputs.head_dim = head_dim;
    inputs.epsilon = 1e-12f;
    launch_kernel(cuda_wkv7_inputs_launch(&inputs, capacity), salvo_rwkv7_inputs, machine.upload(), inputs);
    device_wait();
    const std::vector<float> got[] = {kk.get(), key.get(), value.get()};
    bool good = kk.guard_is_whole() && key.guard_is_whole() && value.guard_is_whole();
    double worst = 0;
    for (uint32_t head = 0; head < capacity * heads; head++) {
        const size_t at = (size_t)head * head_dim;
        const uint32_t column = head % heads * head_dim;
        std::vector<double> reference[3];
        double squares = 0;
        for (uint32_t i = 0; i < head_dim; i++)
            squares += std::pow((double)k.values[at + i] * direction.values[column + i], 2);
        for (uint32_t i = 0; i < head_dim; i++) {
            const size_t j = at + i;
            reference[0].push_back(
                k.values[j] * (double)direction.values[column + i] / std::fmax(std::sqrt(squares), 1e-12));
            reference[1].push_back(k.values[j] * ((a.values[j] - 1.0) * to_key.values[column + i] + 1));
            reference[2].push_back(v.values[j] + ((double)first.values[j] - v.values[j]) * share.values[j]);
        }
        for (int which = 0; which < 3; which++) {
            if (head < rows * heads && (which < 2 || mixes)) {
                worst = std::fmax(worst, row_error(&got[which][at], reference[which].data(), head_dim));
                continue;
            }
            for (uint32_t i = 0; i < head_dim; i++)
                good &= is_poison(got[which][at + i]);
        }
    }
    results.report("wkv7 inputs: " + std::to_string(rows) + " rows, " + std::to_string(heads) + " heads of " +
                       std::to_string(head_dim) + (mixes ? ", values mixed" : ""),
        worst < 1e-6 && good, worst, good ? "" : "wrote where it must not");
}

struct results_form {
    bool norm = true, gate = true, in_place = true;
    uint32_t rounding = ROUNDING_F16;
    bool grouped = false, fine = false;
};

inline void check_wkv7_results(checks &results, const std::vector<test_run> &runs, uint32_t heads,
    uint32_t head_dim, uint64_t seed, results_form form)
{
    numbers random(seed);
    test_machine machine(runs, 6, 4096, 1);
    const uint32_t columns = heads * head_dim, rows = machine.tokens, capacity = rows + 2;
    const size_t size = (size_t)capacity * columns;
    const test_rows y(random, size), r(random, size), key(random, size), value(random, size),
        gate(random, size), weight(random, columns), bias(random, columns), bonus(random, columns);
    const device_array<float> out(size);
    const test_packed packed(form.rounding, columns, capacity, form.grouped, form.fine);
    cuda_wkv7_results work = {};
    work.token_rows = machine.token_rows();
    work.y = y.array.address;
    work.r = r.array.address;
    work.key = key.array.address;
    work.value = value.array.address;
    work.gate = form.gate ? gate.array.address : 0;
    work.weight = form.norm ? weight.array.address : 0;
    work.bias = form.norm ? bias.array.address : 0;
    work.bonus_weight = bonus.array.address;
    work.out = form.in_place ? y.array.address : out.address;
    work.packed = packed.input;
    work.columns = columns;
    work.head_dim = head_dim;
    work.epsilon = 64e-5f;
    launch_kernel(cuda_wkv7_results_launch(&work, capacity), salvo_rwkv7_results, machine.upload(), work);
    device_wait();
    const std::vector<float> got = form.in_place ? y.array.get() : out.get();
    bool good = y.array.guard_is_whole() && out.guard_is_whole() && packed.memory.guard_is_whole();
    double worst = 0;
    for (uint32_t row = 0; row < capacity; row++) {
        for (uint32_t at = row * columns; at < (row + 1) * columns; at += head_dim) {
            const uint32_t column = at % columns;
            double sum = 0, spread = 0;
            std::vector<double> reference =
                reference_norm(&y.values[at], head_dim, form.norm ? TEST_NORM_LAYER : TEST_NORM_NONE,
                    work.epsilon, &weight.values[column], &bias.values[column]);
            for (uint32_t i = 0; i < head_dim; i++) {
                const double product =
                    (double)r.values[at + i] * key.values[at + i] * bonus.values[column + i];
                sum += product;
                spread += product * product;
            }
            for (uint32_t i = 0; i < head_dim; i++) {
                reference[i] += sum * value.values[at + i];
                reference[i] *= form.gate ? gate.values[at + i] : 1;
            }
            if (row < rows)
                worst = std::fmax(worst, row_error(&got[at], reference.data(), head_dim, std::sqrt(spread)));
            for (uint32_t i = 0; i < head_dim && row >= rows; i++)
                good &= form.in_place ? got[at + i] == y.values[at + i] : is_poison(got[at + i]);
        }
        if (row >= rows)
            good &= packed.is_untouched(row);
        else
            good &= packed.is_right(row, columns, &got[(size_t)row * columns], machine.is_early(row));
    }
    /* Once more, storing no rows, as most layers do: the same rounded rows. */
    const std::vector<uint8_t> rounded = packed.memory.get();
    packed.clear();
    device_put(y.array.address, y.values.data(), size * sizeof(float));
    work.out = 0;
    launch_kernel(cuda_wkv7_results_launch(&work, capacity), salvo_rwkv7_results, machine.upload(), work);
    device_wait();
    good &= packed.memory.get() == rounded && packed.memory.guard_is_whole() && y.array.get() == y.values;
    results.report("wkv7 results: " + std::to_string(rows) + " rows, " + std::to_string(heads) +
                       " heads of " + std::to_string(head_dim) + ", rounding " +
                       std::to_string(form.rounding) + (form.grouped ? " grouped" : "") +
                       (form.norm ? "" : ", no norm") + (form.gate ? "" : ", no gate"),
        worst < 2e-6 && good, worst, good ? "" : "rounding, or wrote where it must not");
}

inline void check_rwkv7_rows(checks &results)
{
    uint64_t seed = 7000;
    const std::vector<test_run> decoding = {{2, 9, 1}, {0, 300, 1}, {5, 0, 1}, {3, 4, 1}, {1, 2, 1}},
                                prompts = {{1, 0, 5}, {4, 7, 3}, {0, 298, 6}, {2, 0, 1}, {3, 12, 2}};
    for (uint32_t rounding : {ROUNDING_Q8, ROUNDING_F16, ROUNDING_F32}) {
        for (const std::vector<test_run> &runs : {decoding, prompts}) {
            check_mix(results, runs, 192, seed++, {TEST_NORM_LAYER, 6, rounding});
            check_mix(results, runs, 132, seed++, {TEST_NORM_RMS, 3, rounding, false, true, true});
            check_mix(results, runs, 64, seed++, {TEST_NORM_NONE, 1, rounding, false, false, true});
            check_mix(results, runs, 260, seed++, {TEST_NORM_LAYER, 6, rounding, true, true});
        }
    }
    check_mix(results, prompts, 768, seed++, {TEST_NORM_LAYER, 4, ROUNDING_F16, true, false});
    check_mix(results, {{0, 5, 2}}, 4096, seed++, {TEST_NORM_LAYER, 2, ROUNDING_F16, true, false});
    check_mix(results, prompts, 200, seed++, {TEST_NORM_LAYER, 0});
    check_mix(results, prompts, 200, seed++, {TEST_NORM_RMS, 0});
    for (uint32_t head_dim : {8, 16, 32, 64, 128}) {
        check_wkv7_inputs(results, 3, 3, head_dim, true, seed++);
        check_wkv7_results(results, prompts, 3, head_dim, seed++, {});
    }
    check_wkv7_inputs(results, 2, 12, 64, false, seed++);
    for (uint32_t rounding : {ROUNDING_Q8, ROUNDING_F16, ROUNDING_F32}) {
        check_wkv7_results(results, prompts, 5, 64, seed++, {true, true, false, rounding});
        check_wkv7_results(results, decoding, 6, 32, seed++, {false, true, true, rounding, false, true});
        check_wkv7_results(results, prompts, 3, 64, seed++, {true, false, true, rounding, true});
        check_wkv7_results(results, decoding, 12, 64, seed++, {true, true, false, rounding});
    }
}

#if ON_DEVICE
/* As in a layer of a model with heads of 64. */
inline void time_rwkv7_rows()
{
    for (uint32_t tokens : {16, 64, 512}) {
        for (uint32_t columns : {768, 2560}) {
            numbers random(5);
            std::vector<test_run> runs;
            for (uint32_t i = 0; i < (tokens > 64 ? 1 : tokens); i++)
                runs.push_back({i, 5, tokens > 64 ? tokens : 1});
            test_machine machine(runs, tokens, 1024, 1);
            const size_t size = (size_t)tokens * columns;
            const test_rows x(random, size), k(random, size), a(random, size), v(random, size),
                weights(random, columns);
            const device_array<float> states(random.vector((size_t)tokens * 2 * columns)), out(size),
                key(size), value(size);
            machine.machine.recurrent = states.address;
            machine.machine.recurrent_elements = columns;
            std::vector<std::unique_ptr<test_packed>> packed;
            cuda_mix mix = {};
            mix.x = x.array.address;
            mix.weight = mix.bias = weights.array.address;
            mix.columns = columns;
            mix.count = MIX_LERPS;
            for (uint32_t i = 0; i < MIX_LERPS; i++) {
                packed.push_back(std::make_unique<test_packed>(ROUNDING_F16, columns, tokens, true, false));
                mix.lerps[i].weight = weights.array.address;
                mix.lerps[i].packed = packed[i]->input;
            }
            cuda_wkv7_inputs inputs = {};
            inputs.k = k.array.address;
            inputs.a = a.array.address;
            inputs.v = inputs.first = inputs.share = v.array.address;
            inputs.direction_weight = inputs.key_weight = weights.array.address;
            inputs.kk = out.address;
            inputs.key = key.address;
            inputs.value = value.address;
            inputs.columns = columns;
            inputs.head_dim = 64;
            cuda_wkv7_results work = {};
            work.token_rows = machine.token_rows();
            work.y = x.array.address;
            work.r = k.array.address;
            work.key = a.array.address;
            work.value = work.gate = v.array.address;
            work.weight = work.bias = work.bonus_weight = weights.array.address;
            work.packed = packed[0]->input;
            work.columns = columns;
            work.head_dim = 64;
            const cuda_machine *device = machine.upload();
            const cuda_launch launch = cuda_mix_launch(&mix, tokens);
            const double mixing = time_of([&] { launch_kernel(launch, salvo_rwkv7_mix, device, mix); }),
                         before = time_of([&] {
                             launch_kernel(cuda_wkv7_inputs_launch(&inputs, tokens), salvo_rwkv7_inputs,
                                 device, inputs);
                         }),
                         after = time_of([&] {
                             launch_kernel(
                                 cuda_wkv7_results_launch(&work, tokens), salvo_rwkv7_results, device, work);
                         });
            printf("%-44s T %4u  %8.2f us  inputs %8.2f us  results %8.2f us\n",
                ("mix of 6, " + std::to_string(columns) + " columns").c_str(), tokens, mixing, before, after);
        }
    }
}
#endif

#endif

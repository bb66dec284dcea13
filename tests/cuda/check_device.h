/*
 * Checks of the kernels for many tokens, against plain loops in double: what all of them need. The same
 * checks run on a GPU (check_cuda.cu, compiled by nvcc) and, smaller, on the emulator (emulated_batch.cpp).
 */
#ifndef TESTS_CUDA_CHECK_DEVICE_H
#define TESTS_CUDA_CHECK_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "base/tensor_type.h"

#include "backend/cuda/cuda_weight_tiles.h"
#include "quant/quant.h"
}

#include "backend/cuda/cuda_batch.h"
#include "program/op.h"
#include "program/step.h"
#include "quant/half.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

/* ---- Where kernels run ---- */

/* Blocks of the clusters of the next launches; up to 1: none. */
inline uint32_t &launch_cluster()
{
    static uint32_t blocks;
    return blocks;
}

#ifdef __CUDACC__
#include <cuda_runtime.h>

#define ON_DEVICE 1

inline void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(error));
        exit(2);
    }
}

inline uint64_t device_new(size_t bytes)
{
    void *pointer;
    must(cudaMalloc(&pointer, bytes ? bytes : 1), "cudaMalloc");
    return (uint64_t)pointer;
}

inline void device_free(uint64_t address)
{
    must(cudaFree((void *)address), "cudaFree");
}

inline void device_put(uint64_t to, const void *from, size_t bytes)
{
    must(cudaMemcpy((void *)to, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

inline void device_get(void *to, uint64_t from, size_t bytes)
{
    must(cudaMemcpy(to, (const void *)from, bytes, cudaMemcpyDeviceToHost), "copy from the device");
}

/* Where kernels are launched. Copies of the default stream wait for it. */
inline cudaStream_t launch_stream()
{
    static cudaStream_t stream;
    if (!stream)
        must(cudaStreamCreate(&stream), "cudaStreamCreate");
    return stream;
}

/* As in a plan's graph: a kernel may start before the previous one has ended, and waits for it itself. */
template <class... Parameters>
void launch_kernel(const cuda_launch &launch, void (*kernel)(Parameters...), Parameters... parameters)
{
    must(cudaFuncSetAttribute(
             (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch.shared_bytes),
        launch.kernel);
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = launch_cluster();
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(launch.grid_x, launch.grid_y);
    config.blockDim = dim3(launch.threads);
    config.dynamicSmemBytes = launch.shared_bytes;
    config.stream = launch_stream();
    config.attrs = attributes;
    config.numAttrs = launch_cluster() > 1 ? 2 : 1;
    must(cudaLaunchKernelEx(&config, kernel, parameters...), launch.kernel);
}

inline void device_wait()
{
    must(cudaDeviceSynchronize(), "the kernel");
}
#else
#define ON_DEVICE 0

inline uint64_t device_new(size_t bytes)
{
    return (uint64_t)aligned_alloc(256, (bytes + 256) / 256 * 256);
}

inline void device_free(uint64_t address)
{
    free((void *)address);
}

inline void device_put(uint64_t to, const void *from, size_t bytes)
{
    memcpy((void *)to, from, bytes);
}

inline void device_get(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (const void *)from, bytes);
}

template <class... Parameters>
void launch_kernel(const cuda_launch &launch, void (*kernel)(Parameters...), Parameters... parameters)
{
    static unsigned seed;
    for (unsigned y = 0; y < launch.grid_y; y++) {
        blockIdx.y = y;
        emulate({launch.grid_x, launch.threads, launch.shared_bytes, seed++, launch_cluster() > 1},
            [&] { kernel(parameters...); });
    }
    blockIdx.y = 0;
}

inline void device_wait() {}
#endif

/* ---- Memory that is checked at its end ---- */

/* Floats (or anything) on the device, poisoned, with a poisoned guard behind them. */
template <class T> struct device_array {
    enum { GUARD = 64 };
    uint64_t address;
    size_t count;

    explicit device_array(size_t count_) : address(device_new((count_ + GUARD) * sizeof(T))), count(count_)
    {
        std::vector<uint8_t> poison((count + GUARD) * sizeof(T), 0xff); /* NaN */
        device_put(address, poison.data(), poison.size());
    }

    explicit device_array(const std::vector<T> &values) : device_array(values.size())
    {
        device_put(address, values.data(), count * sizeof(T));
    }

    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;
    ~device_array() { device_free(address); }

    std::vector<T> get() const
    {
        std::vector<T> values(count);
        device_get(values.data(), address, count * sizeof(T));
        return values;
    }

    bool guard_is_whole() const
    {
        std::vector<uint8_t> bytes(GUARD * sizeof(T));
        device_get(bytes.data(), address + count * sizeof(T), bytes.size());
        for (uint8_t byte : bytes) {
            if (byte != 0xff)
                return false;
        }
        return true;
    }
};

inline bool is_poison(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == 0xffffffff;
}

/* ---- Numbers ---- */

struct numbers {
    uint64_t state;

    explicit numbers(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}

    uint32_t next()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (uint32_t)(state >> 32);
    }

    uint32_t below(uint32_t end) { return next() % end; }
    float uniform() { return (float)(next() >> 8) * 0x1p-24f; } /* 0 .. 1 */

    float normal() /* near enough */
    {
        float sum = 0;
        for (int i = 0; i < 6; i++)
            sum += uniform();
        return (sum - 3) * 1.41421356f;
    }

    std::vector<float> vector(size_t count, float scale = 1)
    {
        std::vector<float> values(count);
        for (float &value : values)
            value = normal() * scale;
        return values;
    }
};

/* ---- Results ---- */

struct checks {
    int run = 0, failed = 0;

    void report(const std::string &what, bool good, double error, const char *why = "")
    {
        run++;
        failed += !good;
        if (!good || ON_DEVICE || getenv("CHECK_VERBOSE"))
            printf("%-6s %-78s %.2e %s\n", good ? "ok" : "FAILED", what.c_str(), error, why);
    }
};

/* The largest difference in a row, divided by the largest magnitude of the reference or by `spread` if that
 * is larger: the size of a sum whose terms do not cancel. Infinity if only one of two values is NaN. */
inline double row_error(const float *values, const double *reference, size_t count, double spread = 0)
{
    double largest = spread, difference = 0;
    for (size_t i = 0; i < count; i++) {
        if (std::isnan(reference[i]) != std::isnan(values[i]))
            return INFINITY;
        if (std::isnan(reference[i]))
            continue;
        largest = std::fmax(largest, std::fabs(reference[i]));
        difference = std::fmax(difference, std::fabs(values[i] - reference[i]));
    }
    return difference == 0 ? 0 : difference / largest;
}

/* ---- Packed inputs ---- */

/* Whether the build has a kernel: kernels for warpgroups exist only in builds for devices with warpgroup
 * products. */
inline bool has_kernel(const void *kernel)
{
#if ON_DEVICE
    cudaFuncAttributes attributes;
    const bool has = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
    (void)cudaGetLastError();
    return has;
#else
    return kernel != nullptr;
#endif
}

/* Where a packed input of halves has a column of a row: of every 128, pair j of the c-th 32 is pair 4j + c.
 * With groups, eight rows have 8 halves each, and then the next 8. */
inline uint64_t half_place(const cuda_packed_input &packed_input, uint64_t row, uint64_t column)
{
    const uint64_t part = column / 128 * 128, group = column % 128 / 32, pair = column % 32 / 2,
                   at = part + (4 * pair + group) * 2 + column % 2;
    return packed_input.grouped
               ? part * packed_input.grouped + row / 8 * 1024 + (at - part) / 8 * 64 + row % 8 * 8 + at % 8
               : row * packed_input.columns + at;
}

template <class T> T read_packed_input(const std::vector<uint8_t> &bytes, uint64_t at)
{
    T value;
    memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

/* Quotients of the device may be off by their last bits: an integer is right if no other is nearer, and sums
 * must be the sums of the stored integers. `fine`: integers have a second term. */
inline bool bytes_are_right(const cuda_packed_input &packed_input, const std::vector<uint8_t> &bytes,
    uint64_t base, uint64_t begin, const float values[32], bool fine)
{
    float largest = 0;
    int sums[2] = {0, 0};
    for (int i = 0; i < 32; i++)
        largest = std::fmax(largest, std::fabs(values[i]));
    const float scale = read_packed_input<float>(bytes, packed_input.scales - base + begin / 32 * 4);
    const float unit = fine ? scale / 128 : scale;
    bool good = std::fabs(scale - largest / 127) <= 3e-7f * scale;
    for (int i = 0; i < 32; i++) {
        int integer = read_packed_input<int8_t>(bytes, packed_input.values - base + begin + i);
        if (fine)
            integer =
                integer * 128 + read_packed_input<int8_t>(bytes, packed_input.seconds - base + begin + i);
        good &= std::fabs(values[i] - (float)integer * unit) <= (fine ? 0.502f : 0.50001f) * unit;
        sums[i / 16] += integer;
    }
    for (int i = 0; i < 2; i++)
        good &= read_packed_input<float>(bytes, packed_input.sums - base + (begin / 16 + i) * 4) ==
                unit * (float)sums[i];
    return good;
}

inline bool packed_input_is_right(const cuda_packed_input &packed_input, const std::vector<uint8_t> &bytes,
    uint64_t base, uint32_t row, uint32_t columns, const float *values, bool fine)
{
    bool good = true;
    for (uint32_t first = 0; first < packed_input.columns; first += 32) {
        const uint64_t begin = (uint64_t)row * packed_input.columns + first;
        float padded[32];
        for (uint32_t i = 0; i < 32; i++)
            padded[i] = first + i < columns ? values[first + i] : 0;
        for (uint32_t i = 0; i < 32 && packed_input.rounding == ROUNDING_F32; i++)
            good &=
                read_packed_input<float>(bytes, packed_input.values - base + (begin + i) * 4) == padded[i];
        for (uint32_t i = 0; i < 32 && packed_input.rounding == ROUNDING_F16; i++)
            good &= read_packed_input<uint16_t>(
                        bytes, packed_input.values - base + half_place(packed_input, row, first + i) * 2) ==
                    f16_from_f32(padded[i]);
        if (packed_input.rounding == ROUNDING_Q8)
            good &= bytes_are_right(packed_input, bytes, base, begin, padded, fine);
    }
    return good;
}

/* ---- A step in device memory ---- */

struct test_run {
    uint32_t slot, first, count;
    uint32_t logits = LOGITS_LAST;
    uint32_t source = SOURCE_IDS;
};

/* A machine with a step. A check fills in all other members before `upload`. */
struct test_machine {
    cuda_machine machine = {};
    std::vector<test_run> runs;
    std::vector<uint8_t> step;
    std::vector<uint32_t> outputs;
    uint32_t tokens = 0;
    uint64_t address = 0;

    test_machine(
        const std::vector<test_run> &runs_, uint32_t slots, uint32_t context, uint32_t pages_per_slot)
        : runs(runs_)
    {
        for (const test_run &run : runs)
            tokens += run.count;
        machine.slots = slots;
        machine.context = context;
        machine.pages_per_slot = pages_per_slot;
        machine.step_ring_entries = 4;
        uint32_t at = (uint32_t)sizeof(cuda_step);
        const auto take = [&at](uint32_t bytes) {
            at = (at + 15) / 16 * 16;
            const uint32_t place = at;
            at += bytes;
            return place;
        };
        machine.runs_at = take(slots * (uint32_t)sizeof(cuda_run));
        machine.rows_at = take((tokens + 1) * (uint32_t)sizeof(cuda_row));
        machine.outputs_at = take((tokens + 1) * 4);
        machine.ids_at = take((tokens + 1) * 4);
        machine.pages_at = take((slots * pages_per_slot + 1) * 4);
        machine.step_bytes = (at + 255) / 256 * 256;
        step.assign(machine.step_bytes, 0);
        fill();
    }

    ~test_machine()
    {
        device_free(address);
        device_free(machine.step);
        device_free(machine.slot_states);
        device_free(machine.tokens);
    }

    test_machine(const test_machine &) = delete;
    test_machine &operator=(const test_machine &) = delete;

    uint64_t token_rows() const { return machine.step + machine.rows_at; }
    bool is_early(uint32_t row) const
    {
        return ((const cuda_row *)(step.data() + machine.rows_at))[row].position < EARLY_POSITIONS;
    }
    cuda_run *run_at(size_t i) { return (cuda_run *)(step.data() + machine.runs_at) + i; }
    uint32_t *pages_of(size_t i)
    {
        return (uint32_t *)(step.data() + machine.pages_at) + i * machine.pages_per_slot;
    }

    void fill()
    {
        cuda_row *rows = (cuda_row *)(step.data() + machine.rows_at);
        uint32_t row = 0;
        for (size_t i = 0; i < runs.size(); i++) {
            cuda_run *run = run_at(i);
            run->slot = runs[i].slot;
            run->first = runs[i].first;
            run->count = runs[i].count;
            run->first_row = row;
            run->logits = runs[i].logits;
            run->source = runs[i].source;
            run->stop_mask = UINT32_MAX;
            run->output = (uint32_t)outputs.size();
            for (uint32_t j = 0; j < runs[i].count; j++, row++) {
                rows[row] = {(uint32_t)i, runs[i].slot, runs[i].first + j, 0};
                if (runs[i].logits == LOGITS_ALL || (runs[i].logits == LOGITS_LAST && j + 1 == runs[i].count))
                    outputs.push_back(row);
            }
        }
        memcpy(step.data() + machine.outputs_at, outputs.data(), outputs.size() * 4);
        cuda_step *head = (cuda_step *)step.data();
        head->run_count = (uint32_t)runs.size();
        head->token_count = tokens;
        head->output_count = (uint32_t)outputs.size();
        head->repeat = 1;
        head->plan = 1;
        machine.step = device_new(step.size());
        machine.slot_states = device_new(machine.slots * sizeof(cuda_slot));
        machine.tokens = device_new((size_t)machine.slots * (machine.context + 1) * 4);
        const std::vector<uint8_t> zeros(
            machine.slots * sizeof(cuda_slot) + (size_t)machine.slots * (machine.context + 1) * 4, 0);
        device_put(machine.slot_states, zeros.data(), machine.slots * sizeof(cuda_slot));
        device_put(machine.tokens, zeros.data(), (size_t)machine.slots * (machine.context + 1) * 4);
    }

    const cuda_machine *upload()
    {
        device_put(machine.step, step.data(), step.size());
        if (!address)
            address = device_new(sizeof machine);
        device_put(address, &machine, sizeof machine);
        return (const cuda_machine *)address;
    }
};

/* ---- Time ---- */

#if ON_DEVICE
/* Microseconds a launch, of many in one graph. */
template <class Function> double time_of(Function launch)
{
    const int times = 50;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaEvent_t begin, end;
    cudaStream_t stream = launch_stream();
    float milliseconds;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    for (int i = 0; i < times; i++)
        launch();
    must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
    must(cudaEventCreate(&begin), "cudaEventCreate");
    must(cudaEventCreate(&end), "cudaEventCreate");
    must(cudaGraphLaunch(ready, stream), "cudaGraphLaunch");
    must(cudaEventRecord(begin, stream), "cudaEventRecord");
    must(cudaGraphLaunch(ready, stream), "cudaGraphLaunch");
    must(cudaEventRecord(end, stream), "cudaEventRecord");
    must(cudaEventSynchronize(end), "cudaEventSynchronize");
    must(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    return milliseconds * 1000 / times;
}
#endif

#endif

/*
 * A CUDA driver without a GPU: memory is the host's, kernels run on the emulator, one after the other, when they are
 * launched. `SALVO_CUDA_LIBRARY` makes salvo open it. The device has few multiprocessors, so that blocks have to
 * share and wait for each other, and little memory. For tests of what may go wrong:
 *
 *   SALVO_FAKE_FAIL=N[:CODE]   the nth call fails (once) with this result, 999 by default; 0: none
 *   SALVO_FAKE_COUNT=FILE      how many calls there were is written there at the end
 *   SALVO_FAKE_MEMORY=MB       of the device
 *   SALVO_FAKE_IDLE=1          kernels are not run at all
 */
#include "cuda/emulator.h"

inline size_t __cvta_generic_to_shared(const void *pointer)
{
    return (size_t)pointer;
}

inline long long clock64()
{
    return 1;
}
#define __shared__ static

#include "backend/cuda/cuda_batch.h"

#include "backend/cuda/decode.cu"
#include "backend/cuda/flash.cu"
#include "backend/cuda/flash_any.cu"
#include "backend/cuda/gemm_float.cu"
#include "backend/cuda/gemm_q8.cu"
#include "backend/cuda/rows_many.cu"
#include "backend/cuda/sample.cu"
#include "backend/cuda/wkv7_many.cu"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace
{

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };
enum { MULTIPROCESSORS = 3, SHARED_BYTES = 232448 };

/* ---- Calls that fail ---- */

unsigned long call_count;

unsigned long number_from(const char *name, unsigned long usual)
{
    const char *text = getenv(name);
    return text ? strtoul(text, nullptr, 10) : usual;
}

void write_count()
{
    const char *path = getenv("SALVO_FAKE_COUNT");
    FILE *file = path ? fopen(path, "w") : nullptr;
    if (file) {
        fprintf(file, "%lu\n", call_count);
        fclose(file);
    }
}

/* What a call has to return, unless all is well. */
int next_call()
{
    static const bool registered = atexit(write_count) == 0;
    static const unsigned long failing = registered ? number_from("SALVO_FAKE_FAIL", 0) : 0;
    const char *text = getenv("SALVO_FAKE_FAIL"), *colon = text ? strchr(text, ':') : nullptr;
    return ++call_count == failing ? colon ? atoi(colon + 1) : 999 : OK;
}

#define CALL()                         \
    do {                               \
        const int failed = next_call(); \
        if (failed)                    \
            return failed;             \
    } while (0)

/* ---- Kernels ---- */

struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *queue;
    const void *attributes;
    unsigned attribute_count;
};

using arguments = void **;

template <class T> T argument(arguments given, int index)
{
    T value;
    memcpy(&value, given[index], sizeof value);
    return value;
}

template <class... Parameters, size_t... Index>
std::function<void()> bind_arguments(void (*kernel)(Parameters...), arguments given, std::index_sequence<Index...>)
{
    auto values = std::make_tuple(argument<std::decay_t<Parameters>>(given, (int)Index)...);
    return [=] { std::apply(kernel, values); };
}

template <class... Parameters> struct binder {
    void (*kernel)(Parameters...);
    std::function<void()> operator()(arguments given) const
    {
        return bind_arguments(kernel, given, std::index_sequence_for<Parameters...>());
    }
};

template <class... Parameters> binder<Parameters...> kernel_of(void (*kernel)(Parameters...))
{
    return {kernel};
}

struct function {
    std::function<std::function<void()>(arguments)> bind;
    bool together; /* its blocks wait for each other */
};

#define KERNEL(name) {#name, {kernel_of(name), false}}
std::map<std::string, function> functions = {
    {"salvo_decode", {kernel_of(salvo_decode), true}},
    KERNEL(salvo_begin),
    KERNEL(salvo_angles),
    KERNEL(salvo_rows),
    KERNEL(salvo_end),
    KERNEL(salvo_sample),
    KERNEL(salvo_gemm_q8_few),
    KERNEL(salvo_gemm_q8_few_glu),
    KERNEL(salvo_gemm_q8_many),
    KERNEL(salvo_gemm_q8_many_glu),
    KERNEL(salvo_gemm_f16_few),
    KERNEL(salvo_gemm_f16_few_glu),
    KERNEL(salvo_gemm_f16_many),
    KERNEL(salvo_gemm_f16_many_glu),
    KERNEL(salvo_gemm_f32_few),
    KERNEL(salvo_gemm_f32_few_glu),
    KERNEL(salvo_gemm_f32_many),
    KERNEL(salvo_gemm_f32_many_glu),
    KERNEL(salvo_flash_f16_64),
    KERNEL(salvo_flash_f16_128),
    KERNEL(salvo_flash_any),
    KERNEL(salvo_wkv7_64),
    KERNEL(salvo_wkv7_128),
    KERNEL(salvo_wkv7_256),
};

struct prepared {
    launch_config config;
    bool together;
    std::function<void()> kernel;
};

void run_launch(const prepared &launch)
{
    static unsigned seed;
    static const bool idle = number_from("SALVO_FAKE_IDLE", 0) != 0;
    for (unsigned y = 0; y < launch.config.grid[1] && !idle; y++) {
        blockIdx.y = y;
        emulate({launch.config.grid[0], launch.config.block[0], launch.config.shared_bytes, seed++, launch.together},
            launch.kernel);
    }
    blockIdx.y = 0;
}

/* ---- Memory ---- */

size_t memory_of_device()
{
    static const size_t size = number_from("SALVO_FAKE_MEMORY", 512) << 20;
    return size;
}

std::map<uint64_t, size_t> taken;
size_t taken_bytes;

struct graph {
    std::vector<prepared> launches;
};

graph *captured;

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) int

/* ---- Device and context ---- */

EXPORT cuInit(unsigned)
{
    CALL();
    return OK;
}

EXPORT cuDriverGetVersion(int *out)
{
    CALL();
    *out = 13000;
    return OK;
}

EXPORT cuGetErrorString(int result, const char **out)
{
    *out = result == OUT_OF_MEMORY ? "out of memory" : result == 700 ? "an illegal memory access" : "a fake error";
    return OK;
}

EXPORT cuDeviceGetCount(int *out)
{
    CALL();
    *out = 1;
    return OK;
}

EXPORT cuDeviceGet(int *out, int ordinal)
{
    CALL();
    *out = ordinal;
    return ordinal == 0 ? OK : INVALID;
}

EXPORT cuDeviceGetName(char *out, int size, int)
{
    CALL();
    snprintf(out, (size_t)size, "Emulated GPU");
    return OK;
}

EXPORT cuDeviceTotalMem_v2(size_t *out, int)
{
    CALL();
    *out = memory_of_device();
    return OK;
}

EXPORT cuDeviceGetAttribute(int *out, int attribute, int)
{
    CALL();
    switch (attribute) {
    case 16:
        *out = MULTIPROCESSORS;
        break;
    case 97:
        *out = SHARED_BYTES;
        break;
    case 75:
        *out = 8;
        break;
    case 76:
    case 120:
        *out = 0;
        break;
    default:
        *out = 1;
    }
    return OK;
}

EXPORT cuDevicePrimaryCtxRetain(void **out, int)
{
    static int context;
    CALL();
    *out = &context;
    return OK;
}

EXPORT cuDevicePrimaryCtxRelease_v2(int)
{
    CALL();
    return OK;
}

EXPORT cuDevicePrimaryCtxReset_v2(int)
{
    CALL();
    return OK;
}

EXPORT cuCtxPushCurrent_v2(void *)
{
    CALL();
    return OK;
}

EXPORT cuCtxPopCurrent_v2(void **out)
{
    CALL();
    *out = nullptr;
    return OK;
}

/* ---- Modules ---- */

EXPORT cuModuleLoadData(void **out, const void *image)
{
    CALL();
    *out = const_cast<void *>(image);
    return OK;
}

EXPORT cuModuleUnload(void *)
{
    CALL();
    return OK;
}

EXPORT cuModuleGetFunction(void **out, void *, const char *name)
{
    CALL();
    auto found = functions.find(name);
    if (found == functions.end())
        return NOT_FOUND;
    *out = &found->second;
    return OK;
}

EXPORT cuFuncSetAttribute(void *, int, int)
{
    CALL();
    return OK;
}

EXPORT cuFuncGetAttribute(int *out, int, void *)
{
    CALL();
    *out = 0;
    return OK;
}

EXPORT cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *, int, size_t)
{
    CALL();
    *out = 1;
    return OK;
}

EXPORT cuOccupancyMaxActiveClusters(int *out, void *, const void *)
{
    CALL();
    *out = 0;
    return OK;
}

/* ---- Memory ---- */

EXPORT cuMemGetInfo_v2(size_t *out_free, size_t *out_total)
{
    CALL();
    *out_total = memory_of_device();
    *out_free = memory_of_device() - taken_bytes;
    return OK;
}

EXPORT cuMemAlloc_v2(uint64_t *out, size_t size)
{
    CALL();
    if (size > memory_of_device() - taken_bytes)
        return OUT_OF_MEMORY;
    void *memory = aligned_alloc(256, (size + 255) / 256 * 256);
    if (!memory)
        return OUT_OF_MEMORY;
    memset(memory, 0xa5, size); /* nobody may count on zeros */
    *out = (uint64_t)memory;
    taken[*out] = size;
    taken_bytes += size;
    return OK;
}

EXPORT cuMemFree_v2(uint64_t address)
{
    auto found = taken.find(address);
    if (found == taken.end())
        return INVALID;
    taken_bytes -= found->second;
    taken.erase(found);
    free((void *)address);
    CALL();
    return OK;
}

EXPORT cuMemHostAlloc(void **out, size_t size, unsigned)
{
    CALL();
    *out = aligned_alloc(256, (size + 255) / 256 * 256);
    return *out ? OK : OUT_OF_MEMORY;
}

EXPORT cuMemFreeHost(void *memory)
{
    free(memory);
    CALL();
    return OK;
}

EXPORT cuMemHostGetDevicePointer_v2(uint64_t *out, void *memory, unsigned)
{
    CALL();
    *out = (uint64_t)memory;
    return OK;
}

EXPORT cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *)
{
    CALL();
    memcpy((void *)to, from, size);
    return OK;
}

EXPORT cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *)
{
    CALL();
    memcpy(to, (const void *)from, size);
    return OK;
}

EXPORT cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *)
{
    CALL();
    memset((void *)to, value, size);
    return OK;
}

/* ---- Streams, events, graphs ---- */

EXPORT cuStreamCreate(void **out, unsigned)
{
    static int queue;
    CALL();
    *out = &queue;
    return OK;
}

EXPORT cuStreamDestroy_v2(void *)
{
    CALL();
    return OK;
}

EXPORT cuStreamQuery(void *)
{
    CALL();
    return OK;
}

EXPORT cuStreamSynchronize(void *)
{
    CALL();
    return OK;
}

EXPORT cuEventCreate(void **out, unsigned)
{
    static int event;
    CALL();
    *out = &event;
    return OK;
}

EXPORT cuEventDestroy_v2(void *)
{
    CALL();
    return OK;
}

EXPORT cuEventRecord(void *, void *)
{
    CALL();
    return OK;
}

EXPORT cuEventSynchronize(void *)
{
    CALL();
    return OK;
}

EXPORT cuEventElapsedTime(float *out, void *, void *)
{
    CALL();
    *out = 1;
    return OK;
}

EXPORT cuLaunchKernelEx(const launch_config *config, void *given, void **values, void **)
{
    CALL();
    const auto *called = static_cast<const function *>(given);
    const prepared launch = {*config, called->together, called->bind(values)};
    if (captured)
        captured->launches.push_back(launch);
    else
        run_launch(launch);
    return OK;
}

EXPORT cuStreamBeginCapture_v2(void *, int)
{
    CALL();
    captured = new graph;
    return OK;
}

EXPORT cuStreamEndCapture(void *, void **out)
{
    *out = captured;
    captured = nullptr;
    CALL();
    return OK;
}

EXPORT cuGraphInstantiateWithFlags(void **out, void *given, unsigned long long)
{
    CALL();
    *out = new graph(*static_cast<graph *>(given));
    return OK;
}

EXPORT cuGraphDestroy(void *given)
{
    delete static_cast<graph *>(given);
    CALL();
    return OK;
}

EXPORT cuGraphExecDestroy(void *given)
{
    delete static_cast<graph *>(given);
    CALL();
    return OK;
}

EXPORT cuGraphUpload(void *, void *)
{
    CALL();
    return OK;
}

EXPORT cuGraphLaunch(void *given, void *)
{
    CALL();
    for (const prepared &launch : static_cast<graph *>(given)->launches)
        run_launch(launch);
    return OK;
}

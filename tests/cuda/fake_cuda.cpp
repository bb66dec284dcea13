/*
 * A CUDA driver without a GPU: memory is the host's, kernels run on the emulator, one after the other, when
 * they are launched. `SALVO_CUDA_LIBRARY` makes salvo open it. The device has few multiprocessors, so that
 * blocks have to share and wait for each other, and little memory; SALVO_FAKE_MEMORY says how many MB. With
 * SALVO_FAKE_WARPGROUPS=1 it has kernels for warpgroups, which take longer here;
 * SALVO_FAKE_CAPABILITY=75 makes it an older device, SALVO_FAKE_WATCHDOG=1 one with a display. Tests choose
 * failures through fake_cuda.h.
 */
#include "cuda/fake_cuda.h"
#include "backend/cuda/cuda_batch.h"
#include "cuda/fake_kernels.h"

#include <chrono>
#include <map>
#include <vector>

namespace
{

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, TOO_MANY_TOGETHER = 720 };

/* ---- Calls that fail ---- */

size_t number_from(const char *name, size_t usual)
{
    const char *text = getenv(name);
    return text ? strtoul(text, nullptr, 10) : usual;
}

fake_cuda new_control()
{
    fake_cuda fresh = {};
    fresh.code = 999;
    fresh.resident = true;
    fresh.memory = number_from("SALVO_FAKE_MEMORY", 512) << 20;
    return fresh;
}

fake_cuda control = new_control();

/* The result of the next call: the error that a test asked for, or OK. */
int next_call()
{
    return ++control.calls == control.fail_at ? control.code : OK;
}

#define CALL()                          \
    do {                                \
        const int failed = next_call(); \
        if (failed)                     \
            return failed;              \
    } while (0)

/* ---- Kernels ---- */

struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *queue;
    const void *attributes;
    unsigned attribute_count;
};

kernel_table all_kernels()
{
    kernel_table table;
    add_decode_kernels(table);
    add_flash_kernels(table);
    add_gemm_kernels(table);
    add_row_kernels(table);
    return table;
}

kernel_table kernels = all_kernels();

enum { COOPERATIVE = 2, CLUSTER = 4 }; /* launch attributes */

struct launch_attribute {
    int kind, padding;
    char value[64];
};

/* Records of all blocks in a range of phases. */
unsigned long count_pieces(const cuda_machine &machine, uint32_t first, uint32_t end, uint32_t blocks)
{
    unsigned long count = 0;
    for (uint32_t block = 0; block < blocks; block++) {
        const uint32_t *starts = (const uint32_t *)machine.record_starts + block * (machine.phase_count + 1);
        for (uint32_t i = starts[first]; i < starts[end]; i++)
            count += ((const cuda_record *)machine.records)[i].kind == CUDA_RECORD_PIECES;
    }
    return count;
}

struct prepared {
    launch_config config;
    bool cluster, together, wide;
    std::function<void()> kernel;
    const cuda_machine *takes; /* a step; nullptr: it does not */
};

/* Whether the launch stalls. */
bool begin_step(const cuda_machine &machine)
{
    if (++control.steps != control.fails_at)
        return false;
    uint32_t &sequence = *(uint32_t *)machine.sequence;
    cuda_step &entry =
        *(cuda_step *)(machine.step_ring + sequence % machine.step_ring_entries * machine.step_bytes);
    sequence += control.failure == FAKE_WRONG_NUMBER;
    entry.plan += control.failure == FAKE_WRONG_PLAN;
    return control.failure == FAKE_STALL;
}

void run_launch(const prepared &launch)
{
    static unsigned seed;
    const bool stalls = launch.takes && begin_step(*launch.takes);
    control.wide += launch.wide;
    control.clusters += launch.cluster;
    emulator_round_ns = control.round_ns;
    for (unsigned y = 0; y < launch.config.grid[1] && !control.idle; y++) {
        blockIdx.y = y;
        const unsigned rounds =
            emulate({launch.config.grid[0], launch.config.block[0], launch.config.shared_bytes, seed++,
                        launch.together, stalls ? control.stall_round : 0, control.stalled_block},
                launch.kernel);
        control.rounds = launch.together && !launch.wide && !stalls ? rounds : control.rounds;
    }
    blockIdx.y = 0;
}

/* Launches that are handed over at once. */
void run_launches(const std::vector<prepared> &launches)
{
    const uint64_t began = emulator_time;
    for (const prepared &launch : launches)
        run_launch(launch);
    control.longest_ns = std::max<unsigned long>(control.longest_ns, emulator_time - began);
}

/* ---- Memory ---- */

std::map<uint64_t, size_t> taken;

int take(void **out, size_t size)
{
    *out = nullptr;
    if (size > control.memory - control.taken)
        return OUT_OF_MEMORY;
    void *memory = aligned_alloc(256, (size + 255) / 256 * 256);
    if (!memory)
        return OUT_OF_MEMORY;
    memset(memory, 0xa5, size); /* new memory is not zero */
    taken[(uint64_t)memory] = size;
    control.taken += size;
    *out = memory;
    return OK;
}

int give_back(uint64_t address)
{
    auto found = taken.find(address);
    if (found == taken.end())
        return INVALID;
    control.taken -= found->second;
    taken.erase(found);
    free((void *)address);
    return next_call();
}

struct graph {
    std::vector<prepared> launches;
};

graph *captured;

using event = std::chrono::steady_clock::time_point;

} // namespace

extern "C" __attribute__((visibility("default"))) fake_cuda *fake_cuda_control()
{
    return &control;
}

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
    *out = result == OUT_OF_MEMORY ? "out of memory"
           : result == 700         ? "an illegal memory access"
                                   : "a fake error";
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
    *out = control.memory;
    return OK;
}

EXPORT cuDeviceGetAttribute(int *out, int attribute, int)
{
    CALL();
    switch (attribute) {
    case 16:
        *out = (int)number_from("SALVO_FAKE_BLOCKS", 3);
        break;
    case 97:
        *out = (int)number_from("SALVO_FAKE_SHARED", 232448);
        break;
    case 17:
        *out = (int)number_from("SALVO_FAKE_WATCHDOG", 0);
        break;
    case 75:
        *out = (int)number_from("SALVO_FAKE_CAPABILITY", 90) / 10;
        break;
    case 76:
        *out = (int)number_from("SALVO_FAKE_CAPABILITY", 90) % 10;
        break;
    case 36:
    case 37:
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
    control.contexts++;
    return OK;
}

EXPORT cuDevicePrimaryCtxRelease_v2(int)
{
    control.contexts--;
    CALL();
    return OK;
}

EXPORT cuDevicePrimaryCtxGetState(int, unsigned *out_flags, int *out_active)
{
    CALL();
    *out_flags = 0;
    *out_active = control.contexts > 0;
    return OK;
}

EXPORT cuDevicePrimaryCtxReset_v2(int)
{
    control.resets++;
    return OK;
}

EXPORT cuCtxDestroy_v2(void *)
{
    control.resets++;
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
    auto found = kernels.find(name);
    if (found == kernels.end() || (found->second.wide && !number_from("SALVO_FAKE_WARPGROUPS", 0)))
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
    *out_total = control.memory;
    *out_free = control.memory - control.taken;
    return OK;
}

EXPORT cuMemAlloc_v2(uint64_t *out, size_t size)
{
    void *memory;
    CALL();
    const int result = take(&memory, size);
    *out = (uint64_t)memory;
    return result;
}

EXPORT cuMemFree_v2(uint64_t address)
{
    return give_back(address);
}

EXPORT cuMemHostAlloc(void **out, size_t size, unsigned)
{
    CALL();
    return take(out, size);
}

EXPORT cuMemFreeHost(void *memory)
{
    return give_back((uint64_t)memory);
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

EXPORT cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *)
{
    CALL();
    memcpy((void *)to, (const void *)from, size);
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
    CALL();
    *out = new event;
    return OK;
}

EXPORT cuEventDestroy_v2(void *given)
{
    delete static_cast<event *>(given);
    CALL();
    return OK;
}

EXPORT cuEventRecord(void *given, void *)
{
    CALL();
    *static_cast<event *>(given) = std::chrono::steady_clock::now();
    return OK;
}

EXPORT cuEventSynchronize(void *)
{
    CALL();
    return OK;
}

EXPORT cuEventElapsedTime(float *out, void *start, void *end)
{
    CALL();
    const std::chrono::duration<float, std::milli> passed =
        *static_cast<event *>(end) - *static_cast<event *>(start);
    *out = passed.count();
    return OK;
}

static bool is_cluster(const launch_config &config)
{
    const auto *attributes = static_cast<const launch_attribute *>(config.attributes);
    for (unsigned i = 0; i < config.attribute_count; i++) {
        if (attributes[i].kind == CLUSTER)
            return true;
    }
    return false;
}

EXPORT cuLaunchKernelEx(const launch_config *config, void *given, void **values, void **)
{
    CALL();
    const auto *called = static_cast<const fake_kernel *>(given);
    const bool cooperative =
        config->attribute_count && *static_cast<const int *>(config->attributes) == COOPERATIVE;
    if (cooperative && !control.resident)
        return TOO_MANY_TOGETHER;
    const bool takes = called->together ? kernel_argument<uint32_t>(values, 3) & CUDA_TAKE_STEP
                                        : called == &kernels["salvo_begin"];
    const bool cluster = is_cluster(*config);
    const prepared launch = {*config, cluster, (called->together && control.resident) || cluster,
        called->wide, called->bind(values),
        takes ? kernel_argument<const cuda_machine *>(values, 0) : nullptr};
    if (called->together)
        control.pieces += count_pieces(*kernel_argument<const cuda_machine *>(values, 0),
            kernel_argument<uint32_t>(values, 1), kernel_argument<uint32_t>(values, 2), config->grid[0]);
    if (captured)
        captured->launches.push_back(launch);
    else
        run_launches({launch});
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
    run_launches(static_cast<graph *>(given)->launches);
    return OK;
}

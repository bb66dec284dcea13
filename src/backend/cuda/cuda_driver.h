/*
 * The CUDA driver, opened at run time: CUDA is needed neither to build nor to start. Only the functions in
 * use are declared here, under the names that the driver's library exports.
 */
#ifndef CUDA_CUDA_DRIVER_H
#define CUDA_CUDA_DRIVER_H

#include "base/status.h"

/* Opaque handles of the driver. */
typedef struct cuda_context_object *cuda_context_handle;
typedef struct cuda_module_object *cuda_module_handle;
typedef struct cuda_function_object *cuda_function;
typedef struct cuda_queue_object *cuda_queue;
typedef struct cuda_event_object *cuda_event;
typedef struct cuda_graph_object *cuda_graph;
typedef struct cuda_graph_exec_object *cuda_graph_exec;
typedef uint64_t cuda_address;

enum cuda_driver_result {
    CUDA_OK = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_NO_BINARY = 209,
    CUDA_TOO_LARGE_TOGETHER = 720, /* a cooperative launch whose blocks cannot all be resident */
    CUDA_NOT_READY = 600,
};

enum cuda_attribute {
    CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
    CUDA_ATTRIBUTE_WATCHDOG = 17, /* the system ends long kernels, because the device has a display */
    CUDA_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CUDA_ATTRIBUTE_MEMORY_CLOCK = 36, /* kHz */
    CUDA_ATTRIBUTE_BUS_WIDTH = 37,    /* bits */
    CUDA_ATTRIBUTE_MAJOR = 75,
    CUDA_ATTRIBUTE_MINOR = 76,
    CUDA_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CUDA_ATTRIBUTE_SHARED_MEMORY = 97, /* of a block, at most */
};

enum {
    CUDA_FUNCTION_STATIC_BYTES = 1,
    CUDA_FUNCTION_SHARED_BYTES = 8,
    CUDA_HOST_MAPPED = 2,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_UNTIMED = 2,
    CUDA_CAPTURE_RELAXED = 2,
};

enum cuda_launch_attribute_kind {
    CUDA_LAUNCH_COOPERATIVE = 2,
    CUDA_LAUNCH_CLUSTER = 4,
    CUDA_LAUNCH_PROGRAMMATIC = 6,
};

struct cuda_launch_attribute {
    uint32_t kind, padding;
    union {
        char bytes[64];
        int32_t on;
        uint32_t cluster[3];
    } value;
};

struct cuda_launch_config {
    uint32_t grid[3], block[3], shared_bytes;
    cuda_queue queue;
    const struct cuda_launch_attribute *attributes;
    uint32_t attribute_count;
};

/* X(name here, name in the library, parameters) */
#define CUDA_DRIVER_CALLS(X)                                                                               \
    X(init, cuInit, (unsigned flags))                                                                      \
    X(version, cuDriverGetVersion, (int *out))                                                             \
    X(error_text, cuGetErrorString, (int result, const char **out))                                        \
    X(device_count, cuDeviceGetCount, (int *out))                                                          \
    X(device_get, cuDeviceGet, (int *out, int ordinal))                                                    \
    X(device_name, cuDeviceGetName, (char *out, int size, int device))                                     \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * out, int device))                                      \
    X(device_attribute, cuDeviceGetAttribute, (int *out, int attribute, int device))                       \
    X(context_retain, cuDevicePrimaryCtxRetain, (cuda_context_handle * out, int device))                   \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                         \
    X(context_state, cuDevicePrimaryCtxGetState, (int device, unsigned *out_flags, int *out_active))       \
    X(context_push, cuCtxPushCurrent_v2, (cuda_context_handle context))                                    \
    X(context_pop, cuCtxPopCurrent_v2, (cuda_context_handle * out))                                        \
    X(module_load, cuModuleLoadData, (cuda_module_handle * out, const void *image))                        \
    X(module_unload, cuModuleUnload, (cuda_module_handle module))                                          \
    X(module_function, cuModuleGetFunction,                                                                \
        (cuda_function * out, cuda_module_handle module, const char *name))                                \
    X(function_set, cuFuncSetAttribute, (cuda_function function, int attribute, int value))                \
    X(function_get, cuFuncGetAttribute, (int *out, int attribute, cuda_function function))                 \
    X(memory_info, cuMemGetInfo_v2, (size_t * out_free, size_t * out_total))                               \
    X(memory_new, cuMemAlloc_v2, (cuda_address * out, size_t size))                                        \
    X(memory_free, cuMemFree_v2, (cuda_address address))                                                   \
    X(host_new, cuMemHostAlloc, (void **out, size_t size, unsigned flags))                                 \
    X(host_free, cuMemFreeHost, (void *memory))                                                            \
    X(host_address, cuMemHostGetDevicePointer_v2, (cuda_address * out, void *memory, unsigned flags))      \
    X(copy_in, cuMemcpyHtoDAsync_v2, (cuda_address to, const void *from, size_t size, cuda_queue queue))   \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, cuda_address from, size_t size, cuda_queue queue))        \
    X(copy_within, cuMemcpyDtoDAsync_v2,                                                                   \
        (cuda_address to, cuda_address from, size_t size, cuda_queue queue))                               \
    X(fill, cuMemsetD8Async, (cuda_address to, unsigned char value, size_t size, cuda_queue queue))        \
    X(stream_new, cuStreamCreate, (cuda_queue * out, unsigned flags))                                      \
    X(stream_free, cuStreamDestroy_v2, (cuda_queue queue))                                                 \
    X(stream_query, cuStreamQuery, (cuda_queue queue))                                                     \
    X(stream_wait, cuStreamSynchronize, (cuda_queue queue))                                                \
    X(capture_begin, cuStreamBeginCapture_v2, (cuda_queue queue, int mode))                                \
    X(capture_end, cuStreamEndCapture, (cuda_queue queue, cuda_graph * out))                               \
    X(event_new, cuEventCreate, (cuda_event * out, unsigned flags))                                        \
    X(event_free, cuEventDestroy_v2, (cuda_event event))                                                   \
    X(event_record, cuEventRecord, (cuda_event event, cuda_queue queue))                                   \
    X(event_wait, cuEventSynchronize, (cuda_event event))                                                  \
    X(event_elapsed, cuEventElapsedTime, (float *out_ms, cuda_event start, cuda_event end))                \
    X(launch, cuLaunchKernelEx,                                                                            \
        (const struct cuda_launch_config *launch, cuda_function function, void **arguments, void **extra)) \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                                      \
        (cuda_graph_exec * out, cuda_graph graph, unsigned long long flags))                               \
    X(graph_free, cuGraphDestroy, (cuda_graph graph))                                                      \
    X(graph_exec_free, cuGraphExecDestroy, (cuda_graph_exec exec))                                         \
    X(graph_upload, cuGraphUpload, (cuda_graph_exec exec, cuda_queue queue))                               \
    X(graph_launch, cuGraphLaunch, (cuda_graph_exec exec, cuda_queue queue))

struct cuda_driver {
#define CUDA_DRIVER_FIELD(name, symbol, parameters) \
    int(*name) parameters; /* NOLINT(bugprone-macro-parentheses) */
    CUDA_DRIVER_CALLS(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
};

/* The driver's names, for messages. */
struct cuda_driver_symbols {
#define CUDA_DRIVER_SYMBOL(name, symbol, parameters) const char *name;
    CUDA_DRIVER_CALLS(CUDA_DRIVER_SYMBOL)
#undef CUDA_DRIVER_SYMBOL
};

extern const struct cuda_driver_symbols cuda_driver_symbols;

/* Opens the library once per process. NULL: it is missing or too old; *out_why (may be NULL) says which. */
const struct cuda_driver *cuda_driver_open(const char **out_why);

/* "13.0" from 13000. */
void cuda_driver_version_text(int version, char *text, size_t size);

/*
 * A device in use: the primary context of a device, kept current while calls are made. After an error that
 * the driver cannot recover from, every call fails with what it was.
 */
struct cuda_context {
    const struct cuda_driver *driver;
    cuda_context_handle handle;
    int device;      /* the driver's */
    uint32_t number; /* ours */
    char name[80];
    bool lost;
    char lost_text[200];
    uint64_t creations; /* of memory, modules, graphs, streams, events */
};

struct cuda_device {
    struct salvo_device device;
    int ordinal; /* the driver's */
    char name[80], features[160];
    int major, minor, multiprocessors, shared_bytes;
    bool has_watchdog;
    double bytes_per_second; /* of its memory, by its clock and width; 0: not known */
};

/* The devices that can be used, found once per process; NULL beyond the last. */
const struct cuda_device *cuda_device_at(uint32_t number);

/* For an error: why there is no device. */
const char *cuda_devices_why_none(void);

/* Why a device of the driver cannot be used; NULL beyond the last such device. */
const char *cuda_devices_unusable(uint32_t index);

enum salvo_status cuda_context_open(struct cuda_context *context, uint32_t number);
void cuda_context_close(struct cuda_context *context); /* after everything in it was freed */

/* Makes the context current in this thread, or fails because it is lost; leave after it. */
enum salvo_status cuda_context_enter(struct cuda_context *context);
void cuda_context_leave(struct cuda_context *context);

/* The result of a call as a status: the error names the call, the device and the driver's text. */
enum salvo_status cuda_context_result(struct cuda_context *context, const char *call, int result);

/* CUDA_CALL(context, copy_in, (to, from, size, queue)) */
#define CUDA_CALL(context, name, arguments) \
    cuda_context_result((context), cuda_driver_symbols.name, (context)->driver->name arguments)

#endif

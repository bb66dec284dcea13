#include "backend/metal/metal_device.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The source of all kernels, made by the build from shaders/. */
static const unsigned char kernel_source[] = {
#include "metal_kernels.inc"
};

enum { MOST_DEVICES = 8, FAMILY_APPLE7 = 1007, TYPE_UINT = 33, MATH_SAFE = 0, MATH_RELAXED = 1 };

static struct {
    struct metal_physical devices[MOST_DEVICES];
    uint32_t count;
    char unusable[MOST_DEVICES][METAL_NAME_BYTES + 96];
    uint32_t unusable_count;
    const char *why_none;
    char wrong_method[256];
    objc_id array; /* keeps the devices */
} found;
static pthread_once_t once = PTHREAD_ONCE_INIT; /* engines of several threads may be the first to look */

/* Why the device cannot be used; NULL: it can. */
static const char *why_not(objc_id device)
{
    if (!objc_has_unified_memory(device))
        return "it has no unified memory";
    if (!objc_supports_family(device, FAMILY_APPLE7))
        return "it has no simdgroup matrices (Apple7, which is M1, is the first that does)";
    return NULL;
}

/* False: a method of the object is not the one that salvo calls, which is why there is no device. */
static bool is_as_expected(enum objc_class receiver, objc_id object)
{
    if (objc_check(receiver, object) == SALVO_OK)
        return true;
    snprintf(found.wrong_method, sizeof found.wrong_method, "%s", salvo_error());
    found.why_none = found.wrong_method;
    return false;
}

static void look_at_device(objc_id device)
{
    char name[METAL_NAME_BYTES];
    if (!is_as_expected(OBJC_DEVICE, device))
        return;
    if (!is_as_expected(OBJC_STRING, objc_device_name(device)))
        return;
    snprintf(name, sizeof name, "%s", objc_string_text(objc_device_name(device)));
    const char *reason = why_not(device);
    if (reason && found.unusable_count < MOST_DEVICES)
        snprintf(found.unusable[found.unusable_count++], sizeof found.unusable[0], "%s cannot be used: %s",
            name, reason);
    if (reason || found.count == MOST_DEVICES)
        return;
    struct metal_physical *physical = &found.devices[found.count++];
    *physical = (struct metal_physical){.handle = device, .working_set = objc_working_set(device)};
    memcpy(physical->name, name, sizeof name);
}

static void find_devices(void)
{
    found.why_none = objc_open();
    if (found.why_none)
        return;
    found.why_none = "Metal has no device that can be used";
    void *pool = objc.push_pool();
    found.array = objc.copy_devices();
    const bool is_array = found.array && is_as_expected(OBJC_ARRAY, found.array);
    for (objc_count i = 0; is_array && i < objc_array_count(found.array); i++)
        look_at_device(objc_array_item(found.array, i));
    objc.pop_pool(pool);
}

uint32_t metal_device_count(void)
{
    pthread_once(&once, find_devices);
    return found.count;
}

const struct metal_physical *metal_device_at(uint32_t number)
{
    return number < metal_device_count() ? &found.devices[number] : NULL;
}

const char *metal_why_none(void)
{
    pthread_once(&once, find_devices);
    return found.why_none;
}

const char *metal_unusable(uint32_t index)
{
    pthread_once(&once, find_devices);
    return index < found.unusable_count ? found.unusable[index] : NULL;
}

enum salvo_status metal_fail(const struct metal_device *device, const char *call, objc_id error)
{
    if (!error)
        return fail(SALVO_ERROR_DEVICE, "%s: %s failed", device->physical->name, call);
    return fail(SALVO_ERROR_DEVICE, "%s: %s failed: error %ld, %s", device->physical->name, call,
        objc_error_code(error), objc_string_text(objc_error_text(error)));
}

/* ---- Opening ---- */

/* `definition` is the first line of the source. */
static enum salvo_status compile_library(
    const struct metal_device *device, const char *definition, objc_id options, objc_id *out)
{
    enum salvo_status status = SALVO_OK;
    objc_id error = NULL;
    char *source = NULL;
    const size_t bytes = strlen(definition) + sizeof kernel_source;
    TRY(NEW(&source, bytes));
    snprintf(source, bytes, "%s%s", definition, (const char *)kernel_source);
    *out =
        objc_new_library(device->physical->handle, objc_string(objc.string_class, source), options, &error);
    if (!*out)
        TRY(metal_fail(device, "newLibraryWithSource", error));
    TRY(objc_check(OBJC_LIBRARY, *out));
cleanup:
    memory_free(source);
    return status;
}

/* The exact library. A compiler that has no memory order of the whole system makes one without it: then ids
 * are seen when their command buffer ends. */
static enum salvo_status compile_exact(struct metal_device *device, objc_id options)
{
    enum salvo_status status =
        compile_library(device, "#define METAL_SYSTEM_SCOPE\n", options, &device->library);
    device->shows_ids = status == SALVO_OK;
    if (status == SALVO_ERROR_DEVICE && !device->library)
        status = compile_library(device, "", options, &device->library);
    return status;
}

/*
 * The exact library has all kernels. The fast one exists where the compiler has a mode that keeps infinities
 * and NaN, which kernels rely on; fast math of earlier compilers does not.
 */
static enum salvo_status compile_libraries(struct metal_device *device)
{
    enum salvo_status status = SALVO_OK;
    objc_id options = objc_new_compile_options(objc.compile_options_class);
    if (!options)
        TRY(metal_fail(device, "MTLCompileOptions", NULL));
    TRY(objc_check(OBJC_COMPILE_OPTIONS, options));
    if (!objc_understands(options, OBJC_set_math_mode)) {
        objc_set_fast_math(options, false);
        status = compile_library(device, "", options, &device->library);
        goto cleanup;
    }
    TRY(objc_check(OBJC_MATH_OPTIONS, options));
    objc_set_math_mode(options, MATH_SAFE);
    TRY(compile_exact(device, options));
    objc_set_math_mode(options, MATH_RELAXED);
    TRY(compile_library(device, "#define METAL_FAST_MATH\n", options, &device->fast_library));
cleanup:
    objc_release(options);
    return status;
}

static enum salvo_status open_residency(struct metal_device *device)
{
    enum salvo_status status = SALVO_OK;
    objc_id descriptor = NULL, error = NULL;
    if (!objc.residency_descriptor_class ||
        !objc_understands(device->physical->handle, OBJC_new_residency_set))
        return SALVO_OK;
    TRY(objc_check(OBJC_RESIDENCY_DESCRIPTOR_CLASS, objc.residency_descriptor_class));
    TRY(objc_check(OBJC_RESIDENCY_DEVICE, device->physical->handle));
    TRY(objc_check(OBJC_RESIDENCY_QUEUE, device->queue));
    descriptor = objc_new_residency_descriptor(objc.residency_descriptor_class);
    if (!descriptor)
        TRY(metal_fail(device, "MTLResidencySetDescriptor", NULL));
    device->residency = objc_new_residency_set(device->physical->handle, descriptor, &error);
    if (!device->residency)
        TRY(metal_fail(device, "newResidencySetWithDescriptor", error));
    TRY(objc_check(OBJC_RESIDENCY_SET, device->residency));
cleanup:
    objc_release(descriptor);
    return status;
}

void metal_keep_resident(const struct metal_device *device, const struct metal_buffer *buffer)
{
    if (device->residency && buffer->handle)
        objc_add_allocation(device->residency, buffer->handle);
}

void metal_request_residency(const struct metal_device *device)
{
    if (!device->residency)
        return;
    objc_commit_residency(device->residency);
    objc_request_residency(device->residency);
    objc_add_residency_set(device->queue, device->residency);
}

/* Shows the classes of command buffers and encoders, so that their methods can be checked before any step. */
static enum salvo_status check_commands(struct metal_device *device)
{
    enum salvo_status status = SALVO_OK;
    objc_id commands = objc_command_buffer(device->queue);
    if (!commands)
        TRY(metal_fail(device, "commandBuffer", NULL));
    TRY(objc_check(OBJC_COMMAND_BUFFER, commands));
    objc_id encoder = objc_encoder(commands, 1);
    if (!encoder)
        TRY(metal_fail(device, "computeCommandEncoder", NULL));
    status = objc_check(OBJC_ENCODER, encoder);
    if (objc_understands(encoder, OBJC_end_encoding))
        objc_end_encoding(encoder);
cleanup:
    return status;
}

enum salvo_status metal_device_open(uint32_t number, struct metal_device *out)
{
    enum salvo_status status = SALVO_OK;
    const struct metal_physical *physical = metal_device_at(number);
    *out = (struct metal_device){.physical = physical};
    if (!physical)
        return fail(SALVO_ERROR_ARGUMENT, "there is no Metal device %u", number);
    out->working_set = objc_working_set(physical->handle);
    out->largest_buffer = objc_largest_buffer(physical->handle);
    void *pool = objc.push_pool();
    out->queue = objc_new_queue(physical->handle);
    out->event = objc_new_event(physical->handle);
    if (!out->queue || !out->event)
        TRY(metal_fail(out, out->queue ? "newSharedEvent" : "newCommandQueue", NULL));
    TRY(objc_check(OBJC_STRING_CLASS, objc.string_class));
    TRY(objc_check(OBJC_COMPILE_OPTIONS_CLASS, objc.compile_options_class));
    TRY(objc_check(OBJC_CONSTANTS_CLASS, objc.constants_class));
    TRY(objc_check_instances(OBJC_ERROR, objc.error_class));
    TRY(objc_check(OBJC_QUEUE, out->queue));
    TRY(objc_check(OBJC_EVENT, out->event));
    TRY(check_commands(out));
    TRY(open_residency(out));
    TRY(compile_libraries(out));
cleanup:
    objc.pop_pool(pool);
    if (status != SALVO_OK)
        metal_device_close(out);
    return status;
}

void metal_device_close(struct metal_device *device)
{
    if (!device->physical)
        return;
    objc_release(device->fast_library);
    objc_release(device->library);
    objc_release(device->residency);
    objc_release(device->event);
    objc_release(device->queue);
    *device = (struct metal_device){0};
}

/* ---- Buffers ---- */

uint64_t metal_page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static enum salvo_status keep_buffer(
    struct metal_device *device, objc_id handle, uint64_t size, const char *what, struct metal_buffer *out)
{
    enum salvo_status status = SALVO_OK;
    if (!handle)
        return fail(SALVO_ERROR_MEMORY, "%s: no memory for %s of %llu MB", device->physical->name, what,
            (unsigned long long)(size / 1000000));
    *out = (struct metal_buffer){.handle = handle, .size = size};
    if (device->objects++ == 0)
        TRY(objc_check(OBJC_BUFFER, handle));
    out->bytes = objc_contents(handle);
cleanup:
    if (status != SALVO_OK)
        metal_buffer_close(out);
    return status;
}

enum salvo_status metal_buffer_open(
    struct metal_device *device, uint64_t size, const char *what, struct metal_buffer *out)
{
    const uint64_t bytes = size ? size : 4, most = device->largest_buffer;
    *out = (struct metal_buffer){0};
    if (bytes > most) {
        return fail(SALVO_ERROR_MEMORY,
            "%s of %llu MB: a buffer of %s has %llu MB at most; ask for a smaller batch "
            "or context",
            what, (unsigned long long)(bytes / 1000000), device->physical->name,
            (unsigned long long)(most / 1000000));
    }
    return keep_buffer(device, objc_new_buffer(device->physical->handle, bytes, 0), bytes, what, out);
}

enum salvo_status metal_buffer_map(
    struct metal_device *device, const uint8_t *bytes, uint64_t size, struct metal_buffer *out)
{
    void *start;
    memcpy(&start, &bytes, sizeof start); /* the device only reads it */
    *out = (struct metal_buffer){0};
    return keep_buffer(device, objc_new_buffer_without_copy(device->physical->handle, start, size, 0, NULL),
        size, "the mapped file", out);
}

void metal_buffer_close(struct metal_buffer *buffer)
{
    if (buffer->handle)
        objc_release(buffer->handle);
    *buffer = (struct metal_buffer){0};
}

/* ---- Pipelines ---- */

/* The library of a kernel. The kernels that most of the time is spent in may use fast math; the others round
 * as every backend does. */
static objc_id library_of(const struct metal_device *device, const char *kernel)
{
    static const char *const fast[] = {"attend", "join_parts", "matmul", "matmul_tiles", "wkv7"};
    for (size_t i = 0; device->fast_library && i < sizeof fast / sizeof *fast; i++) {
        if (strcmp(kernel, fast[i]) == 0)
            return device->fast_library;
    }
    return device->library;
}

enum salvo_status metal_pipeline_open(
    struct metal_device *device, uint32_t threads, struct metal_pipeline *in_out)
{
    enum salvo_status status = SALVO_OK;
    objc_id error = NULL, function = NULL, constants;
    void *pool = objc.push_pool();
    constants = objc_new_constants(objc.constants_class);
    if (!constants)
        TRY(metal_fail(device, "MTLFunctionConstantValues", NULL));
    TRY(objc_check(OBJC_CONSTANTS, constants));
    for (uint32_t i = 0; i < METAL_CONSTANTS; i++)
        objc_set_constant(constants, &in_out->constants[i], TYPE_UINT, i);
    function = objc_new_function(library_of(device, in_out->kernel),
        objc_string(objc.string_class, in_out->kernel), constants, &error);
    if (!function)
        TRY(metal_fail(device, in_out->kernel, error));
    in_out->handle = objc_new_pipeline(device->physical->handle, function, &error);
    if (!in_out->handle)
        TRY(metal_fail(device, in_out->kernel, error));
    device->objects++;
    TRY(objc_check(OBJC_PIPELINE, in_out->handle));
    if (objc_most_threads(in_out->handle) < threads || objc_simd_width(in_out->handle) != 32) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s: %s runs with %lu threads in simdgroups of %lu, not %u in 32",
            device->physical->name, in_out->kernel, objc_most_threads(in_out->handle),
            objc_simd_width(in_out->handle), threads));
    }
cleanup:
    objc_release(function);
    objc_release(constants);
    objc.pop_pool(pool);
    return status;
}

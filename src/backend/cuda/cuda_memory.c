/* Memory of the device and pinned memory of the host, copies between them, and the functions of the kernels.
 */
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_images.h"

#include <string.h>

enum { REGION_ALIGNMENT = 256, NOT_FOUND = 500 };

static unsigned long long megabytes(uint64_t bytes)
{
    return (unsigned long long)((bytes + 999999) / 1000000);
}

enum salvo_status cuda_memory_new(
    struct executor *executor, const char *what, uint64_t bytes, cuda_address *out)
{
    struct cuda_context *context = &executor->context;
    size_t left = 0, total = 0;
    *out = 0;
    if (bytes == 0)
        return SALVO_OK;
    int result = context->driver->memory_new(out, (size_t)bytes);
    if (result == CUDA_OUT_OF_MEMORY) {
        (void)context->driver->memory_info(&left, &total);
        return fail(SALVO_ERROR_MEMORY, "cuda device %u (%s): %s needs %llu MB; %llu MB of %llu MB are free",
            context->number, context->name, what, megabytes(bytes), megabytes(left), megabytes(total));
    }
    context->creations++;
    return cuda_context_result(context, cuda_driver_symbols.memory_new, result);
}

void cuda_memory_free(struct executor *executor, cuda_address address)
{
    if (address)
        (void)executor->context.driver->memory_free(address);
}

enum salvo_status cuda_host_new(struct executor *executor, const char *what, size_t bytes, void *out_pointer)
{
    struct cuda_context *context = &executor->context;
    void *memory = NULL;
    int result = context->driver->host_new(&memory, bytes, CUDA_HOST_MAPPED);
    if (result == CUDA_OK)
        memset(memory, 0, bytes);
    else
        memory = NULL;
    memcpy(out_pointer, &memory, sizeof memory);
    if (result == CUDA_OUT_OF_MEMORY) {
        return fail(SALVO_ERROR_MEMORY,
            "cuda device %u (%s): %llu MB of pinned memory for %s are not available", context->number,
            context->name, megabytes(bytes), what);
    }
    context->creations++;
    return cuda_context_result(context, cuda_driver_symbols.host_new, result);
}

void cuda_host_free(struct executor *executor, void *memory)
{
    if (memory)
        (void)executor->context.driver->host_free(memory);
}

enum salvo_status cuda_copy_in(struct executor *executor, cuda_address to, const void *from, size_t size)
{
    return size ? CUDA_CALL(&executor->context, copy_in, (to, from, size, executor->queue)) : SALVO_OK;
}

enum salvo_status cuda_queue_wait(struct executor *executor)
{
    return CUDA_CALL(&executor->context, stream_wait, (executor->queue));
}

enum salvo_status cuda_copy_out(struct executor *executor, void *to, cuda_address from, size_t size)
{
    enum salvo_status status = SALVO_OK;
    if (size) {
        TRY(CUDA_CALL(&executor->context, copy_out, (to, from, size, executor->queue)));
        TRY(cuda_queue_wait(executor));
    }
cleanup:
    return status;
}

cuda_address cuda_region_take(struct cuda_region *region, uint64_t bytes)
{
    const cuda_address address = region->base + region->used;
    region->used += (bytes + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT;
    return address;
}

/* The most dynamic shared memory that a block can have beside the kernel's static memory; each launch says
 * how much it needs. */
static enum salvo_status allow_shared_memory(struct executor *executor, cuda_function function)
{
    enum salvo_status status = SALVO_OK;
    int fixed = 0;
    TRY(CUDA_CALL(&executor->context, function_get, (&fixed, CUDA_FUNCTION_STATIC_BYTES, function)));
    TRY(CUDA_CALL(&executor->context, function_set,
        (function, CUDA_FUNCTION_SHARED_BYTES, executor->device->shared_bytes - fixed)));
cleanup:
    return status;
}

/* The file that contains a kernel. Asking each module for it would also work, but tools that watch the driver
 * count each failed query as an error. */
static const char *image_of(const char *kernel)
{
    static const struct {
        const char *begins, *image;
    } images[] = {
        {"salvo_decode", "decode"},
        {"salvo_flash_any", "flash_any"},
        {"salvo_flash_halves", "flash_halves"},
        {"salvo_flash_", "flash"},
        {"salvo_gemm_q8", "gemm_q8"},
        {"salvo_gemm_halves", "gemm_halves"},
        {"salvo_gemm_thin", "gemm_thin"},
        {"salvo_norm", "norm_many"},
        {"salvo_rotate", "rotate_many"},
        {"salvo_rwkv7_", "rwkv7_many"},
        {"salvo_gemm_", "gemm_float"},
        {"salvo_sample", "sample"},
        {"salvo_wkv7_chunks", "wkv7_chunks"},
        {"salvo_wkv7_prepare", "wkv7_chunks"},
        {"salvo_wkv7_", "wkv7_many"},
    };
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        if (strncmp(kernel, images[i].begins, strlen(images[i].begins)) == 0)
            return images[i].image;
    }
    return "rows_many";
}

/* CUDA_OK, or the driver's result; NOT_FOUND if the module for this device has no such kernel. */
static int look_up(const struct executor *executor, const char *name, cuda_function *out)
{
    for (uint32_t i = 0; i < executor->module_count; i++) {
        if (strcmp(cuda_images[i].name, image_of(name)) == 0)
            return executor->context.driver->module_function(out, executor->modules[i], name);
    }
    return NOT_FOUND;
}

enum salvo_status cuda_function_exists(struct executor *executor, const char *name, bool *out)
{
    cuda_function function;
    const int result = look_up(executor, name, &function);
    *out = result == CUDA_OK;
    return *out || result == NOT_FOUND
               ? SALVO_OK
               : cuda_context_result(&executor->context, cuda_driver_symbols.module_function, result);
}

enum salvo_status cuda_function_find(struct executor *executor, const char *name, cuda_function *out)
{
    *out = NULL;
    for (uint32_t i = 0; i < executor->function_count; i++) {
        if (strcmp(executor->functions[i].name, name) == 0) {
            *out = executor->functions[i].function;
            return SALVO_OK;
        }
    }
    const int result = look_up(executor, name, out);
    if (result == NOT_FOUND)
        return fail(SALVO_ERROR_DEVICE, "the kernel %s is not built in", name);
    if (result != CUDA_OK)
        return cuda_context_result(&executor->context, cuda_driver_symbols.module_function, result);
    if (executor->function_count < CUDA_FUNCTIONS) {
        executor->functions[executor->function_count].name = name;
        executor->functions[executor->function_count++].function = *out;
    }
    return allow_shared_memory(executor, *out);
}

/* A device in use: its primary context, and errors of calls in it. */
#include "backend/cuda/cuda_driver.h"
#include "base/log.h"

#include <stdio.h>

/* After these errors the context is unusable until its last user releases it. */
static bool is_fatal(int result)
{
    return result == 4 || result == 214 || result == 220 || result == 226 || result == 709 ||
           (result >= 700 && result <= 702) || (result >= 714 && result <= 719) || result == 999 ||
           result == 710;
}

enum salvo_status cuda_context_result(struct cuda_context *context, const char *call, int result)
{
    const char *text = NULL;
    if (result == CUDA_OK)
        return SALVO_OK;
    (void)context->driver->error_text(result, &text);
    text = text ? text : "unknown error";
    if (is_fatal(result) && !context->lost) {
        context->lost = true;
        snprintf(context->lost_text, sizeof context->lost_text, "%s: %s (%d)", call, text, result);
    }
    return fail(result == CUDA_OUT_OF_MEMORY ? SALVO_ERROR_MEMORY : SALVO_ERROR_DEVICE,
        "cuda device %u (%s): %s: %s (%d)", context->number, context->name, call, text, result);
}

enum salvo_status cuda_context_enter(struct cuda_context *context)
{
    if (context->lost) {
        return fail(SALVO_ERROR_DEVICE,
            "cuda device %u (%s) was lost by an earlier error: %s; the engine has to be opened again",
            context->number, context->name, context->lost_text);
    }
    return CUDA_CALL(context, context_push, (context->handle));
}

void cuda_context_leave(struct cuda_context *context)
{
    cuda_context_handle popped;
    (void)context->driver->context_pop(&popped);
}

enum salvo_status cuda_context_open(struct cuda_context *context, uint32_t number)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_device *device = cuda_device_at(number);
    *context = (struct cuda_context){.driver = cuda_driver_open(NULL), .number = number};
    if (!device)
        TRY(fail(SALVO_ERROR_ARGUMENT, "cuda has no device %u: %s", number, cuda_devices_why_none()));
    snprintf(context->name, sizeof context->name, "%s", device->name);
    TRY(CUDA_CALL(context, device_get, (&context->device, device->ordinal)));
    TRY(CUDA_CALL(context, context_retain, (&context->handle, context->device)));
cleanup:
    return status;
}

/* The last release destroys the context with its error. A reset would also destroy it for all other users in
 * the process. */
void cuda_context_close(struct cuda_context *context)
{
    unsigned flags;
    int active = 0;
    if (!context->handle)
        return;
    (void)context->driver->context_release(context->device);
    if (context->lost && context->driver->context_state(context->device, &flags, &active) == CUDA_OK &&
        active) {
        log_line(SALVO_LOG_WARNING,
            "cuda device %u (%s) was lost (%s) while others in this process use it: it works again when "
            "they have closed it",
            context->number, context->name, context->lost_text);
    }
    context->handle = NULL;
}

/* The devices of the CUDA driver that can be used, found once. */
#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/cuda_targets.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 64, OLDEST_MAJOR = 8, LEAST_SHARED = 48 << 10, WHY_SIZE = 200 };

static struct {
    struct cuda_device devices[MOST_DEVICES];
    uint32_t count, unusable_count;
    char unusable[MOST_DEVICES][WHY_SIZE]; /* why */
    char why[WHY_SIZE];                    /* there is none */
} found;

static pthread_once_t found_once = PTHREAD_ONCE_INIT;

static int attribute(const struct cuda_driver *driver, enum cuda_attribute which, int handle)
{
    int value = 0;
    return driver->device_attribute(&value, (int)which, handle) == CUDA_OK ? value : 0;
}

static void say_why(char why[WHY_SIZE], const char *text, int result)
{
    const char *error = NULL;
    (void)cuda_driver_open(NULL)->error_text(result, &error);
    snprintf(why, WHY_SIZE, "%s: %s (%d)", text, error ? error : "unknown error", result);
}

/* False when the device cannot be used, for a reason that is written to `why`. */
static bool examine(const struct cuda_driver *driver, int ordinal, const char *version,
    struct cuda_device *out, char why[WHY_SIZE])
{
    int handle, result = driver->device_get(&handle, ordinal);
    size_t memory = 0;
    *out = (struct cuda_device){.ordinal = ordinal};
    if (result == CUDA_OK)
        result = driver->device_name(out->name, sizeof out->name, handle);
    if (result == CUDA_OK)
        result = driver->device_memory(&memory, handle);
    if (result != CUDA_OK) {
        say_why(why, "a CUDA device does not answer", result);
        return false;
    }
    out->major = attribute(driver, CUDA_ATTRIBUTE_MAJOR, handle);
    out->minor = attribute(driver, CUDA_ATTRIBUTE_MINOR, handle);
    out->multiprocessors = attribute(driver, CUDA_ATTRIBUTE_MULTIPROCESSORS, handle);
    out->shared_bytes = attribute(driver, CUDA_ATTRIBUTE_SHARED_MEMORY, handle);
    out->has_watchdog = attribute(driver, CUDA_ATTRIBUTE_WATCHDOG, handle) != 0;
    out->bytes_per_second = 2e3 * attribute(driver, CUDA_ATTRIBUTE_MEMORY_CLOCK, handle) *
                            attribute(driver, CUDA_ATTRIBUTE_BUS_WIDTH, handle) / 8;
    if (out->major < OLDEST_MAJOR) {
        snprintf(why, WHY_SIZE, "%s has compute capability %d.%d; %d.0 is needed", out->name, out->major,
            out->minor, OLDEST_MAJOR);
        return false;
    }
    if (!attribute(driver, CUDA_ATTRIBUTE_CAN_MAP_HOST_MEMORY, handle) ||
        !attribute(driver, CUDA_ATTRIBUTE_COOPERATIVE_LAUNCH, handle)) {
        snprintf(why, WHY_SIZE, "%s cannot map host memory or launch cooperatively", out->name);
        return false;
    }
    if (out->multiprocessors < 1 || out->shared_bytes < LEAST_SHARED) {
        snprintf(why, WHY_SIZE,
            "%s reports %d multiprocessors and %d bytes of shared memory; %d bytes are needed", out->name,
            out->multiprocessors, out->shared_bytes, LEAST_SHARED);
        return false;
    }
    char kernels[100];
    cuda_targets_describe(cuda_targets, out->major, out->minor, kernels, sizeof kernels);
    snprintf(out->features, sizeof out->features, "compute %d.%d, driver for CUDA %s%s%s", out->major,
        out->minor, version, *kernels ? ", " : "", kernels);
    out->device = (struct salvo_device){
        .backend = "cuda",
        .name = out->name,
        .features = out->features,
        .cores = (uint32_t)out->multiprocessors,
        .memory = memory,
    };
    return true;
}

static void find_devices(void)
{
    const char *why;
    const struct cuda_driver *driver = cuda_driver_open(&why);
    int count = 0, version = 0;
    char version_text[16];
    if (!driver) {
        snprintf(found.why, sizeof found.why, "%s", why);
        return;
    }
    int result = driver->device_count(&count);
    if (result != CUDA_OK)
        say_why(found.why, "CUDA devices cannot be counted", result);
    else
        snprintf(found.why, sizeof found.why, "the CUDA driver knows none");
    (void)driver->version(&version);
    cuda_driver_version_text(version, version_text, sizeof version_text);
    for (int i = 0; i < count && i < MOST_DEVICES; i++) {
        struct cuda_device *device = &found.devices[found.count];
        char reason[WHY_SIZE];
        if (examine(driver, i, version_text, device, reason))
            device->device.number = found.count++;
        else
            memcpy(found.unusable[found.unusable_count++], reason, sizeof reason);
    }
}

const struct cuda_device *cuda_device_at(uint32_t number)
{
    pthread_once(&found_once, find_devices);
    return number < found.count ? &found.devices[number] : NULL;
}

const char *cuda_devices_why_none(void)
{
    pthread_once(&found_once, find_devices);
    return found.unusable_count ? found.unusable[0] : found.why;
}

const char *cuda_devices_unusable(uint32_t index)
{
    pthread_once(&found_once, find_devices);
    return index < found.unusable_count ? found.unusable[index] : NULL;
}

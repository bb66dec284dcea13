/* The devices of all backends, one after the other. */
#include "engine/arguments.h"
#include "engine/backends.h"

size_t salvo_device_count(void)
{
    size_t count = 0;
    for (size_t i = 0; all_backends[i]; i++)
        count += all_backends[i]->device_count();
    return count;
}

enum salvo_status salvo_device_at(size_t index, struct salvo_device *out)
{
    size_t left = index;
    REQUIRE(out);
    for (size_t i = 0; all_backends[i]; i++) {
        const uint32_t count = all_backends[i]->device_count();
        if (left < count) {
            const struct salvo_device device = all_backends[i]->device((uint32_t)left);
            return result_write("salvo_device", &device, sizeof device, out);
        }
        left -= count;
    }
    return fail(SALVO_ERROR_ARGUMENT, "device %zu was asked for; there are %zu", index, salvo_device_count());
}

const char *salvo_device_unusable(size_t index, const char **out_backend)
{
    for (size_t i = 0; all_backends[i]; i++) {
        const struct backend *backend = all_backends[i];
        if (out_backend)
            *out_backend = backend->name;
        for (uint32_t j = 0; backend->unusable && backend->unusable(j); j++) {
            if (index-- == 0)
                return backend->unusable(j);
        }
    }
    if (out_backend)
        *out_backend = "";
    return NULL;
}

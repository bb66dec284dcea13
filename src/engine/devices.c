/* The devices a model can run on: those of every backend, one after the other. */
#include "engine/backends.h"

size_t salvo_device_count(void)
{
    size_t count = 0;
    for (size_t i = 0; all_backends[i]; i++)
        count += all_backends[i]->device_count();
    return count;
}

struct salvo_device salvo_device_at(size_t index)
{
    for (size_t i = 0; all_backends[i]; i++) {
        uint32_t count = all_backends[i]->device_count();
        if (index < count)
            return all_backends[i]->device((uint32_t)index);
        index -= count;
    }
    return (struct salvo_device){.backend = "", .name = "", .features = ""};
}

const char *salvo_device_unusable(size_t index, const char **out_backend)
{
    for (size_t i = 0; all_backends[i]; i++) {
        const struct backend *backend = all_backends[i];
        *out_backend = backend->name;
        for (uint32_t j = 0; backend->unusable && backend->unusable(j); j++) {
            if (index-- == 0)
                return backend->unusable(j);
        }
    }
    *out_backend = "";
    return NULL;
}

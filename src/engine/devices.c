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

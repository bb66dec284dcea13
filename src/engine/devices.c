/* The devices a model can run on. */
#include "base/cpu.h"
#include "base/status.h"

size_t salvo_device_count(void)
{
    return 1;
}

struct salvo_device salvo_device_at(size_t index)
{
    (void)index;
    return (struct salvo_device){
        .backend = "cpu",
        .name = cpu_name(),
        .features = cpu_feature_names(),
        .cores = cpu_physical_cores(),
        .memory = cpu_memory_bytes(),
    };
}

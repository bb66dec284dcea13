/* The driver without a GPU that the environment names, for tests that control it. */
#ifndef TESTS_FIND_FAKE_CUDA_H
#define TESTS_FIND_FAKE_CUDA_H

#include "cuda/fake_cuda.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static inline struct fake_cuda *find_fake_cuda(void)
{
    const char *path = getenv("SALVO_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    void *symbol = library ? dlsym(library, "fake_cuda_control") : NULL;
    fake_cuda_function control;
    if (!symbol)
        return NULL;
    memcpy(&control, &symbol, sizeof control);
    return control();
}

/* Set up by find_fake, the group setup of tests that need the driver. */
static struct fake_cuda *fake;

static inline int find_fake(void **state)
{
    (void)state;
    fake = find_fake_cuda();
    return fake ? 0 : -1;
}

/* The nth launch from now on that takes a step fails; a block stalls from some round of the emulator on. */
static inline void fake_fail(unsigned long nth, enum fake_failure failure)
{
    fake->fails_at = fake->steps + nth;
    fake->failure = failure;
}

static inline void fake_stall(unsigned long nth, unsigned block, unsigned round)
{
    fake_fail(nth, FAKE_STALL);
    fake->stalled_block = block;
    fake->stall_round = round;
}

#endif

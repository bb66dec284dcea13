/* The driver without a GPU that the environment names, for tests that look into it; NULL: there is none. */
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

/* The nth launch from now on that takes a step fails; a block stalls from some round of the emulator on. */
static inline void fake_fail(struct fake_cuda *fake, unsigned long nth, enum fake_failure failure)
{
    fake->fails_at = fake->steps + nth;
    fake->failure = failure;
}

static inline void fake_stall(struct fake_cuda *fake, unsigned long nth, unsigned block, unsigned round)
{
    fake_fail(fake, nth, FAKE_STALL);
    fake->stalled_block = block;
    fake->stall_round = round;
}

#endif

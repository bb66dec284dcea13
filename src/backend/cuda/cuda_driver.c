#include "backend/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOL_NAME(name, symbol, parameters) .name = #symbol,
const struct cuda_driver_symbols cuda_driver_symbols = {CUDA_DRIVER_CALLS(SYMBOL_NAME)};

/* Version 12.0 introduced launches with attributes and the graph functions in use. */
enum { OLDEST_DRIVER = 12000 };

static struct {
    struct cuda_driver driver;
    bool usable;
    char why[200];
} library;

static pthread_once_t library_once = PTHREAD_ONCE_INIT;

void cuda_driver_version_text(int version, char *text, size_t size)
{
    snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Puts the address of a function into a table of pointers to functions, which no cast can do. */
static bool find(void *handle, const char *symbol, void *out_function)
{
    void *address = dlsym(handle, symbol);
    memcpy(out_function, &address, sizeof address);
    if (!address)
        snprintf(library.why, sizeof library.why, "the CUDA driver is too old: it has no %s", symbol);
    return address != NULL;
}

static void open_library(void)
{
    const char *name = getenv("SALVO_CUDA_LIBRARY"); /* for tests */
    void *handle = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0, result;
    if (!handle) {
        snprintf(library.why, sizeof library.why, "there is no CUDA driver (%s)", dlerror());
        return;
    }
#define FIND(name, symbol, parameters)                \
    if (!find(handle, #symbol, &library.driver.name)) \
        return;
    CUDA_DRIVER_CALLS(FIND)
#undef FIND
    result = library.driver.init(0);
    if (result != CUDA_OK) {
        const char *text = NULL;
        (void)library.driver.error_text(result, &text);
        snprintf(library.why, sizeof library.why, "the CUDA driver does not start: %s (%d)",
            text ? text : "unknown error", result);
        return;
    }
    if (library.driver.version(&version) != CUDA_OK || version < OLDEST_DRIVER) {
        char has[16], needs[16];
        cuda_driver_version_text(version, has, sizeof has);
        cuda_driver_version_text(OLDEST_DRIVER, needs, sizeof needs);
        snprintf(library.why, sizeof library.why, "the driver is for CUDA %s; %s is needed", has, needs);
        return;
    }
    library.usable = true;
}

const struct cuda_driver *cuda_driver_open(const char **out_why)
{
    pthread_once(&library_once, open_library);
    if (out_why)
        *out_why = library.why;
    return library.usable ? &library.driver : NULL;
}

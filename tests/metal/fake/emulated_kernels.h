/* The kernels of src/backend/metal/shaders, compiled as C++, and how a dispatch calls them. */
#ifndef TESTS_METAL_EMULATED_KERNELS_H
#define TESTS_METAL_EMULATED_KERNELS_H

#include "backend/metal/metal_shared.h"

#include <cstddef>
#include <set>
#include <string>

enum { MOST_BINDINGS = 11 };

/* A threadgroup's view of a dispatch. */
struct kernel_call {
    void *bindings[MOST_BINDINGS]; /* nullptr: not bound */
    unsigned groups[3];
};

struct emulated_kernel {
    const char *name;
    unsigned bindings;      /* buffers and bytes, from index 0 on */
    unsigned host_bindings; /* a bit for each that the host reads while the kernel runs */
    bool has_threadgroup_memory;
    void (*run)(const kernel_call &call); /* as one thread of the emulator */
};

/* A kernel of the library with fast math, or of the exact one. NULL: there is no such kernel. */
const emulated_kernel *find_kernel(const std::string &name, bool is_fast);

/* The name of a kernel that has not run in either library; NULL: all have. */
const char *find_idle_kernel(const std::set<std::string> &have_run);

void set_function_constants(const unsigned values[METAL_CONSTANTS]);

/* Which elements of a simdgroup matrix each lane has, at random. */
void set_matrix_order(unsigned seed);

/* Whether the library of the next kernel has fences of the whole system; the function that such a fence
 * calls. */
void set_system_scope(bool is_there);
void fence_of_system();

/* All threads of a threadgroup have come to a barrier, which orders the accesses to some memory; a thread
 * accesses an element of a simdgroup matrix. */
void pass_barrier(bool orders_device, bool orders_threadgroup);
void note_element(const float *at, bool writes);

#endif

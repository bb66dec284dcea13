/* What tests tell the CUDA driver without a GPU (fake_cuda.cpp) to do wrong. */
#ifndef TESTS_CUDA_FAKE_CUDA_H
#define TESTS_CUDA_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

struct fake_cuda {
    unsigned long calls;   /* so far */
    unsigned long fail_at; /* the call of this number fails, once; 0: none */
    int code;              /* what it returns */
    bool idle;             /* kernels are not run */
    size_t memory;         /* of the device, bytes */
    size_t taken;          /* of it, and of pinned memory */
    unsigned long wide;    /* launches of kernels for warpgroups so far */
    unsigned given_up_at;  /* the phase at which every launch of the decode kernel is given up; 0: none */
    int occupancy; /* blocks of a kernel on a multiprocessor; 0: blocks run one after the other, and cannot be
                      launched together */
    unsigned long pieces; /* matmuls that take their input in pieces, of all launches so far */
};

/* Found by name in the library: "fake_cuda_control". */
typedef struct fake_cuda *(*fake_cuda_function)(void);

#endif

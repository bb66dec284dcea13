/* Faults that tests ask of the CUDA driver without a GPU (fake_cuda.cpp), and its counters. */
#ifndef TESTS_CUDA_FAKE_CUDA_H
#define TESTS_CUDA_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Failures of a launch that takes a step. */
enum fake_failure {
    FAKE_STALL, /* one of its blocks stops at some round of the emulator, until the others have timed out */
    FAKE_WRONG_NUMBER, /* the device has lost count of the steps */
    FAKE_WRONG_PLAN,   /* the step is for another plan */
};

struct fake_cuda {
    unsigned long calls;    /* so far */
    unsigned long fail_at;  /* the call of this number fails, once; 0: none */
    int code;               /* what it returns */
    bool idle;              /* kernels are not run */
    size_t memory;          /* of the device, bytes */
    size_t taken;           /* of it, and of pinned memory */
    unsigned long wide;     /* launches of kernels for warpgroups so far */
    unsigned long clusters; /* launches with clusters of blocks so far */
    bool resident; /* blocks of a grid run together; if not, one after the other, and cooperative launches
                      fail */
    unsigned long pieces; /* matmuls that take their input in pieces, of all launches so far */

    unsigned long steps;    /* launches so far that take a step */
    unsigned long fails_at; /* the one of this number fails, once; 0: none */
    enum fake_failure failure;
    unsigned stall_round, stalled_block;
    unsigned rounds; /* of the scheduler, in the last launch of the decode kernel that did not stall */
    unsigned long longest_ns; /* of all launches that take a step, and of the launches of the same graph */
    uint64_t round_ns;        /* duration of a round */

    int contexts; /* users of the primary context */
    int resets;   /* of it, so far */
};

/* Found by name in the library: "fake_cuda_control". */
typedef struct fake_cuda *(*fake_cuda_function)(void);

#endif

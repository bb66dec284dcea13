/* Settings and counters of the Metal without a GPU (fake_metal.cpp), for tests. */
#ifndef TESTS_FAKE_METAL_H
#define TESTS_FAKE_METAL_H

#ifdef __cplusplus
extern "C" {
#endif

struct fake_metal {
    unsigned long creations, fail_creation; /* the nth `new...` call gives nil; 0: none */
    unsigned long commits, lose_commit;     /* the nth command buffer ends with an error; 0: none */
    unsigned long error_code;               /* of that error */
    unsigned long dispatches, barriers, encoders;
    unsigned long live_objects; /* without those of the runtime itself */
    unsigned long memory;       /* recommendedMaxWorkingSetSize, maxBufferLength */
    unsigned long largest_buffer;
    unsigned long violations; /* of the rules of Metal, races among them */
    char first_violation[256];
    int records_races; /* whether accesses of kernels are compared */
};

/* SALVO_METAL_LIBRARY has it as `fake_metal_control`. */
typedef struct fake_metal *(*fake_metal_function)(void);

#ifdef __cplusplus
}
#endif

#endif

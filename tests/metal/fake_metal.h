/* Settings and counters of the Metal without a GPU (fake/), for tests. */
#ifndef TESTS_FAKE_METAL_H
#define TESTS_FAKE_METAL_H

#ifdef __cplusplus
extern "C" {
#endif

struct fake_metal {
    unsigned long creations, fail_creation; /* the nth `new...` call gives nil; 0: none */
    unsigned long commits, lose_commit;     /* the nth command buffer ends with an error; 0: none */
    unsigned long error_code;               /* of that error */
    unsigned long cut_commit; /* the nth command buffer is the last before `cut_file` loses its last byte */
    const char *cut_file;
    unsigned long dispatches, barriers, encoders;
    unsigned long dispatch_ns;  /* that a command takes */
    unsigned long row_ns;       /* and each row of a matmul */
    unsigned long longest_ns;   /* that a command buffer took */
    unsigned long most_waiting; /* command buffers of a queue that were committed and had not ended */
    /* Matmuls of this shape take less time, with these sums still less; those of the whole shape. */
    unsigned long quick_rows, quick_simdgroups, quick_sums, quick_dispatches;
    unsigned long ignore_barrier; /* the nth barrier does nothing; 0: none */
    unsigned long live_objects;   /* without the objects of the runtime itself */
    unsigned long memory;         /* recommendedMaxWorkingSetSize, maxBufferLength */
    unsigned long largest_buffer;
    unsigned long most_threads, simd_width; /* of every pipeline */
    int has_unified_memory, is_apple7;      /* the device */
    unsigned long violations;               /* of the rules of Metal, races among them */
    char first_violation[256];
    int records_races;       /* whether accesses of kernels are compared */
    const char *idle_kernel; /* that has not run since the library was loaded; NULL: all have */
    int (*has_run)(const char *kernel, unsigned constant, unsigned value); /* with this function constant */
    unsigned long resident;       /* buffers that are kept resident */
    unsigned long fast_functions; /* made from a library with fast math */
    int refuses_system_scope;     /* the compiler has no fences of the whole system */
    unsigned long most_parts;     /* that a wait without time runs of a command buffer, between barriers */
    unsigned long interruptions;  /* such waits that left a command buffer unfinished */
    const char *hidden_method;    /* a selector that no class has; NULL: none */
    const char *changed_method;   /* a selector whose method has other types; NULL: none */
};

/* SALVO_METAL_LIBRARY has it as `fake_metal_control`. */
typedef struct fake_metal *(*fake_metal_function)(void);

#ifdef __cplusplus
}
#endif

#endif

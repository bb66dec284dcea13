/* What the processor is and can do. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum cpu_feature {
    CPU_NEON_DOTPROD = 1,
    CPU_NEON_I8MM = 2,
    CPU_NEON_FP16 = 4,
    CPU_NEON_FHM = 32,    /* products of halves added to floats; every core with i8mm has it */
    CPU_AVX2 = 8,         /* with FMA and F16C, as on every processor that has it */
    CPU_AVX512_VNNI = 16, /* with F, BW, DQ and VL */
};

unsigned cpu_features(void);

/* "dotprod i8mm fp16"; lives for ever. */
const char *cpu_feature_names(void);

const char *cpu_name(void);        /* "Neoverse-V1"; never empty */
uint32_t cpu_physical_cores(void); /* that this process may use; at least 1 */
uint64_t cpu_memory_bytes(void);   /* of the machine; 0 when unknown */

#endif

/* Name, features and cores of the processor. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum cpu_feature {
    CPU_NEON_DOTPROD = 1,
    CPU_NEON_I8MM = 2,
    CPU_NEON_FP16 = 4,
    CPU_NEON_FHM = 32,    /* fp16 products added to float32 (FMLAL); every core with i8mm has it */
    CPU_AVX2 = 8,         /* with FMA and F16C */
    CPU_AVX_VNNI = 128,   /* VPDPBUSD without AVX-512 */
    CPU_AVX512_VNNI = 16, /* with F, BW, DQ and VL */
    CPU_AMX_INT8 = 64,    /* tiles that the system lets this process use */
};

unsigned cpu_features(void);

/* "dotprod i8mm fp16"; a static string. */
const char *cpu_feature_names(void);

const char *cpu_name(void);        /* "Neoverse-V1"; never empty */
uint32_t cpu_physical_cores(void); /* that the process may use; at least 1 */
uint64_t cpu_memory_bytes(void);   /* of the machine; 0 when unknown */

#endif

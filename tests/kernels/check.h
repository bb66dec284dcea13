/*
 * Common to the kernel checks, after dav1d's checkasm: random inputs, outputs between guards, and a clock.
 * Each file check_*.c compares the kernels of a table with the scalar ones, and times them when asked.
 */
#ifndef CHECK_H
#define CHECK_H

#include "backend/cpu/kernels.h"

#include <stdio.h>

uint64_t random_bits(void);
float random_float(void);           /* -1 .. 1 */
float random_extreme(void);         /* any float: NaN, infinities, denormals, zeros more often */
uint16_t random_half(bool extreme); /* f16, of sane size unless extreme */
void random_bytes(void *to, size_t bytes);

/* Memory of exactly this size, filled with NaN (0xFF), with guards around it that guarded_free checks. */
void *guarded_new(size_t bytes);
void guarded_free(void *memory);

/* Says once per kernel what failed: "what" is printed with the table's name. */
void check_begin(const struct cpu_kernels *kernels, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void check_same_floats(
    const char *what, const float *got, const float *want, size_t count); /* any NaN is a NaN */
void check_same_bytes(const char *what, const void *got, const void *want, size_t count);
void check_that(bool holds, const char *what);

/* Best time of one call in seconds. */
double bench(void (*call)(void *), void *argument);
bool bench_wanted(const char *name);
void bench_print(
    const struct cpu_kernels *kernels, const char *name, double amount, const char *unit, double seconds);

void check_matmul(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar);
void bench_matmul(const struct cpu_kernels *kernels);
void check_packing(void);

void check_rows(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar);
void bench_rows(const struct cpu_kernels *kernels);
void check_recurrent(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar);
void bench_recurrent(const struct cpu_kernels *kernels);
void check_attend(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar);
void bench_attend(const struct cpu_kernels *kernels);

#endif

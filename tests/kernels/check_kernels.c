/*
 * check-kernels                    compares every table this processor can run with the scalar one
 * check-kernels --bench [FILTER]   times every kernel whose "table/name" contains FILTER
 * check-kernels --seed N           other random inputs
 */
#include "check.h"

#include "quant/half.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Random inputs ----------------------------------------------------------------------------------------
 */

static uint64_t random_state = 1;

uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

float random_float(void)
{
    return (float)((int64_t)(random_bits() >> 40) - (1 << 23)) * 0x1p-23f;
}

float random_extreme(void)
{
    static const float special[] = {
        0, -0.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-130f, 0x1p-126f, 3e38f, -3e38f};
    uint64_t choice = random_bits();
    if (choice % 4 == 0)
        return special[choice / 4 % (sizeof special / sizeof *special)];
    uint32_t bits = (uint32_t)random_bits();
    float value;
    memcpy(&value, &bits, sizeof value);
    return choice % 4 == 1 ? value : random_float();
}

uint16_t random_half(bool extreme)
{
    static const uint16_t special[] = {0, 0x8000, 0x7c00, 0xfc00, 0x7e00, 1, 0x8001, 0x3ff, 0x7bff, 0xfbff};
    uint64_t bits = random_bits();
    if (extreme && bits % 2)
        return special[bits / 2 % (sizeof special / sizeof *special)];
    return (uint16_t)((bits >> 16 & 0x83ff) | (4 + (bits >> 40) % 10) << 10); /* 2^-11 .. 2^-1 */
}

void random_bytes(void *to, size_t bytes)
{
    uint8_t *byte = to;
    for (size_t i = 0; i < bytes; i++)
        byte[i] = (uint8_t)random_bits();
}

/* ---- Guards
 * ------------------------------------------------------------------------------------------------ */

enum { GUARD = 64, GUARD_BYTE = 0xa5, POISON = 0xff };

void *guarded_new(size_t bytes)
{
    uint8_t *memory = malloc(GUARD + bytes + GUARD);
    if (!memory)
        abort();
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + sizeof bytes, GUARD_BYTE, GUARD - sizeof bytes);
    memset(memory + GUARD, POISON, bytes);
    memset(memory + GUARD + bytes, GUARD_BYTE, GUARD);
    return memory + GUARD;
}

void guarded_free(void *memory)
{
    uint8_t *begin = (uint8_t *)memory - GUARD;
    size_t bytes;
    memcpy(&bytes, begin, sizeof bytes);
    bool intact = true;
    for (size_t i = sizeof bytes; i < GUARD; i++)
        intact &= begin[i] == GUARD_BYTE;
    for (size_t i = 0; i < GUARD; i++)
        intact &= begin[GUARD + bytes + i] == GUARD_BYTE;
    check_that(intact, "wrote outside its output");
    free(begin);
}

/* ---- Verdicts
 * ------------------------------------------------------------------------------------------------ */

static char current[160];
static size_t checks, failures;
static bool current_failed;

void check_begin(const struct cpu_kernels *kernels, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int used = snprintf(current, sizeof current, "%s ", kernels ? kernels->name : "");
    vsnprintf(current + used, sizeof current - (size_t)used, format, arguments);
    va_end(arguments);
    current_failed = false;
    checks++;
}

/* Only the first failure is reported. */
static bool first_failure(void)
{
    bool first = !current_failed;
    failures += first;
    current_failed = true;
    return first && failures <= 50;
}

void check_that(bool holds, const char *what)
{
    if (!holds && first_failure())
        printf("FAILED %s: %s\n", current, what);
}

void check_same_floats(const char *what, const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool same = f32_bits(got[i]) == f32_bits(want[i]) || (isnan(got[i]) && isnan(want[i]));
        if (!same && first_failure())
            printf("FAILED %s: %s[%zu] is %a (%g), not %a (%g)\n", current, what, i, (double)got[i],
                (double)got[i], (double)want[i], (double)want[i]);
    }
}

void check_same_bytes(const char *what, const void *got, const void *want, size_t count)
{
    const uint8_t *a = got, *b = want;
    for (size_t i = 0; i < count; i++) {
        if (a[i] != b[i] && first_failure())
            printf("FAILED %s: byte %zu of %s is %d, not %d\n", current, i, what, a[i], b[i]);
    }
}

/* ---- The clock
 * -------------------------------------------------------------------------------------------------- */

static const char *bench_filter;
static const struct cpu_kernels *benched;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double bench(void (*call)(void *), void *argument)
{
    double best = INFINITY, end = now() + 0.2;
    for (size_t calls = 1; now() < end;) {
        double begin = now();
        for (size_t i = 0; i < calls; i++)
            call(argument);
        double took = now() - begin;
        best = fmin(best, took / (double)calls);
        if (took < 1e-3)
            calls *= 2;
    }
    return best;
}

bool bench_wanted(const char *name)
{
    char full[80];
    snprintf(full, sizeof full, "%s/%s", benched->name, name);
    return strstr(full, bench_filter) != NULL;
}

void bench_print(
    const struct cpu_kernels *kernels, const char *name, double amount, const char *unit, double seconds)
{
    printf(
        "%-14s %-24s %9.2f us %9.2f %s\n", kernels->name, name, seconds * 1e6, amount / seconds * 1e-9, unit);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--bench") == 0)
            bench_filter = i + 1 < count ? arguments[++i] : "";
        else if (strcmp(arguments[i], "--seed") == 0 && i + 1 < count)
            random_state = strtoull(arguments[++i], NULL, 0);
        else
            return fprintf(stderr, "usage: check-kernels [--bench [FILTER]] [--seed N]\n"), 2;
    }
    const struct cpu_kernels *scalar = cpu_kernels_find("scalar");
    if (!bench_filter)
        check_packing();
    attend_page_function *attend_page = NULL; /* some tables share rows and attention: once is enough */
    for (size_t i = cpu_kernels_count(); i-- > 0;) {
        bool usable;
        const struct cpu_kernels *kernels = cpu_kernels_at(i, &usable);
        if (!usable) {
            printf("%s: not on this processor\n", kernels->name);
        } else if (bench_filter) {
            benched = kernels;
            bench_matmul(kernels);
            if (kernels->attend_page != attend_page) {
                bench_rows(kernels);
                bench_recurrent(kernels);
                bench_attend(kernels);
            }
            attend_page = kernels->attend_page;
        } else {
            size_t before = failures;
            check_matmul(kernels, scalar);
            if (kernels->attend_page != attend_page) {
                check_rows(kernels, scalar);
                check_recurrent(kernels, scalar);
                check_attend(kernels, scalar);
            }
            attend_page = kernels->attend_page;
            printf("%s: %zu failed\n", kernels->name, failures - before);
        }
    }
    if (!bench_filter)
        printf("%zu checks, %zu failed\n", checks, failures);
    return failures != 0;
}

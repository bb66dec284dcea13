/* Features of the processor, against what the kernel (Arm) or the compiler's runtime library (x86) finds. */
#include "cmocka_test.h"

#include "base/cpu.h"

#include <stdio.h>
#include <string.h>

#if defined(__aarch64__) || defined(__x86_64__)
/* The words of the kernel's list; false if there is none, as under qemu on another machine. */
static bool read_list(char *list, int size)
{
#if defined(__aarch64__)
    static const char title[] = "Features";
#else
    static const char title[] = "flags";
#endif
    FILE *file = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (file && !found && fgets(list, size, file))
        found = strncmp(list, title, sizeof title - 1) == 0;
    if (file)
        fclose(file);
    list[strcspn(list, "\n")] = ' ';
    return found;
}
#endif

static void features_agree(void **state)
{
    (void)state;
    unsigned found = cpu_features();
#if defined(__aarch64__)
    char list[4096] = "";
    if (!read_list(list, sizeof list))
        skip();
    assert_int_equal((found & CPU_NEON_DOTPROD) != 0, strstr(list, " asimddp ") != NULL);
    assert_int_equal((found & CPU_NEON_FP16) != 0, strstr(list, " asimdhp ") != NULL);
    assert_int_equal((found & CPU_NEON_FHM) != 0, strstr(list, " asimdfhm ") != NULL);
    assert_int_equal((found & CPU_NEON_I8MM) != 0, strstr(list, " i8mm ") != NULL);
    assert_false(found & (CPU_AVX2 | CPU_AVX_VNNI | CPU_AVX512_VNNI | CPU_AMX_INT8));
#elif defined(__x86_64__)
    char list[8192] = "";
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512vnni");
    assert_int_equal((found & CPU_AVX2) != 0, avx2);
    assert_int_equal((found & CPU_AVX512_VNNI) != 0, avx512);
    assert_true(avx512 || !(found & CPU_AMX_INT8));
    assert_true(avx2 || !(found & CPU_AVX_VNNI));
    if (read_list(list, sizeof list) && strstr(list, " avx_vnni ")) /* older kernels do not name it */
        assert_true(found & CPU_AVX_VNNI);
    assert_false(found & (CPU_NEON_DOTPROD | CPU_NEON_FP16 | CPU_NEON_FHM | CPU_NEON_I8MM));
#else
    assert_int_equal(found, 0);
#endif
}

static void names_agree(void **state)
{
    (void)state;
    const char *names = cpu_feature_names();
    assert_int_equal((cpu_features() & CPU_NEON_DOTPROD) != 0, strstr(names, "dotprod") != NULL);
    assert_int_equal((cpu_features() & CPU_AVX2) != 0, strstr(names, "avx2") != NULL);
    assert_true(cpu_name()[0] != 0);
    assert_true(cpu_physical_cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(features_agree), cmocka_unit_test(names_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

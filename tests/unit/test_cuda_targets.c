/* How devices run the kernels that a build compiled. */
#include "cmocka_test.h"

#include "backend/cuda/cuda_targets.h"

#include <string.h>

static void devices_run_their_own_kernels_or_say_which(void **state)
{
    (void)state;
    static const struct {
        const char *targets;
        int major, minor;
        const char *expected;
    } cases[] = {
        {"80 86 89 90a 100 120 ptx", 8, 0, ""},
        {"80 86 89 90a 100 120 ptx", 9, 0, ""},
        {"80 86 89 90a 100 120 ptx", 12, 0, ""},
        {"80 86 89 90a 100 120 ptx", 8, 7, "runs kernels for sm_86: SALVO_CUDA_ARCHS=87 builds its own"},
        {"80 86 89 90a 100 120 ptx", 12, 1, "runs kernels for sm_120: SALVO_CUDA_ARCHS=121 builds its own"},
        {"80 86 89 90a 100 120 ptx", 11, 0,
            "kernels are compiled at run time: SALVO_CUDA_ARCHS=110 builds them"},
        {"ptx", 8, 9, "kernels are compiled at run time: SALVO_CUDA_ARCHS=89 builds them"},
        {"ptx", 9, 0, "kernels are compiled at run time: SALVO_CUDA_ARCHS=90a builds them"},
        {"90", 9, 0, "runs kernels for sm_90: SALVO_CUDA_ARCHS=90a builds its own"},
        {"90a", 8, 9, "this build has no kernels for it: SALVO_CUDA_ARCHS=89 builds them"},
        {"86", 8, 0, "this build has no kernels for it: SALVO_CUDA_ARCHS=80 builds them"},
        {"90a", 9, 1, "this build has no kernels for it: SALVO_CUDA_ARCHS=91 builds them"},
        {"", 8, 0, "this build has no kernels for it: SALVO_CUDA_ARCHS=80 builds them"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        assert_string_equal(
            cuda_targets_describe(cases[i].targets, cases[i].major, cases[i].minor, text, sizeof text),
            cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_run_their_own_kernels_or_say_which),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* `salvo verify` of a model that make-model makes, on CUDA against the CPU. */
#ifndef TESTS_CUDA_VERIFY_ON_CUDA_H
#define TESTS_CUDA_VERIFY_ON_CUDA_H

#include "cmocka_test.h"
#include "engine_fixture.h"

/* After `count` ids, 6 at most. */
static inline void verify_on_cuda(
    const char *shape, const char *mix, enum salvo_kv_type kv_type, size_t count)
{
    const int32_t ids[] = {1, 5, 3, 4, 96, 6};
    assert_true(verify_against_cpu("cuda", made_model(shape, mix), kv_type, ids, count).outputs > 20);
}

#endif

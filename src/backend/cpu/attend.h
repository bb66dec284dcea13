/* Attention functions of each instruction set; kernels.h defines their results and order of summation. */
#ifndef CPU_ATTEND_H
#define CPU_ATTEND_H

#include "backend/cpu/kernels.h"

#define DECLARE_ATTEND(isa)                                                                          \
    attend_page_function isa##_attend_page;                                                          \
    void isa##_attend_merge(struct attend_result from, size_t head_dim, struct attend_result *into); \
    void isa##_attend_finish(struct attend_result result, size_t head_dim, float *out);              \
    void isa##_kv_append(const struct kv_room *room, uint32_t position, const float *key, const float *value);

DECLARE_ATTEND(scalar)
DECLARE_ATTEND(neon)
DECLARE_ATTEND(avx2)
DECLARE_ATTEND(avx512)

/* The members of struct cpu_kernels that these functions fill. */
#define ATTEND_KERNELS(isa)                                               \
    .attend_page = isa##_attend_page, .attend_merge = isa##_attend_merge, \
    .attend_finish = isa##_attend_finish, .kv_append = isa##_kv_append

#endif

#include "backend/cpu/kernels.h"

#include "backend/cpu/attend.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/rows.h"
#include "base/cpu.h"

#include <string.h>

#define MATVEC_ENTRY(isa, type) [TYPE_##type] = isa##_matvec_##type,
#define PACKED_ENTRY(isa, type) [TYPE_##type] = isa##_matmul_packed_##type,
#define UNPACK_ENTRY(isa, type) [TYPE_##type] = isa##_unpack_##type,

/* matvec: the instruction set whose matvec is used for quantised and F16 weights. */
#define MATMUL_KERNELS(isa, matvec)                                                             \
    .round_q8 = isa##_round_q8, .matvec_q8 = {FOR_QUANTISED_TYPES(MATVEC_ENTRY, matvec)},       \
    .unpack_q8 = {FOR_QUANTISED_TYPES(UNPACK_ENTRY, isa)},                                      \
    .matvec_float = {MATVEC_ENTRY(isa, F32) MATVEC_ENTRY(isa, BF16) MATVEC_ENTRY(matvec, F16)}, \
    .unpack_float = {FOR_FLOAT_TYPES(UNPACK_ENTRY, isa)}, .matmul_float = isa##_matmul_float

#define OTHER_KERNELS(isa) ROW_KERNELS(isa), RECURRENT_KERNELS(isa), ATTEND_KERNELS(isa)

static const struct cpu_kernels scalar_kernels = {.name = "scalar",
    MATMUL_KERNELS(scalar, scalar),
    .tile_tokens = QUAD,
    .weight_tiles = 1,
    .matmul_q8 = scalar_matmul_q8,
    OTHER_KERNELS(scalar)};

#if defined(SALVO_SCALAR_ONLY)
#elif defined(__aarch64__)
static const struct cpu_kernels neon_dotprod_kernels = {.name = "neon-dotprod",
    MATMUL_KERNELS(neon, neon),
    .tile_tokens = QUAD,
    .weight_tiles = 1,
    .matmul_q8 = neon_matmul_q8,
    OTHER_KERNELS(neon)};
static const struct cpu_kernels neon_i8mm_kernels = {.name = "neon-i8mm",
    MATMUL_KERNELS(neon, neon_i8mm),
    .tile_tokens = QUAD,
    .weight_tiles = 1,
    .packed_tokens = 16,
    .packed_large_tokens = QUAD,
    .matmul_q8 = neon_i8mm_matmul_q8,
    .matmul_packed = {FOR_QUANTISED_TYPES(PACKED_ENTRY, neon_i8mm)},
    OTHER_KERNELS(neon)};
#elif defined(__x86_64__)
static const struct cpu_kernels avx2_kernels = {.name = "avx2",
    MATMUL_KERNELS(avx2, avx2),
    .tile_tokens = QUAD,
    .weight_tiles = 1,
    .packed_tokens = 16,
    .packed_large_tokens = 16,
    .matmul_q8 = avx2_matmul_q8,
    .matmul_packed = {FOR_QUANTISED_TYPES(PACKED_ENTRY, avx2)},
    OTHER_KERNELS(avx2)};
#if defined(SALVO_AVX_VNNI)
static const struct cpu_kernels avx_vnni_kernels = {.name = "avx-vnni",
    MATMUL_KERNELS(avx_vnni, avx_vnni),
    .tile_tokens = QUAD,
    .weight_tiles = 1,
    .packed_tokens = 16,
    .packed_large_tokens = 16,
    .matmul_q8 = avx_vnni_matmul_q8,
    .matmul_packed = {FOR_QUANTISED_TYPES(PACKED_ENTRY, avx_vnni)},
    OTHER_KERNELS(avx2)};
#endif
static const struct cpu_kernels avx512_kernels = {.name = "avx512-vnni",
    MATMUL_KERNELS(avx512, avx512),
    .tile_tokens = WIDE_TOKENS,
    .weight_tiles = 2,
    .wide_together = 4,
    .least_tokens = 8,
    .packed_tokens = 32,
    .packed_large_tokens = 24,
    .matmul_q8 = avx512_matmul_q8,
    .matmul_packed = {FOR_QUANTISED_TYPES(PACKED_ENTRY, avx512)},
    OTHER_KERNELS(avx512)};
#if defined(SALVO_AMX)
static const struct cpu_kernels amx_kernels = {.name = "avx512-amx",
    MATMUL_KERNELS(avx512, avx512),
    .tile_tokens = WIDE_TOKENS,
    .weight_tiles = 2,
    .wide_together = 4,
    .least_tokens = 5,
    .packed_tokens = 8,
    .packed_large_tokens = 8,
    .matmul_q8 = amx_matmul_q8,
    .matmul_begin = amx_matmul_begin,
    .matmul_end = amx_matmul_end,
    .matmul_packed = {FOR_QUANTISED_TYPES(PACKED_ENTRY, avx512)},
    OTHER_KERNELS(avx512)};
#endif
#endif

static const struct {
    const struct cpu_kernels *kernels;
    unsigned features; /* all of them are required */
} tables[] = {
#if defined(SALVO_SCALAR_ONLY)
#elif defined(__aarch64__)
    {&neon_i8mm_kernels, CPU_NEON_DOTPROD | CPU_NEON_I8MM | CPU_NEON_FHM},
    {&neon_dotprod_kernels, CPU_NEON_DOTPROD},
#elif defined(__x86_64__)
#if defined(SALVO_AMX)
    {&amx_kernels, CPU_AVX2 | CPU_AVX512_VNNI | CPU_AMX_INT8},
#endif
    {&avx512_kernels, CPU_AVX2 | CPU_AVX512_VNNI},
#if defined(SALVO_AVX_VNNI)
    {&avx_vnni_kernels, CPU_AVX2 | CPU_AVX_VNNI},
#endif
    {&avx2_kernels, CPU_AVX2},
#endif
    {&scalar_kernels, 0},
};

size_t cpu_kernels_count(void)
{
    return sizeof tables / sizeof *tables;
}

const struct cpu_kernels *cpu_kernels_at(size_t index, bool *usable)
{
    *usable = (tables[index].features & ~cpu_features()) == 0;
    return tables[index].kernels;
}

const struct cpu_kernels *cpu_kernels_find(const char *name)
{
    for (size_t i = 0; i < cpu_kernels_count(); i++) {
        bool usable;
        const struct cpu_kernels *kernels = cpu_kernels_at(i, &usable);
        if (usable && (!name || strcmp(name, kernels->name) == 0))
            return kernels;
    }
    return NULL;
}

/*
 * Hardware operations of backend/cuda/kernels/prefill/warpgroups.cuh on the emulator. Products run as late as
 * allowed: when a thread waits for them, so that inputs overwritten by then give other sums. The warps of a
 * warpgroup do not wait for each other here, since nothing guarantees that they do.
 */
#ifndef TESTS_CUDA_EMULATED_WARPGROUPS_H
#define TESTS_CUDA_EMULATED_WARPGROUPS_H

/* The half of a product's second factor in row `k` of K and in column `n` of the result. */
struct product_inputs {
    const uint8_t *first;
    uint32_t block_bytes; /* 0: as struct cuda_packed_input groups them */

    uint16_t half(uint32_t k, uint32_t n, bool by_rows) const
    {
        const uint8_t *at =
            first + n / 8 * CUDA_INPUT_GROUP_BYTES + k / 8 * CUDA_INPUT_CHUNK_BYTES + n % 8 * 16 + k % 8 * 2;
        if (block_bytes) {
            /* Tiles begin at multiples of 1024 bytes. */
            const uint32_t into = (uint32_t)((uintptr_t)first % 1024), row = by_rows ? k : n,
                           column = by_rows ? n % 64 : into % 128 / 2 + k,
                           chunk = column / 8 ^ (into / 128 + row) % 8;
            at = first - into % 128 + row * 128 + chunk * 16 + column % 8 * 2 +
                 (by_rows ? n / 64 * block_bytes : 0);
        }
        uint16_t half;
        memcpy(&half, at, sizeof half);
        return half;
    }
};

inline product_inputs grouped_inputs(const uint8_t *chunk)
{
    return {chunk, 0};
}

inline product_inputs swizzled_inputs(const uint8_t *first, uint32_t block_bytes)
{
    return {first, block_bytes};
}

inline uint8_t *next_tile_place(uint8_t *shared)
{
    return shared + (0 - (uintptr_t)shared) % 1024;
}

inline void show_to_products() {}

struct emulated_product {
    uint32_t a[4];
    product_inputs inputs;
    bool by_rows;
    uint32_t eights; /* of columns of the result */
    bool adds;
    float (*sums)[4];
};

inline uint32_t emulated_cluster_blocks = 1; /* of the launch */

template <int COUNT> inline void release_registers() {}
template <int COUNT> inline void take_registers() {}

inline void expect_bytes(uint64_t *, uint32_t) {}

inline void copy_bulk(void *to, const void *from, uint32_t bytes, uint64_t *)
{
    memcpy(to, from, bytes);
}

inline void products_begin() {}

inline void products_commit()
{
    emulated_queue<emulated_product>::commit();
}

/* For all lanes of a warp, which have begun the same products. */
inline void do_product(const emulated_product &own)
{
    emulator_machine::current()->do_together(~0u, (uint64_t)&own, [](const uint64_t *lanes) {
        const auto of = [&](unsigned lane) -> const emulated_product & {
            return *(const emulated_product *)lanes[lane];
        };
        const emulated_product &first = of(0);
        emulated_factors<double, 16> factors;
        for (unsigned lane = 0; lane < 32; lane++) {
            if (of(lane).inputs.first != first.inputs.first || of(lane).eights != first.eights)
                __trap();
            take_rows<2>(of(lane).a, lane, emulated_half(), factors);
        }
        for (uint32_t j = 0; j < first.eights; j++) {
            for (uint32_t k = 0; k < 16; k++) {
                for (uint32_t n = 0; n < 8; n++)
                    factors.b[k][n] = f16_to_f32(first.inputs.half(k, j * 8 + n, first.by_rows));
            }
            float *sums[32];
            for (unsigned lane = 0; lane < 32; lane++) {
                sums[lane] = of(lane).sums[j];
                if (!of(lane).adds)
                    memset(sums[lane], 0, 4 * sizeof(float));
            }
            add_product(factors, sums);
        }
    });
}

template <int LEFT> inline void products_wait()
{
    emulated_queue<emulated_product>::wait(LEFT, do_product);
}

template <int COUNT> inline void hold_sums(float (&)[COUNT][4]) {}

template <int BY_ROWS = 0, int EIGHTS>
inline void multiply_wide(
    const uint32_t (&a)[4], const product_inputs &inputs, bool adds, float (&sums)[EIGHTS][4])
{
    emulated_queue<emulated_product>::own().open.push_back(
        {{a[0], a[1], a[2], a[3]}, inputs, BY_ROWS != 0, EIGHTS, adds, sums});
}

/* ---- Clusters of blocks ---- */

inline void meet_cluster(uint32_t blocks)
{
    emulator_machine::current()->meet_cluster(blocks);
    emulated_cluster_blocks = blocks;
}

inline const float *shared_of_block(const float *own, uint32_t block)
{
    emulator_machine *machine = emulator_machine::current();
    const uint32_t first = blockIdx.x / emulated_cluster_blocks * emulated_cluster_blocks;
    return (const float *)(machine->shared_of(first + block) + ((const uint8_t *)own - machine->shared()));
}

#endif

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
    emulated_words a[2];
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

inline void do_product(const emulated_product &product)
{
    for (uint32_t j = 0; j < product.eights; j++) {
        emulated_words b;
        for (uint32_t lane = 0; lane < 32; lane++) {
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t k = i * 8 + lane % 4 * 2, n = j * 8 + lane / 4;
                b.words[lane][i] = product.inputs.half(k, n, product.by_rows) |
                                   (uint32_t)product.inputs.half(k + 1, n, product.by_rows) << 16;
            }
        }
        double sums[4] = {};
        for (int i = 0; i < 4 && product.adds; i++)
            sums[i] = product.sums[j][i];
        multiply_fragments(product.a, b, 2, 2, emulated_half, sums);
        for (int i = 0; i < 4; i++)
            product.sums[j][i] = (float)sums[i];
    }
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
    const emulated_words low = gather_words(a[0], a[1]), high = gather_words(a[2], a[3]);
    emulated_queue<emulated_product>::own().open.push_back(
        {{low, high}, inputs, BY_ROWS != 0, EIGHTS, adds, sums});
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

/*
 * Hardware operations of backend/cuda/kernels/prefill/warpgroups.cuh on the emulator. Products run as late as
 * allowed: when a thread waits for them, so that inputs overwritten by then give other sums. The warps of a
 * warpgroup do not wait for each other here, since nothing guarantees that they do.
 */
#ifndef TESTS_CUDA_EMULATED_WARPGROUPS_H
#define TESTS_CUDA_EMULATED_WARPGROUPS_H

struct emulated_product {
    emulated_words a[2];
    const uint8_t *chunk;
    uint32_t chunk_bytes, eights; /* of tokens */
    bool adds;
    float (*sums)[4];
};

inline uint32_t emulated_cluster_blocks = 1; /* of the launch */

inline void publish_inputs() {}
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
            for (uint32_t half = 0; half < 2; half++)
                memcpy(&b.words[lane][half],
                    product.chunk + half * product.chunk_bytes + (j * 8 + lane / 4) * 16 + lane % 4 * 4, 4);
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

template <int EIGHTS>
inline void multiply_wide(const uint32_t (&a)[4], const uint8_t *chunk, bool adds, float (&sums)[EIGHTS][4])
{
    const emulated_words low = gather_words(a[0], a[1]), high = gather_words(a[2], a[3]);
    emulated_queue<emulated_product>::own().open.push_back(
        {{low, high}, chunk, wide_inputs<EIGHTS * 8>::chunk_bytes, EIGHTS, adds, sums});
}

/* ---- Clusters of blocks ---- */

inline void meet_cluster(uint32_t blocks)
{
    if (blocks == 1)
        __syncthreads();
    else
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

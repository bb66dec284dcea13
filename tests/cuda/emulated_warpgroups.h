/*
 * What backend/cuda/warpgroups.cuh names the hardware for, on the emulator. Products are done as late as they
 * may: when a thread waits for them, so that inputs that were written over by then give other sums. The warps
 * of a warpgroup do not wait for each other here, as nothing says that they do.
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

/* Of one thread; belongs to the block that used it last. */
struct emulated_products {
    unsigned block_x = ~0u, block_y = ~0u;
    std::vector<emulated_product> open;
    std::deque<std::vector<emulated_product>> groups;
};

inline emulated_products &own_products()
{
    static std::vector<emulated_products> all(1024);
    emulated_products &own = all[threadIdx.x];
    if (own.block_x != blockIdx.x || own.block_y != blockIdx.y)
        own = {blockIdx.x, blockIdx.y, {}, {}};
    return own;
}

inline void publish_inputs() {}
inline void products_begin() {}

inline void products_commit()
{
    emulated_products &own = own_products();
    own.groups.push_back(std::move(own.open));
    own.open.clear();
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
    emulated_products &own = own_products();
    while (own.groups.size() > LEFT) {
        for (const emulated_product &product : own.groups.front())
            do_product(product);
        own.groups.pop_front();
    }
}

template <int COUNT> inline void hold_sums(float (&)[COUNT][4]) {}

template <int EIGHTS>
inline void multiply_wide(const uint32_t (&a)[4], const uint8_t *chunk, bool adds, float (&sums)[EIGHTS][4])
{
    const emulated_words low = gather_words(a[0], a[1]), high = gather_words(a[2], a[3]);
    own_products().open.push_back(
        {{low, high}, chunk, wide_inputs<EIGHTS * 8>::chunk_bytes, EIGHTS, adds, sums});
}

#endif

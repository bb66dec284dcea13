/*
 * The functions matmul_packed of kernels.h for one instruction set, included after the definition of
 * multiply_packed: one tile times `pairs` pairs of tokens.
 */

INLINE void matmul_packed(enum tensor_type type, const uint8_t *tiles, size_t tile_count, size_t k,
    struct q8_tile x, unsigned tokens, float *out)
{
    const size_t tile_bytes =
                     k / tile_block_elements(tile_formats[type]) * tile_block_bytes(tile_formats[type]),
                 stride = tile_count * TILE_ROWS;
    for (size_t tile = 0; tile < tile_count; tile++, tiles += tile_bytes, out += TILE_ROWS) {
        if (x.terms == 1 && tokens > 2)
            multiply_packed(type, 1, 2, tiles, k, x, stride, out);
        else if (x.terms == 1)
            multiply_packed(type, 1, 1, tiles, k, x, stride, out);
        else if (tokens > 2)
            multiply_packed(type, 2, 2, tiles, k, x, stride, out);
        else
            multiply_packed(type, 2, 1, tiles, k, x, stride, out);
    }
}

#define DEFINE_MATMUL_PACKED(isa, type)                                                                   \
    void isa##_matmul_packed_##type(                                                                      \
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, unsigned tokens, float *out) \
    {                                                                                                     \
        matmul_packed(TYPE_##type, tiles, tile_count, k, x, tokens, out);                                 \
    }

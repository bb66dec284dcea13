/* Matrices in weight tiles: their shapes, and packing them from the rows of a file. */
#ifndef CUDA_CUDA_WEIGHT_TILES_H
#define CUDA_CUDA_WEIGHT_TILES_H

#include "backend/cuda/cuda_plan.h"
#include "base/tensor_type.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether matrices of this type with rows of k elements can be packed. */
bool cuda_weight_tiles_supported(enum tensor_type type, uint64_t k);

/* A matrix whose owners have `tile_rows_per_block` tile rows each; fills in everything but `base`. */
struct cuda_matrix cuda_matrix_shape(
    enum tensor_type type, uint32_t rows, uint32_t columns, uint32_t tile_rows_per_block);

/* The same for devices with little shared memory: partial sums and chunks have at most this many bytes, if
 * possible. */
struct cuda_limits {
    uint32_t partial_bytes, pass_bytes, chunk_bytes;
};
struct cuda_matrix cuda_matrix_shape_within(enum tensor_type type, uint32_t rows, uint32_t columns,
    uint32_t tile_rows_per_block, struct cuda_limits limits);

/* Bytes of one owner's weight tiles, and of the whole matrix. */
uint64_t cuda_owner_bytes(const struct cuda_matrix *matrix);
uint64_t cuda_matrix_bytes(const struct cuda_matrix *matrix);

/* The stream that copies a matrix into shared memory when `first_block` has its first owner. */
struct cuda_stream cuda_matrix_stream(const struct cuda_matrix *matrix, uint32_t first_block);

/* Packs owners first .. first + count - 1. `rows` is the first byte of the matrix as the file has it. The
 * weight tiles dequantise to exactly the same numbers. */
void cuda_pack_owners(
    const struct cuda_matrix *matrix, const uint8_t *rows, uint32_t first, uint32_t count, uint8_t *out);

#endif

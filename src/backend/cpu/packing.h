/* Weight matrices repacked into tiles of 8 rows: one layout for every instruction set, for decode and for
 * prefill. */
#ifndef CPU_PACKING_H
#define CPU_PACKING_H

#include "base/status.h"
#include "base/tensor_type.h"

/* Whether matrices of this type with rows of k elements can be packed. */
bool packing_supported(enum tensor_type type, uint64_t k);

/* Bytes of one tile: 8 rows of k elements. As many as in the file, except that group scales get whole bytes:
 * Q4_K 2.8 %, Q5_K 2.3 %, Q3_K 3.6 %, IQ4_XS 1.5 % more. */
size_t packing_tile_bytes(enum tensor_type type, uint64_t k);

/*
 * Packs rows first .. first+7 of a matrix with `rows` rows in the file's format. Rows beyond the last become
 * zero weights. The packed tile dequantises to exactly the same numbers.
 */
void packing_pack_tile(
    enum tensor_type type, const uint8_t *matrix, uint64_t rows, uint64_t k, uint64_t first, uint8_t *tile);

/* Reads row `row` of a packed matrix as floats, equal to quant/'s dequantised original. For embeddings. */
void packing_read_row(enum tensor_type type, const uint8_t *tiles, uint64_t k, uint64_t row, float *out);

#endif

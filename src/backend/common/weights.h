/* The use of each weight by a program, which decides its layout on a device, and its place in the file. */
#ifndef COMMON_WEIGHTS_H
#define COMMON_WEIGHTS_H

#include "program/program.h"

enum weight_use {
    WEIGHT_MULTIPLIED = 1, /* the matrix of a matmul */
    WEIGHT_VECTOR = 2,     /* a norm, a bias: read as floats */
    WEIGHT_LOOKED_UP = 4,  /* a table of embeddings */
    WEIGHT_MATRIX = WEIGHT_MULTIPLIED | WEIGHT_LOOKED_UP,
};

/* Sets uses[buffer], [buffers], to the enum weight_use bits of each weight. */
void weight_uses(const struct program *program, uint8_t *uses);

#define NO_VECTOR UINT32_MAX

/* Places the vectors one after the other, each at a multiple of `alignment` floats. Sets offsets[buffer],
 * [buffers], in floats, to NO_VECTOR for all other buffers. Returns the number of floats. */
uint64_t weight_vectors_place(
    const struct program *program, const uint8_t *uses, uint32_t alignment, uint32_t *offsets);
/* Reads all vectors to their offsets. */
void weight_vectors_read(const struct program *program, const uint32_t *offsets, float *out);

/* Bytes of one row in the file; the first row of a weight, which may be a part of its tensor. */
size_t weight_row_bytes(const struct program_buffer *weight);
const uint8_t *weight_rows(const struct program_buffer *weight);

#endif

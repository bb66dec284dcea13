/* The last norm of a program, between its hidden rows (struct program) and the output matrix. Backends fuse
 * it with that matrix; for embeddings the engine computes it. */
#ifndef ENGINE_LAST_NORM_H
#define ENGINE_LAST_NORM_H

#include "program/program.h"

struct last_norm {
    uint32_t width, group; /* group 0: the program has no such norm */
    bool centers;          /* a layer norm: subtracts the mean */
    float epsilon;
    float *weight; /* [group], or for a layer norm [width] */
    float *bias;   /* [width]; NULL: none */
};

enum salvo_status last_norm_open(struct last_norm *norm, const struct program *program);
void last_norm_close(struct last_norm *norm);

/* Replaces a hidden row, [width], by its norm. */
void last_norm_apply(const struct last_norm *norm, float *row);

#endif

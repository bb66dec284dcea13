/*
 * From ops to groups: which neighbouring ops a backend runs as one phase. Backends share this; how a group
 * runs is their own affair.
 */
#ifndef COMMON_LOWERING_H
#define COMMON_LOWERING_H

#include "program/program.h"

enum group_kind { GROUP_ROWS, GROUP_MATMUL, GROUP_ATTEND, GROUP_WKV7, GROUP_SAMPLE };

/* Inputs of a single token that a group of matmuls may have rounded at once. */
enum { MAX_ROUNDED = 8 };

/* Neighbouring ops that run as one phase. */
struct group {
    enum group_kind kind;
    enum row_kind rows;
    uint32_t first_op, op_count;
    uint32_t inner; /* this many leading ops run inside its tasks: before matmuls on private buffers, before a
                       wkv7 on the columns of its head */
    uint32_t outer; /* wkv7: this many trailing ops run on the columns of its head */
    uint32_t matmuls;  /* matmul: how many */
    bool glu;          /* matmul: the last op is the glu of its two matmuls */
    buffer_id rounded; /* rows: rounded for the matmuls that follow; NO_BUFFER: none */
    enum rounding rounding;
    bool fine; /* as in op.h; all matmuls of a batch agree, those of a single token that share an input */
    buffer_id panels[MAX_ROUNDED]; /* matmul of a single token: the inputs that are rounded to bytes */
    uint32_t fine_panels;          /* bit i: panel i is for fine matmuls */
    uint32_t panel_count;
};

/* A program lowered for one capacity. */
struct plan {
    uint32_t capacity[ROW_KIND_COUNT];
    struct group *groups;
    uint32_t group_count;
    uint32_t *group_of_op;
    size_t *offsets;  /* [buffers]: in the arena or, when private, in the memory of whoever runs a task */
    bool *is_private; /* [buffers] */
    size_t arena_bytes, private_bytes;
};

/* `max_rounded` is at most MAX_ROUNDED. Everything that the plan points at is in `tables`. */
enum salvo_status lower_program(const struct program *program, const uint32_t capacity[ROW_KIND_COUNT],
    uint32_t max_rounded, struct arena *tables, struct plan *out);

/* One line for a group; into `text`. */
void lower_describe(
    const struct program *program, const struct plan *plan, uint32_t index, char *text, size_t size);

#endif

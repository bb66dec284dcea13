/* The phases of a step; equal phases of all layers share a line. */
#ifndef TOOLS_PROFILE_TABLE_H
#define TOOLS_PROFILE_TABLE_H

#include "json_output.h"

#include <salvo/debug.h>

struct profile_line {
    char kind[16], operations[200];
    uint32_t count;
    double seconds;
    uint64_t bytes;
};

struct profile_table {
    struct profile_line *lines;
    size_t count, capacity;
    uint32_t depth, tokens;  /* tokens of the step, and tokens of the context before it */
    double bytes_per_second; /* memory bandwidth of the device; 0: unknown */
    bool failed;             /* out of memory */
};

/* A salvo_profile_function; `user` is the table. */
void profile_table_add(void *user, const struct salvo_profile_phase *phase);

void profile_table_print(const struct profile_table *table);
void profile_table_write(const struct profile_table *table, struct json_writer *json); /* as one object */
void profile_table_free(struct profile_table *table);

#endif

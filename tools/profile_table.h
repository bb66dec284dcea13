/* The phases of a step; equal phases of all layers share a line. */
#ifndef TOOLS_PROFILE_TABLE_H
#define TOOLS_PROFILE_TABLE_H

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
    bool failed; /* out of memory */
};

/* A salvo_profile_function; `user` is the table. */
void profile_table_add(void *user, const struct salvo_profile_phase *phase);

/* Prints the table as text or JSON, with the share of the device's memory bandwidth. Returns the exit status.
 */
int profile_table_write(
    const struct profile_table *table, uint32_t depth, uint32_t tokens, double bytes_per_second);
void profile_table_free(struct profile_table *table);

#endif

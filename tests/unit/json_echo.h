/* Reads JSON and writes it again, for tests. */
#ifndef TESTS_JSON_ECHO_H
#define TESTS_JSON_ECHO_H

#include "base/json.h"

/* Appends to a struct buffer: the `write` function of a writer. */
enum salvo_status json_to_buffer(void *user, const char *data, size_t size);

/*
 * Writes every event of `json` with `writer`. The reader gets pieces of 0 to `piece` bytes, whose sizes
 * follow from `seed`; all at once where `piece` is 0. `longest` is the reader's.
 */
enum salvo_status json_echo(
    struct salvo_text json, size_t piece, uint64_t seed, size_t longest, struct json_writer *writer);

#endif

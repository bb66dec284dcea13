/* Ranges of the mapped file that contain weights, for devices that read weights without a copy. */
#ifndef COMMON_FILE_WINDOWS_H
#define COMMON_FILE_WINDOWS_H

#include "program/program.h"

/* A range of a mapped file, in whole pages. */
struct file_window {
    const uint8_t *begin;
    uint64_t size;
    uint32_t part; /* of a split model */
};

/* The pages that contain a weight; the file's mapping also ends at a page. */
struct file_window weight_pages(const struct program_buffer *weight, uint64_t page);

bool file_window_contains(const struct file_window *window, const struct program_buffer *weight);

/* Windows of at most `largest` bytes that contain the weights for which `chosen`, [buffers], is true; the
 * pages of each fit into `largest`. Windows include the gaps between weights and may overlap. The caller
 * frees `*out` with memory_free. */
enum salvo_status file_windows_find(const struct program *program, const bool *chosen, uint64_t page,
    uint64_t largest, struct file_window **out, uint32_t *out_count);

#endif

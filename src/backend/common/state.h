/*
 * The state of a program's slots: KV caches in pages of 256 positions, and recurrent state. Backends place
 * both in their own memory; this file says which buffers are state, how large a saved state is, and copies KV
 * pages between a backend's layout and the saved one.
 *
 * A saved state is the program's logical layout. First the KV caches, in the order of their buffers:
 * [positions][heads][head_dim elements, then for q8_0 the scales]. Then the recurrent states, in the order of
 * their buffers, as floats.
 */
#ifndef COMMON_STATE_H
#define COMMON_STATE_H

#include "backend/backend.h"

/* Offsets within a KV page of a backend, in bytes. */
struct kv_page_layout {
    size_t head_bytes;                  /* distance of two heads */
    size_t position_step, element_step; /* distance of two positions, of two elements */
    size_t scales_at;                   /* from the head's first element to its first scale */
    size_t scale_position_step, scale_step;
};

/* A buffer of keys or of values. */
struct kv_cache {
    uint32_t heads, head_dim; /* heads 0: the buffer is not a KV cache */
    bool is_key;
    uint32_t element_bytes;
    uint32_t scales;            /* half floats of one head at one position: 0 unless the type is q8_0 */
    struct kv_page_layout page; /* set by the backend */
};

struct state_layout {
    struct kv_cache *caches;        /* [buffers] */
    uint64_t *recurrent_offsets;    /* [buffers]: in floats */
    uint64_t recurrent_elements;    /* floats of one version of one slot */
    uint32_t pages, pages_per_slot; /* of the KV pool; of one slot */
};

/* Finds the state of a program. Recurrent states begin at multiples of `alignment` floats. */
enum salvo_status state_layout_open(const struct program *program, const struct backend_options *options,
    uint32_t alignment, struct arena *tables, struct state_layout *out);

/* Bytes of one head at one position: elements and scales. */
size_t kv_head_bytes(const struct kv_cache *cache);

size_t kv_page_bytes(const struct kv_cache *cache);

/* The layout of a page [heads][256 positions][elements, scales]; positions begin at multiples of 4 bytes. */
struct kv_page_layout kv_page_by_position(const struct kv_cache *cache);

/* Bytes of the first `positions` positions of all KV caches; of a slot's whole saved state. */
size_t state_saved_kv_bytes(
    const struct program *program, const struct state_layout *layout, uint32_t positions);
size_t state_saved_bytes(
    const struct program *program, const struct state_layout *layout, uint32_t positions);

/* Copies the first `count` positions of the page at `page` to `saved`, or back when `restores`. */
void kv_page_copy(const struct kv_cache *cache, uint8_t *page, uint32_t count, uint8_t *saved, bool restores);

/* Moves the first `count` positions of page number `page` of a KV cache to `saved`, or back when `restores`:
 * a backend's part of the functions below. */
typedef enum salvo_status (*kv_page_mover)(struct executor *executor, buffer_id buffer, uint32_t page,
    uint32_t count, uint8_t *saved, bool restores);

/* All KV caches of a slot, page by page; `pages` as in struct run. */
enum salvo_status kv_pages_save(const struct program *program, const struct state_layout *layout,
    const uint32_t *pages, uint32_t positions, uint8_t *out, struct executor *executor, kv_page_mover move);
enum salvo_status kv_pages_restore(const struct program *program, const struct state_layout *layout,
    const uint32_t *pages, uint32_t positions, const uint8_t *data, struct executor *executor,
    kv_page_mover move);

#endif

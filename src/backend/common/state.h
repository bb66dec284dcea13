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
    uint32_t scales; /* half floats of one head at one position: 0 unless the type is q8_0 */
    /* [heads][256 positions][elements, scales], unless the backend sets another. */
    struct kv_page_layout page;
};

struct state_layout {
    const struct program *program;
    const struct backend_options *options;
    struct kv_cache *caches;        /* [buffers] */
    uint64_t *recurrent_offsets;    /* [buffers]: in floats */
    uint64_t recurrent_elements;    /* floats of one version of one slot */
    uint32_t pages, pages_per_slot; /* of the KV pool; of one slot */
};

/* Finds the state of a program; the layout refers to program and options. Recurrent states begin at multiples
 * of `alignment` floats. */
enum salvo_status state_layout_open(const struct program *program, const struct backend_options *options,
    uint32_t alignment, struct arena *tables, struct state_layout *out);

/* The kinds of memory for state of a host that commits steps. */
enum state_memory { STATE_KV_PAGES, STATE_RECURRENT, STATE_KEPT };

/* Allocates the pages of each KV cache, `versions` recurrent states of each slot, and the kept states.
 * `cache` is the buffer of the KV cache, or 0. */
typedef enum salvo_status (*state_allocate_function)(
    struct executor *executor, enum state_memory kind, buffer_id cache, uint64_t bytes, const char *name);
enum salvo_status state_allocate(const struct state_layout *layout, uint32_t versions,
    struct executor *executor, state_allocate_function allocate);

/* Bytes of one head at one position: elements and scales. */
size_t kv_head_bytes(const struct kv_cache *cache);

size_t kv_page_bytes(const struct kv_cache *cache);

/* Copies the first `count` positions of the page at `page` to `saved`, or back when `restores`. */
void kv_page_copy(const struct kv_cache *cache, uint8_t *page, uint32_t count, uint8_t *saved, bool restores);

/*
 * The engine's side of struct backend_state. The first `positions` positions of a slot's state are its keys
 * and values, then all recurrent states, as they are after the last step. The token ids are not part of it:
 * the engine keeps and checks them, and passes them to `state_restore`. With 0 positions, slots may be kept
 * states.
 */
size_t state_size(const struct backend *backend, const struct executor *executor, uint32_t positions);
enum salvo_status state_save(const struct backend *backend, struct executor *executor, uint32_t slot,
    const uint32_t *pages, uint32_t positions, uint8_t *out);
enum salvo_status state_restore(const struct backend *backend, struct executor *executor, uint32_t slot,
    const uint32_t *pages, uint32_t positions, const int32_t *ids, const uint8_t *data);

/* Parts of a state that do not leave the device: one page of every KV cache; the recurrent state of a slot,
 * or a kept state; the first ids of a slot, whose positions other slots have computed. */
enum salvo_status state_copy_page(
    const struct backend *backend, struct executor *executor, uint32_t to, uint32_t from);
enum salvo_status state_copy_recurrent(
    const struct backend *backend, struct executor *executor, uint32_t to, uint32_t from);
enum salvo_status state_set_tokens(const struct backend *backend, struct executor *executor, uint32_t slot,
    const int32_t *ids, uint32_t count);

#endif

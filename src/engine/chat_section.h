/*
 * The messages of a conversation as bytes, which may follow a saved state in its file: a header, then for
 * each message its role, content and json, each as a size and that many bytes with a NUL after them. The
 * checksum includes the state's checksum, so that neither part can be exchanged alone.
 */
#ifndef ENGINE_CHAT_SECTION_H
#define ENGINE_CHAT_SECTION_H

#include "base/status.h"

/* `state_checksum` is the checksum of the state before the section. *out is freed by memory_free. */
enum salvo_status chat_section_write(const struct salvo_message *messages, size_t count,
    uint64_t state_checksum, uint8_t **out, size_t *out_size);

/* Whether the bytes begin such a section. */
bool chat_section_begins(const uint8_t *data, size_t size);

/* *out and all it points to are one allocation. */
enum salvo_status chat_section_read(
    const uint8_t *data, size_t size, uint64_t state_checksum, struct salvo_messages **out);

/* The checksum of a section of `size` bytes, at least a header. */
uint64_t chat_section_checksum(const uint8_t *section, size_t size, uint64_t state_checksum);

#endif

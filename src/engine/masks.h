/* Resident masks: copied to the device once, then named by their numbers. */
#ifndef ENGINE_MASKS_H
#define ENGINE_MASKS_H

#include "base/status.h"
#include "program/step.h"

struct salvo_engine;

struct masks {
    uint32_t *bits[RESIDENT_MASKS]; /* of mask number i + 1, for backends that read masks where they are */
};

/* The bits of an open mask; NULL: there is none with this number. */
const uint32_t *masks_find(const struct masks *masks, uint32_t number);

enum salvo_status masks_open_one(struct salvo_engine *engine, const uint32_t *mask, uint32_t *out_number);
enum salvo_status masks_close_one(struct salvo_engine *engine, uint32_t number); /* no step reads it */

void masks_close(struct masks *masks);

#endif

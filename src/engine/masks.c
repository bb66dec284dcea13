#include "engine/masks.h"

#include "backend/common/steps.h"
#include "base/memory.h"
#include "engine/engine.h"

#include <assert.h>
#include <string.h>

static_assert((int)RESIDENT_MASKS == (int)SALVO_RESIDENT_MASKS, "the public limit is that of the backends");

const uint32_t *masks_find(const struct masks *masks, uint32_t number)
{
    return number && number <= RESIDENT_MASKS ? masks->bits[number - 1] : NULL;
}

void masks_close(struct masks *masks)
{
    for (size_t i = 0; i < RESIDENT_MASKS; i++)
        memory_free(masks->bits[i]);
}

enum salvo_status masks_open_one(struct salvo_engine *engine, const uint32_t *mask, uint32_t *out_number)
{
    enum salvo_status status = SALVO_OK;
    uint32_t *bits = NULL, place = 0;
    const size_t words = step_mask_words(engine->program->vocabulary);
    while (place < RESIDENT_MASKS && engine->masks.bits[place])
        place++;
    if (place == RESIDENT_MASKS)
        TRY(fail(SALVO_ERROR_MEMORY, "%d masks are resident; no more are possible", RESIDENT_MASKS));
    TRY(NEW(&bits, words));
    memcpy(bits, mask, words * sizeof *bits);
    if (engine->backend->set_mask)
        TRY(engine->backend->set_mask(engine->executor, place + 1, bits));
    engine->masks.bits[place] = bits;
    bits = NULL;
    *out_number = place + 1;
cleanup:
    memory_free(bits);
    return status;
}

enum salvo_status masks_close_one(struct salvo_engine *engine, uint32_t number)
{
    if (!masks_find(&engine->masks, number))
        return fail(SALVO_ERROR_ARGUMENT, "mask %u is not resident", number);
    memory_free(engine->masks.bits[number - 1]);
    engine->masks.bits[number - 1] = NULL;
    return SALVO_OK;
}

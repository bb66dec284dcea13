/* Typed look-ups of metadata. */
#include "gguf/gguf_internal.h"
#include "gguf/gguf_part.h"
#include "gguf/gguf_value.h"

#include <float.h>
#include <math.h>

static bool is_signed_integer(enum salvo_type type)
{
    return type == SALVO_I8 || type == SALVO_I16 || type == SALVO_I32 || type == SALVO_I64;
}

static bool is_unsigned_integer(enum salvo_type type)
{
    return type == SALVO_U8 || type == SALVO_U16 || type == SALVO_U32 || type == SALVO_U64;
}

static enum salvo_status fail_type(
    const struct gguf_part *part, const char *key, const struct salvo_value *value, const char *wanted)
{
    return fail(SALVO_ERROR_FORMAT, "%s: key '%s' has type %s, it must be %s", part->name, key,
        gguf_type_name(value->type), wanted);
}

/* The value of a key, or NULL; sets *found. */
static const struct salvo_value *look_up(const struct gguf_part *part, const char *key, bool *found)
{
    const struct salvo_value *value = gguf_part_find(part, key);
    if (found)
        *found = value != NULL;
    return value;
}

enum salvo_status gguf_part_get_u32(const struct gguf_part *part, const char *key, uint32_t *out, bool *found)
{
    const struct salvo_value *value = look_up(part, key, found);
    if (!value)
        return SALVO_OK;
    if (is_signed_integer(value->type)) {
        if (value->i < 0 || value->i > (int64_t)UINT32_MAX)
            return fail(SALVO_ERROR_FORMAT, "%s: key '%s' is %lld, it must be from 0 to %u", part->name, key,
                (long long)value->i, UINT32_MAX);
        *out = (uint32_t)value->i;
    } else if (is_unsigned_integer(value->type)) {
        if (value->u > UINT32_MAX)
            return fail(SALVO_ERROR_FORMAT, "%s: key '%s' is %llu, it must be at most %u", part->name, key,
                (unsigned long long)value->u, UINT32_MAX);
        *out = (uint32_t)value->u;
    } else {
        return fail_type(part, key, value, "an integer");
    }
    return SALVO_OK;
}

enum salvo_status gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out, bool *found)
{
    return gguf_part_get_u32(gguf->parts, key, out, found);
}

enum salvo_status gguf_get_f32(const struct gguf *gguf, const char *key, float *out, bool *found)
{
    const struct gguf_part *part = gguf->parts;
    const struct salvo_value *value = look_up(part, key, found);
    if (!value)
        return SALVO_OK;
    if (is_signed_integer(value->type)) {
        *out = (float)value->i;
    } else if (is_unsigned_integer(value->type)) {
        *out = (float)value->u;
    } else if (value->type == SALVO_F32 || value->type == SALVO_F64) {
        if (isfinite(value->f) && fabs(value->f) > (double)FLT_MAX)
            return fail(SALVO_ERROR_FORMAT, "%s: key '%s' is %g, it must be at most %g", part->name, key,
                value->f, (double)FLT_MAX);
        *out = (float)value->f;
    } else {
        return fail_type(part, key, value, "a number");
    }
    return SALVO_OK;
}

enum salvo_status gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, bool *found)
{
    const struct salvo_value *value = look_up(gguf->parts, key, found);
    if (!value)
        return SALVO_OK;
    if (value->type != SALVO_BOOL)
        return fail_type(gguf->parts, key, value, "BOOL");
    *out = value->b;
    return SALVO_OK;
}

enum salvo_status gguf_get_text(const struct gguf *gguf, const char *key, struct salvo_text *out, bool *found)
{
    const struct salvo_value *value = look_up(gguf->parts, key, found);
    if (!value)
        return SALVO_OK;
    if (value->type != SALVO_STRING)
        return fail_type(gguf->parts, key, value, "STRING");
    *out = value->text;
    return SALVO_OK;
}

enum salvo_status gguf_get_array(
    const struct gguf *gguf, const char *key, enum salvo_type item_type, struct salvo_value *out, bool *found)
{
    const struct salvo_value *value = look_up(gguf->parts, key, found);
    if (!value)
        return SALVO_OK;
    if (value->type != SALVO_ARRAY)
        return fail_type(gguf->parts, key, value, "ARRAY");
    if (value->array.type != item_type)
        return fail(SALVO_ERROR_FORMAT, "%s: key '%s' is an array of %s, it must be an array of %s",
            gguf->parts->name, key, gguf_type_name(value->array.type), gguf_type_name(item_type));
    *out = *value;
    return SALVO_OK;
}

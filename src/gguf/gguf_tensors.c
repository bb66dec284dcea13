#include "gguf/gguf_tensors.h"

#include "base/checked.h"
#include "base/memory.h"
#include "gguf/gguf_value.h"

#include <stdlib.h>

enum salvo_status gguf_check_alignment(const struct salvo_value *value)
{
    /* The format requires a multiple of 8; an alignment above a large page has no use. */
    enum { LEAST = 8, MOST = 1 << 21 };
    if (value->type != SALVO_U32)
        return fail(
            SALVO_ERROR_FORMAT, "the alignment has type %s, it must be U32", gguf_type_name(value->type));
    if (value->u < LEAST || value->u > MOST || (value->u & (value->u - 1)) != 0)
        return fail(SALVO_ERROR_FORMAT, "the alignment is %llu, it must be a power of two from %d to %d",
            (unsigned long long)value->u, LEAST, MOST);
    return SALVO_OK;
}

enum salvo_status gguf_shape_tensor(
    uint32_t type, uint32_t dimensions, const uint64_t *shape, struct gguf_tensor *out)
{
    if (dimensions > GGUF_MAX_DIMENSIONS)
        return fail(SALVO_ERROR_FORMAT, "it has %u dimensions, at most %d are allowed", dimensions,
            GGUF_MAX_DIMENSIONS);
    out->type = type;
    out->dimensions = dimensions;
    out->elements = 1;
    for (uint32_t i = 0; i < GGUF_MAX_DIMENSIONS; i++) {
        out->shape[i] = i < dimensions ? shape[i] : 1;
        if (out->shape[i] == 0)
            return fail(SALVO_ERROR_FORMAT, "dimension %u of %u is 0", i, dimensions);
        uint64_t product;
        if (!checked_mul_u64(out->elements, out->shape[i], &product) || product > INT64_MAX) {
            return fail(SALVO_ERROR_FORMAT, "%llu elements times dimension %u, %llu, overflow 63 bits",
                (unsigned long long)out->elements, i, (unsigned long long)out->shape[i]);
        }
        out->elements = product;
    }

    const struct tensor_type_info *info = tensor_type_info(type);
    out->size = 0;
    if (!info)
        return SALVO_OK;
    if (out->shape[0] % info->block_elements != 0) {
        return fail(SALVO_ERROR_FORMAT,
            "a row has %llu elements, which is not a multiple of the %s block of %u",
            (unsigned long long)out->shape[0], info->name, info->block_elements);
    }
    if (!checked_mul_u64(out->elements / info->block_elements, info->block_bytes, &out->size))
        return fail(SALVO_ERROR_FORMAT, "%llu blocks of %u bytes overflow 64 bits",
            (unsigned long long)(out->elements / info->block_elements), info->block_bytes);
    return SALVO_OK;
}

/* An unknown type has an unknown size, but no tensor is empty. */
static uint64_t least_size(const struct gguf_tensor *tensor)
{
    return tensor->size ? tensor->size : 1;
}

static enum salvo_status place_tensor(
    const struct gguf_tensor_area *area, uint64_t offset, struct gguf_tensor *tensor)
{
    size_t room = area->size - area->start;
    if (offset % area->alignment != 0)
        return fail(SALVO_ERROR_FORMAT, "offset %llu is not a multiple of the alignment %u",
            (unsigned long long)offset, area->alignment);
    if (offset > room || least_size(tensor) > room - offset) {
        return fail(SALVO_ERROR_FORMAT,
            "it has %llu bytes at offset %llu, but the file has %zu bytes of tensor data" GGUF_CUT,
            (unsigned long long)least_size(tensor), (unsigned long long)offset, room);
    }
    tensor->offset = area->start + offset;
    tensor->data = tensor->size ? area->bytes + tensor->offset : NULL;
    return SALVO_OK;
}

static enum salvo_status take_tensor(
    struct cursor *cursor, const struct gguf_tensor_area *area, struct gguf_tensor *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t dimensions, type = 0;
    uint64_t shape[GGUF_MAX_DIMENSIONS], offset = 0;
    *out = (struct gguf_tensor){0};
    TRY(gguf_take_text(cursor, "the name", &out->name));
    if (out->name.size == 0)
        TRY(fail(SALVO_ERROR_FORMAT, "the name is empty"));
    TRY(gguf_check_text(out->name, "the name"));

    bool complete = take_u32(cursor, &dimensions);
    for (uint32_t i = 0; complete && i < dimensions && i < GGUF_MAX_DIMENSIONS; i++)
        complete = take_u64(cursor, &shape[i]);
    /* With too many dimensions the fields after them cannot be found; gguf_shape_tensor reports the
     * number. */
    if (complete && dimensions <= GGUF_MAX_DIMENSIONS)
        complete = take_u32(cursor, &type) && take_u64(cursor, &offset);
    if (!complete) {
        status = fail(SALVO_ERROR_FORMAT,
            "dimensions, type and offset are incomplete: the file ends after %zu more bytes" GGUF_CUT,
            cursor_left(cursor));
    } else {
        status = gguf_shape_tensor(type, dimensions, shape, out);
        if (status == SALVO_OK && area)
            status = place_tensor(area, offset, out);
    }
    if (status != SALVO_OK)
        TRY(fail_within(status, "tensor '%.*s': ", SHOWN(out->name)));

cleanup:
    return status;
}

enum salvo_status gguf_take_tensors(
    struct cursor *cursor, uint64_t count, const struct gguf_tensor_area *area, struct gguf_tensor *tensors)
{
    struct gguf_tensor tensor;
    for (uint64_t i = 0; i < count; i++) {
        enum salvo_status status = take_tensor(cursor, area, &tensor);
        if (status != SALVO_OK)
            return fail_within(
                status, "tensor %llu of %llu: ", (unsigned long long)i, (unsigned long long)count);
        if (tensors)
            tensors[i] = tensor;
    }
    return SALVO_OK;
}

static int compare_offsets(const void *left, const void *right)
{
    const struct gguf_tensor *a = *(const struct gguf_tensor *const *)left;
    const struct gguf_tensor *b = *(const struct gguf_tensor *const *)right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

enum salvo_status gguf_check_overlap(const struct gguf_tensor *tensors, size_t count)
{
    enum salvo_status status = SALVO_OK;
    const struct gguf_tensor **order = NULL; /* by offset */
    TRY(NEW(&order, count));
    for (size_t i = 0; i < count; i++)
        order[i] = &tensors[i];
    if (count)
        qsort(order, count, sizeof *order, compare_offsets);
    for (size_t i = 1; i < count; i++) {
        const struct gguf_tensor *before = order[i - 1], *after = order[i];
        if (after->offset - before->offset < least_size(before)) {
            TRY(fail(SALVO_ERROR_FORMAT,
                "tensor '%.*s' at byte %llu begins before tensor '%.*s' at byte %llu ends (%llu bytes)",
                SHOWN(after->name), (unsigned long long)after->offset, SHOWN(before->name),
                (unsigned long long)before->offset, (unsigned long long)least_size(before)));
        }
    }

cleanup:
    memory_free(order);
    return status;
}

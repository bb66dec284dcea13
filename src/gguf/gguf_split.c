/*
 * Models in several files, NAME-00001-of-00003.gguf and so on. Each part is a complete GGUF file with its
 * part number; the first has the model's metadata.
 */
#include "base/memory.h"
#include "gguf/gguf_internal.h"
#include "gguf/gguf_part.h"

#include <stdio.h>
#include <string.h>

/* "-00001-of-00003.gguf" */
enum { SUFFIX_SIZE = 20 };

struct split {
    uint32_t number, count; /* number from 0, as in the metadata; count 0: not split */
    uint32_t tensors;       /* of all parts */
    bool has_tensors;
};

static enum salvo_status read_split(const struct gguf_part *part, struct split *out)
{
    enum salvo_status status = SALVO_OK;
    bool has_number;
    *out = (struct split){0};
    TRY(gguf_part_get_u32(part, "split.count", &out->count, NULL));
    TRY(gguf_part_get_u32(part, "split.no", &out->number, &has_number));
    TRY(gguf_part_get_u32(part, "split.tensors.count", &out->tensors, &out->has_tensors));
    if (out->count > 99999)
        TRY(fail(
            SALVO_ERROR_FORMAT, "%s: key 'split.count' is %u, the maximum is 99999", part->name, out->count));
    if (out->count && !has_number)
        TRY(fail(SALVO_ERROR_FORMAT, "%s: key 'split.count' is %u, but key 'split.no' is missing", part->name,
            out->count));
    if (out->count && out->number >= out->count)
        TRY(fail(SALVO_ERROR_FORMAT, "%s: key 'split.no' is %u, but key 'split.count' is %u", part->name,
            out->number, out->count));

cleanup:
    return status;
}

static void format_suffix(uint32_t number, uint32_t count, char out[SUFFIX_SIZE + 1])
{
    snprintf(out, SUFFIX_SIZE + 1, "-%05u-of-%05u.gguf", (number + 1) % 100000, count % 100000);
}

/* The path of part `number`, derived from the path of another part whose split is `known`. */
static enum salvo_status part_path(const char *path, const struct split *known, uint32_t number, char **out)
{
    char expected[SUFFIX_SIZE + 1];
    size_t size = strlen(path);
    *out = NULL;
    format_suffix(known->number, known->count, expected);
    if (size < SUFFIX_SIZE || strcmp(path + size - SUFFIX_SIZE, expected) != 0) {
        return fail(SALVO_ERROR_FORMAT,
            "%s: part %u of %u of a split model must have a name that ends in '%s'", path, known->number + 1,
            known->count, expected);
    }
    enum salvo_status status = memory_copy_string(path, out);
    if (status == SALVO_OK)
        format_suffix(number, known->count, *out + size - SUFFIX_SIZE);
    return status;
}

/* Opens part `number` into `out` and checks that it belongs to the first. */
static enum salvo_status open_part(
    const struct gguf_part *first, const struct split *split, uint32_t number, struct gguf_part *out)
{
    enum salvo_status status = SALVO_OK;
    char *path = NULL;
    struct split own;
    TRY(part_path(first->name, split, number, &path));
    status = gguf_part_open(path, out);
    if (status != SALVO_OK)
        TRY(fail_within(status, "part %u of %u of a split model: ", number + 1, split->count));
    TRY(read_split(out, &own));
    if (own.count != split->count)
        TRY(fail(SALVO_ERROR_FORMAT, "%s: key 'split.count' is %u here, but %u in the first part", path,
            own.count, split->count));
    if (own.number != number)
        TRY(fail(SALVO_ERROR_FORMAT, "%s: key 'split.no' is %u, but the file name says %u", path, own.number,
            number));

cleanup:
    memory_free(path);
    return status;
}

enum salvo_status gguf_open_other_parts(struct gguf *gguf)
{
    enum salvo_status status = SALVO_OK;
    struct gguf_part *first = gguf->parts;
    char *first_path = NULL;
    struct split split;
    size_t tensors = first->tensor_count;
    TRY(read_split(first, &split));
    if (split.count <= 1)
        goto cleanup;
    if (split.number != 0) {
        TRY(part_path(first->name, &split, 0, &first_path));
        TRY(fail(SALVO_ERROR_ARGUMENT, "%s: this is part %u of %u of a split model; open the first part, %s",
            first->name, split.number + 1, split.count, first_path));
    }

    /* The array grows part by part: a count without files allocates nothing. */
    while (gguf->part_count < split.count) {
        TRY(RESIZE(&gguf->parts, gguf->part_count + 1));
        struct gguf_part *next = &gguf->parts[gguf->part_count];
        *next = (struct gguf_part){.file.guard = -1};
        uint32_t number = gguf->part_count++;
        TRY(open_part(gguf->parts, &split, number, next));
        tensors += next->tensor_count;
    }
    if (split.has_tensors && split.tensors != tensors)
        TRY(fail(SALVO_ERROR_FORMAT, "%s: key 'split.tensors.count' is %u, but the %u parts have %zu tensors",
            gguf->parts->name, split.tensors, split.count, tensors));

cleanup:
    memory_free(first_path);
    return status;
}

/* Writes a model with other tensor types. Tensors are converted in pieces, so that memory use does not grow
 * with their size. */
#include "quant/quant.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/team.h"
#include "engine/arguments.h"
#include "engine/model.h"
#include "gguf/gguf_writer.h"
#include "quant/mix.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_NAME = 256,
    PIECE_ELEMENTS = 1 << 22, /* 16 MB as floats: enough work for many threads */
};

/* Rows of one tensor, converted by the team: each row is a task. */
struct piece {
    enum tensor_type from, to;
    const uint8_t *source;
    uint8_t *target;
    uint64_t columns;
    float *values; /* [threads][columns] */
    atomic_bool not_finite;
};

static uint64_t row_bytes(uint32_t type, uint64_t columns)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return columns / info->block_elements * info->block_bytes;
}

static bool all_finite(const float *values, uint64_t count)
{
    bool finite = true;
    for (uint64_t i = 0; i < count; i++)
        finite &= isfinite(values[i]) != 0;
    return finite;
}

static void convert_row(void *context, uint32_t phase, uint32_t row, uint32_t thread)
{
    (void)phase;
    struct piece *piece = context;
    const uint64_t from_bytes = row_bytes(piece->from, piece->columns),
                   to_bytes = row_bytes(piece->to, piece->columns);
    const uint8_t *source = piece->source + row * from_bytes;
    uint8_t *target = piece->target + row * to_bytes;
    float *values = piece->values + thread * piece->columns;
    dequantize(piece->from, source, piece->columns, values);
    if (!all_finite(values, piece->columns))
        atomic_store(&piece->not_finite, true);
    if (piece->from == piece->to) /* copied: quantising again could round differently */
        memcpy(target, source, to_bytes);
    else
        quantize(piece->to, values, piece->columns, target);
}

struct quantizer {
    const struct gguf *gguf;
    const struct salvo_quantize_options *options;
    const struct mix *mix;
    struct mix_model model;
    struct gguf_writer *writer;
    struct team *team;
    uint64_t done, total;   /* bytes of the source */
    size_t quantized_again; /* tensors */
};

static const char *name_of(const struct gguf_tensor *tensor, char name[MAX_NAME])
{
    snprintf(name, MAX_NAME, "%.*s", (int)(tensor->name.size < MAX_NAME ? tensor->name.size : MAX_NAME - 1),
        tensor->name.data);
    return name;
}

static uint32_t choose_type(const struct quantizer *quantizer, const struct gguf_tensor *tensor)
{
    char name[MAX_NAME];
    const struct mix_tensor asked = {
        .name = name_of(tensor, name),
        .columns = tensor->shape[0],
        .rows = tensor->elements / (tensor->shape[0] ? tensor->shape[0] : 1),
        .type = tensor->type,
        .is_stack = tensor->dimensions > 2 && tensor->shape[2] > 1,
    };
    return quantizer->options->pure ? mix_choose_pure(quantizer->mix, &asked)
                                    : mix_choose(quantizer->mix, &quantizer->model, &asked);
}

static bool is_quantized(uint32_t type)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return info && info->block_elements > 1;
}

/* Integers and types that cannot be converted are copied, unless a type is requested for them. */
static enum salvo_status check_types(const struct gguf_tensor *tensor, uint32_t type)
{
    enum salvo_status status = SALVO_OK;
    if (type != tensor->type || !tensor->data) {
        TRY(quant_check(tensor->type));
        TRY(quant_check(type));
    }
cleanup:
    return status;
}

static enum salvo_status report_progress(
    const struct quantizer *quantizer, const struct gguf_tensor *tensor, uint64_t done)
{
    const struct salvo_quantize_options *options = quantizer->options;
    char name[MAX_NAME];
    if (options->progress &&
        !options->progress(options->user, name_of(tensor, name), quantizer->done + done, quantizer->total))
        return fail(SALVO_ERROR_CANCELLED, "stopped");
    return SALVO_OK;
}

static enum salvo_status convert_tensor(
    struct quantizer *quantizer, const struct gguf_tensor *tensor, uint32_t type)
{
    enum salvo_status status = SALVO_OK;
    uint64_t columns = tensor->shape[0], rows = columns ? tensor->elements / columns : 0;
    uint64_t at_once = columns < PIECE_ELEMENTS ? PIECE_ELEMENTS / (columns ? columns : 1) : 1;
    at_once = at_once < rows ? at_once : rows;
    uint8_t *target = NULL;
    struct piece piece = {.from = tensor->type, .to = type, .columns = columns};
    TRY(NEW(&target, at_once * row_bytes(type, columns)));
    TRY(NEW(&piece.values, team_threads(quantizer->team) * columns));
    for (uint64_t first = 0; first < rows; first += at_once) {
        TRY(report_progress(quantizer, tensor, first * row_bytes(tensor->type, columns)));
        const uint32_t count = (uint32_t)(rows - first < at_once ? rows - first : at_once);
        piece.source = tensor->data + first * row_bytes(tensor->type, columns);
        piece.target = target;
        team_run(quantizer->team,
            &(struct team_job){.context = &piece, .tasks = &count, .phase_count = 1, .work = convert_row});
        if (atomic_load(&piece.not_finite))
            TRY(fail(SALVO_ERROR_NUMERIC, "it contains values that are not finite"));
        TRY(gguf_writer_write(quantizer->writer, target, count * row_bytes(type, columns)));
    }
cleanup:
    memory_free(target);
    memory_free(piece.values);
    return status;
}

static enum salvo_status copy_tensor(struct quantizer *quantizer, const struct gguf_tensor *tensor)
{
    enum salvo_status status = SALVO_OK;
    TRY(report_progress(quantizer, tensor, 0));
    TRY(gguf_writer_write(quantizer->writer, tensor->data, tensor->size));
cleanup:
    return status;
}

static enum salvo_status write_tensor(struct quantizer *quantizer, const struct gguf_tensor *tensor)
{
    enum salvo_status status = SALVO_OK;
    uint32_t type = choose_type(quantizer, tensor);
    if (quant_check(tensor->type) == SALVO_OK)
        TRY(convert_tensor(quantizer, tensor, type));
    else
        TRY(copy_tensor(quantizer, tensor));
    quantizer->done += tensor->size;
    gguf_release(quantizer->gguf, tensor);
cleanup:
    return status;
}

/* Whether a metadata key describes the split of a model, which becomes one file. */
static bool is_split_key(struct salvo_text key)
{
    static const char prefix[] = "split.";
    return key.size >= sizeof prefix - 1 && memcmp(key.data, prefix, sizeof prefix - 1) == 0;
}

static enum salvo_status write_header(struct quantizer *quantizer)
{
    enum salvo_status status = SALVO_OK;
    const struct gguf *gguf = quantizer->gguf;
    for (size_t i = 0; i < gguf_entry_count(gguf); i++) {
        if (!is_split_key(gguf_entry_at(gguf, i)->key))
            TRY(gguf_writer_copy(quantizer->writer, gguf_entry_at(gguf, i)));
    }
    TRY(gguf_writer_set_u32(quantizer->writer, "general.file_type", mix_file_type(quantizer->mix)));
    TRY(gguf_writer_set_u32(quantizer->writer, "general.quantization_version", 2));
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        uint32_t type = choose_type(quantizer, tensor);
        char name[MAX_NAME];
        status = check_types(tensor, type);
        if (status != SALVO_OK)
            TRY(fail_within(status, "tensor '%s': ", name_of(tensor, name)));
        TRY(gguf_writer_add_tensor(quantizer->writer, tensor->name, type, tensor->dimensions, tensor->shape));
        quantizer->total += tensor->size;
        quantizer->quantized_again +=
            type != tensor->type && is_quantized(tensor->type) && is_quantized(type);
    }
cleanup:
    return status;
}

enum salvo_status salvo_quantize(
    const struct salvo_model *model, const char *path, const struct salvo_quantize_options *given)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_quantize_options options;
    REQUIRE(model);
    REQUIRE(path);
    if (!given)
        return argument_is_null(__func__, "options");
    status = options_read("salvo_quantize_options", given, sizeof options, &options);
    if (status != SALVO_OK)
        return status;
    REQUIRE(options.type);
    const struct salvo_model_info *info = salvo_model_info(model);
    struct quantizer quantizer = {
        .gguf = model_gguf(model),
        .options = &options,
        .model = {.architecture = info->architecture,
            .layers = info->layers,
            .heads = info->heads,
            .kv_heads = info->kv_heads,
            .tied = gguf_find_tensor(model_gguf(model), "output.weight") == NULL},
    };
    char experts_key[MAX_NAME];
    snprintf(experts_key, sizeof experts_key, "%s.expert_count", info->architecture);
    TRY(gguf_get_u32(quantizer.gguf, experts_key, &quantizer.model.experts, NULL));
    TRY(mix_find(options.type, &quantizer.mix));
    if (gguf_is_at(quantizer.gguf, path))
        TRY(fail(SALVO_ERROR_ARGUMENT, "%s: the model is read from this file; write to another one", path));
    TRY(team_open(options.threads, false, 1, &quantizer.team));
    TRY(options.keep_file ? gguf_writer_open_new(path, &quantizer.writer)
                          : gguf_writer_open(path, &quantizer.writer));
    TRY(write_header(&quantizer));
    if (quantizer.quantized_again) {
        log_line(SALVO_LOG_WARNING,
            "%s: %zu of %zu tensors are quantised already; quantised again they lose more than from F32, F16 "
            "or BF16",
            info->path, quantizer.quantized_again, gguf_tensor_count(quantizer.gguf));
    }
    for (size_t i = 0; i < gguf_tensor_count(quantizer.gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(quantizer.gguf, i);
        char name[MAX_NAME];
        status = write_tensor(&quantizer, tensor);
        if (status != SALVO_OK)
            TRY(fail_within(status, "tensor '%s': ", name_of(tensor, name)));
    }
    TRY(gguf_check(quantizer.gguf));
    TRY(gguf_writer_commit(quantizer.writer));
cleanup:
    if (status != SALVO_OK)
        status = gguf_check_after(quantizer.gguf, status);
    gguf_writer_close(quantizer.writer);
    team_close(quantizer.team);
    return status;
}

#include "engine/engine.h"

#include "arch/arch.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/backends.h"

#include <salvo/memory.h>

#include <inttypes.h>
#include <string.h>

enum {
    DEFAULT_CONTEXT_LIMIT = 8192,
    RECURRENT_POSITIONS = 1 << 24, /* of all sessions of a recurrent model */
    UNKNOWN_CONTEXT = 2048,        /* for models without a trained context */
    DEFAULT_BATCH = 512,
    EVAL_ROWS = 32, /* rows of logits per step: more cost memory and gain no speed */
    MAX_SESSIONS = 4096,
    MAX_CONTEXT = 1 << 26,
    MAX_BATCH = 1 << 16,
    MAX_PAGES = 1 << 30,
    MOST_CACHED_PAGES = 1 << 14, /* by SALVO_KV_MEMORY_MOST, unless sessions need more */
    DEFAULT_PREFIX_STATES_MB = 256,
};

/* In a model with only float32 tensors, an f16 cache would be by far the largest error. */
static bool is_all_float32(const struct gguf *gguf)
{
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        if (gguf_tensor_at(gguf, i)->type != TYPE_F32)
            return false;
    }
    return true;
}

static enum tensor_type kv_tensor_type(uint32_t type, const struct gguf *gguf)
{
    if (type == SALVO_KV_AUTO)
        return is_all_float32(gguf) ? TYPE_F32 : TYPE_F16;
    return type == SALVO_KV_F32 ? TYPE_F32 : type == SALVO_KV_Q8_0 ? TYPE_Q8_0 : TYPE_F16;
}

static enum salvo_status check_limit(const char *what, uint32_t value, uint32_t limit)
{
    if (value > limit)
        return fail(
            SALVO_ERROR_ARGUMENT, "%u %s were asked for; at most %u are possible", value, what, limit);
    return SALVO_OK;
}

/* Replaces zeros by defaults. */
static enum salvo_status resolve_options(
    const struct salvo_engine_options *given, const struct salvo_model *model, struct backend_options *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t trained = salvo_model_info(model)->context;
    uint32_t usual = trained ? trained : UNKNOWN_CONTEXT;
    uint32_t slots = given->sessions ? given->sessions : 1;
    const struct arch *arch = arch_of(model_gguf(model));
    uint32_t limit = arch && arch->is_recurrent ? RECURRENT_POSITIONS / slots : DEFAULT_CONTEXT_LIMIT;
    limit = limit < DEFAULT_CONTEXT_LIMIT ? DEFAULT_CONTEXT_LIMIT : limit;
    uint32_t context = given->context ? given->context : usual < limit ? usual : limit;
    uint32_t batch = given->batch ? given->batch : DEFAULT_BATCH;
    TRY(check_limit("positions of context", context, MAX_CONTEXT));
    TRY(check_limit("sessions", slots, MAX_SESSIONS));
    TRY(check_limit("tokens in a batch", batch, MAX_BATCH));
    if (given->kv_type > SALVO_KV_Q8_0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "KV type %u is not known", given->kv_type));
    if (batch > (uint64_t)slots * context)
        batch = slots * context; /* a step is never longer */
    if (batch < slots)
        batch = slots; /* every session must be able to decode in one step */
    uint32_t rows = batch < EVAL_ROWS ? batch : EVAL_ROWS;
    *out = (struct backend_options){
        .device = given->device,
        .slots = slots,
        .context = context,
        .batch = batch,
        .outputs = rows < slots ? slots : rows,
        .kv_type = kv_tensor_type(given->kv_type, model_gguf(model)),
        .threads = given->threads,
        .pin = given->pin,
        .isa = given->isa,
        .progress = given->progress,
        .progress_user = given->user,
    };
cleanup:
    return status;
}

static void warn_of_context(const struct salvo_engine *engine)
{
    uint32_t trained = salvo_model_info(engine->model)->context, context = engine->options.context;
    if (trained && context > trained)
        log_line(SALVO_LOG_WARNING, "a context of %u was asked for; the model was trained for %u", context,
            trained);
}

/* Bytes of one page of all KV caches; 0 for a model without them. */
static uint64_t page_bytes(const struct program *program, enum tensor_type kv_type)
{
    const struct tensor_type_info *kv = tensor_type_info(kv_type);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        if (buffer->kind != BUFFER_CACHE || (buffer_id)i == program->tokens)
            continue;
        uint64_t blocks = (buffer->columns + kv->block_elements - 1) / kv->block_elements;
        bytes += blocks * kv->block_bytes;
    }
    return bytes * PAGE_POSITIONS;
}

/* Bytes of a slot's recurrent state, of which a step reads one version and writes another. */
static uint64_t recurrent_bytes(const struct program *program)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++)
        elements += program->buffers[i].kind == BUFFER_RECURRENT ? program->buffers[i].columns : 0;
    return elements * sizeof(float);
}

/* Pages for SALVO_KV_MEMORY_MOST: the prefix cache may use more than sessions can. */
static uint64_t most_pages(const struct salvo_engine *engine, uint64_t bytes, uint64_t full, bool has_cache)
{
    const uint64_t memory = engine->backend->device(engine->options.device).memory,
                   file = salvo_model_info(engine->model)->file_size;
    const uint64_t budget = engine->backend == &cpu_backend ? memory / 4
                            : memory > file                 ? (memory - file) / 10 * 9
                                                            : 0;
    const uint64_t useful = has_cache && full < MOST_CACHED_PAGES ? MOST_CACHED_PAGES : full,
                   pages = memory ? budget / bytes : full;
    return pages > useful ? useful : pages > 0 ? pages : 1;
}

/* The number of pages: as many as fit into `kv_memory`, or by default as many as the contexts of all sessions
 * need. */
static enum salvo_status size_pool(struct salvo_engine *engine, const struct salvo_engine_options *given)
{
    struct backend_options *options = &engine->options;
    const uint64_t bytes = page_bytes(engine->program, options->kv_type),
                   context_pages = (options->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    uint64_t pages = options->slots * context_pages;
    engine->has_caches = bytes > 0;
    if (given->kv_memory == SALVO_KV_MEMORY_MOST && bytes)
        pages = most_pages(engine, bytes, pages, given->prefix_cache);
    else if (given->kv_memory && bytes)
        pages = given->kv_memory / bytes;
    if (pages == 0) {
        return fail(SALVO_ERROR_ARGUMENT,
            "a KV memory of %" PRIu64 " bytes is too small: one page of %d positions takes %" PRIu64,
            given->kv_memory, PAGE_POSITIONS, bytes);
    }
    if (pages > MAX_PAGES) {
        return fail(SALVO_ERROR_MEMORY, "%" PRIu64 " KV pages are too many; at most %u are possible", pages,
            MAX_PAGES);
    }
    options->pages = (uint32_t)pages;
    return SALVO_OK;
}

/* Refuses a context that does not fit into memory before anything is allocated; otherwise the system would
 * kill the process later. */
static enum salvo_status check_memory(
    const struct salvo_engine *engine, const struct salvo_engine_options *given)
{
    const struct program *program = engine->program;
    const struct backend_options *options = &engine->options;
    const uint64_t mega = 1000000;
    uint64_t memory = engine->backend->device(options->device).memory,
             file = salvo_model_info(engine->model)->file_size;
    uint64_t state = (uint64_t)options->pages * page_bytes(program, options->kv_type) +
                     (uint64_t)options->slots * options->context * sizeof(int32_t);
    state += ((uint64_t)options->slots * 2 + options->states) * recurrent_bytes(program);
    if (memory == 0 || state + file <= memory)
        return SALVO_OK;
    if (given->kv_memory && engine->has_caches) {
        return fail(SALVO_ERROR_MEMORY,
            "a KV memory of %llu MB does not fit beside the model's %llu MB: %s has %llu MB in all",
            (unsigned long long)(state / mega), (unsigned long long)(file / mega),
            engine->backend->device(options->device).name, (unsigned long long)(memory / mega));
    }
    return fail(SALVO_ERROR_MEMORY,
        "a context of %u for %u session%s needs %llu MB beside the model's %llu MB; %s has %llu MB in "
        "all",
        options->context, options->slots, options->slots == 1 ? "" : "s", (unsigned long long)(state / mega),
        (unsigned long long)(file / mega), engine->backend->device(options->device).name,
        (unsigned long long)(memory / mega));
}

/* Names, kinds and sizes of all states, in the order in which they are saved. */
static uint64_t hash_layout(const struct program *program)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        if (buffer->kind != BUFFER_CACHE && buffer->kind != BUFFER_RECURRENT)
            continue;
        uint64_t parts[] = {
            hash, checksum64(buffer->name, strlen(buffer->name)), buffer->kind, buffer->columns};
        hash = checksum64(parts, sizeof parts);
    }
    return hash;
}

/* The pools of sessions and of KV pages, and memory for all tokens. */
static enum salvo_status open_sessions(struct salvo_engine *engine)
{
    enum salvo_status status = SALVO_OK;
    uint32_t slots = engine->options.slots, context = engine->options.context;
    size_t slot_pages = (context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    TRY(NEW(&engine->sessions, slots));
    TRY(NEW(&engine->pages, slots * slot_pages));
    TRY(NEW(&engine->tokens, (size_t)slots * context));
    TRY(NEW(&engine->runs, slots));
    TRY(NEW(&engine->results, slots));
    TRY(NEW(&engine->ids, engine->options.batch));
    TRY(batch_open(engine));
    for (uint32_t slot = 0; slot < slots; slot++) {
        engine->sessions[slot] = (struct salvo_session){
            .engine = engine,
            .slot = slot,
            .pages = engine->pages + slot * slot_pages,
            .tokens = engine->tokens + (size_t)slot * context,
        };
    }
    if (engine->has_caches)
        memset(engine->pages, 0xff, slots * slot_pages * sizeof *engine->pages); /* NO_PAGE */
cleanup:
    return status;
}

/* How many recurrent states the device keeps. */
static enum salvo_status plan_states(struct salvo_engine *engine, const struct salvo_engine_options *options)
{
    const uint64_t mega = 1 << 20, given = options->prefix_states_mb,
                   budget = (given ? given : DEFAULT_PREFIX_STATES_MB) * mega;
    engine->has_recurrent_state = recurrent_bytes(engine->program) > 0;
    return snapshots_plan(engine, recurrent_bytes(engine->program), options->prefix_cache ? budget : 0);
}

static void fill_info(struct salvo_engine *engine)
{
    const struct backend_info info = engine->backend->info(engine->executor);
    const struct backend_counters counters = engine->backend->counters(engine->executor);
    engine->info = (struct salvo_engine_info){
        .size = sizeof engine->info,
        .backend = engine->backend->name,
        .device = engine->backend->device(engine->options.device).name,
        .isa = info.isa,
        .threads = info.threads,
        .sessions = engine->options.slots,
        .context = engine->options.context,
        .batch = engine->options.batch,
        .vocabulary = engine->program->vocabulary,
        .weight_bytes = counters.weight_bytes,
        .state_bytes = counters.state_bytes,
        .scratch_bytes = counters.scratch_bytes,
        .memory_free = info.memory_free,
        .bytes_per_second = info.bytes_per_second,
    };
}

/* SALVO_KV_MEMORY_MOST is an estimate: less is tried if the device has less memory to give. */
static enum salvo_status open_backend(struct salvo_engine *engine, const struct salvo_engine_options *given)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t least = (engine->options.context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    do {
        status = engine->backend->open(engine->program, &engine->options, &engine->executor);
        engine->options.pages -= status == SALVO_OK ? 0 : engine->options.pages / 4;
    } while (status == SALVO_ERROR_MEMORY && given->kv_memory == SALVO_KV_MEMORY_MOST && engine->has_caches &&
             engine->options.pages > least);
    if (status == SALVO_OK && engine->has_caches)
        status = page_pool_open(&engine->page_pool, engine->options.pages);
    return status;
}

/* out_tried: whether the device was opened, not only the file read. */
static enum salvo_status open_on(const struct backend *backend, struct salvo_model *model,
    const struct salvo_engine_options *options, bool *out_tried, struct salvo_engine **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = NULL;
    *out_tried = false;
    TRY(NEW(&engine, 1));
    engine->model = model;
    engine->backend = backend;
    TRY(backend_check_device(backend, options->device));
    TRY(resolve_options(options, model, &engine->options));
    TRY(arch_build_for(model_gguf(model), engine->options.context, &engine->program));
    *out_tried = true;
    TRY(size_pool(engine, options));
    TRY(plan_states(engine, options));
    TRY(check_memory(engine, options));
    TRY(open_sessions(engine));
    TRY(open_backend(engine, options));
    TRY(last_norm_open(&engine->last_norm, engine->program));
    TRY(gguf_check(model_gguf(model)));
    engine->layout_hash = hash_layout(engine->program);
    if (options->prefix_cache)
        TRY(prefix_cache_open(
            &engine->prefix_cache, &engine->page_pool, &engine->state_pool, engine->cached_states));
    fill_info(engine);
    warn_of_context(engine);
    *out = engine;

cleanup:
    if (status != SALVO_OK) {
        status = gguf_check_after(model_gguf(model), status);
        salvo_engine_close(engine);
    }
    return status;
}

/* Whether another device might succeed. */
static bool is_device_error(enum salvo_status status)
{
    return status == SALVO_ERROR_DEVICE || status == SALVO_ERROR_MEMORY || status == SALVO_ERROR_UNSUPPORTED;
}

enum salvo_status salvo_engine_open(
    struct salvo_model *model, const struct salvo_engine_options *given, struct salvo_engine **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine_options options;
    const struct backend *backend;
    bool tried;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(model);
    TRY(options_read("salvo_engine_options", given, sizeof options, &options));
    TRY(backend_find(options.backend, &backend));
    status = open_on(backend, model, &options, &tried, out);
    /* `auto` tries the next backend only here: an open engine never moves to another device. */
    while (tried && is_device_error(status) && (backend = backend_after(options.backend, backend))) {
        log_line(SALVO_LOG_WARNING, "%s; going on with %s", salvo_error(), backend->name);
        status = open_on(backend, model, &options, &tried, out);
    }
cleanup:
    return status;
}

void salvo_engine_close(struct salvo_engine *engine)
{
    if (!engine)
        return;
    batch_close(engine);
    if (engine->executor)
        engine->backend->close(engine->executor);
    for (uint32_t slot = 0; engine->sessions && slot < engine->options.slots; slot++)
        memory_free(engine->sessions[slot].bias);
    page_pool_close(&engine->state_pool);
    memory_free(engine->sessions);
    memory_free(engine->pages);
    prefix_cache_close(&engine->prefix_cache);
    page_pool_close(&engine->page_pool);
    memory_free(engine->tokens);
    memory_free(engine->runs);
    memory_free(engine->results);
    memory_free(engine->ids);
    masks_close(&engine->masks);
    last_norm_close(&engine->last_norm);
    program_close(engine->program);
    memory_free(engine);
}

const struct salvo_engine_info *salvo_engine_info(const struct salvo_engine *engine)
{
    return engine ? &engine->info : NULL;
}

enum salvo_status salvo_engine_counters(const struct salvo_engine *engine, struct salvo_counters *out)
{
    REQUIRE(engine);
    REQUIRE(out);
    const struct backend_counters counters = engine->backend->counters(engine->executor);
    const struct salvo_counters result = {
        .submissions = counters.submissions,
        .tokens = counters.tokens,
        .dispatches = counters.dispatches,
        .barriers = counters.barriers,
        .bytes_read_back = counters.bytes_read_back,
        .allocations_after_load = engine->allocations + counters.creations_after_load,
        .idle_seconds = counters.idle_seconds,
        .waits = engine->waits,
    };
    return result_write("salvo_counters", &result, sizeof result, out);
}

enum salvo_status salvo_engine_print(const struct salvo_engine *engine, salvo_line_function line, void *user)
{
    REQUIRE(engine);
    REQUIRE(line);
    program_print(engine->program, line, user);
    engine->backend->print(engine->executor, line, user);
    return SALVO_OK;
}

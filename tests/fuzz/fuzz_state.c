/*
 * Any bytes are either a saved state or conversation, from which a session goes on, or refused. Checksums are
 * put right first: they find accidents, and a file can be made to fit. Inputs are a byte that chooses the
 * model, then the file. The mutator makes whole files on the spot, so that no seeds are kept.
 */
#include "engine/chat_section.h"
#include "engine/engine.h"
#include "model_write.h"

#include <sanitizer/lsan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity);

/* In a saved state and in the section behind it, as the files have it. */
enum {
    STATE_VERSION_AT = 8,
    STATE_KV_TYPE_AT = 12,
    STATE_SIZE_AT = 16,
    STATE_CHECKSUM_AT = 24,
    STATE_IDENTITY_AT = 32, /* of the model and of the layout */
    STATE_IDENTITY_SIZE = 16,
    STATE_HEADER = 128,
    SECTION_SIZE_AT = 16,
    SECTION_CHECKSUM_AT = 32,
    SECTION_HEADER = 40,
};

enum { CONTEXT = 24, MODELS = 2, VOCABULARY = 17 };

static struct salvo_session *sessions[MODELS];
static uint8_t headers[MODELS][STATE_HEADER]; /* of files of the models */
static int file;
static char path[64];

static void need(enum salvo_status status)
{
    if (status != SALVO_OK) {
        fprintf(stderr, "fuzz_state: %s\n", salvo_error());
        abort();
    }
}

static struct salvo_session *open_session(const struct model_shape *shape)
{
    const struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options), .backend = "cpu", .context = CONTEXT, .threads = 1};
    const struct salvo_sampler sampler = {.size = sizeof(struct salvo_sampler),
        .top_p = 1,
        .repeat_penalty = 1.5f,
        .presence_penalty = 0.5f,
        .frequency_penalty = 0.5f,
        .repeat_last_n = CONTEXT};
    char model_path[] = "/tmp/salvo-fuzz-state-XXXXXX";
    struct salvo_model *model;
    struct salvo_engine *engine;
    struct salvo_session *session;
    if (close(mkstemp(model_path)) != 0)
        abort();
    need(model_write(shape, &model_mixes[0], model_path, 1));
    need(salvo_model_open(model_path, &model));
    unlink(model_path);
    need(salvo_engine_open(model, &options, &engine));
    need(salvo_session_open(engine, &session));
    need(salvo_session_set_sampler(session, &sampler));
    return session;
}

/* A file as the engine writes it, behind the byte that chooses the model; 0: there is no room. */
static size_t make_file(uint8_t *data, size_t capacity, unsigned seed)
{
    struct salvo_session *session = sessions[seed % MODELS];
    const struct salvo_message messages[] = {
        {.role = "system", .content = {"be brief", 8}}, {.role = "user", .content = {"", 0}, .json = "{}"}};
    int32_t ids[CONTEXT], id;
    const size_t count = 1 + seed / 2 % (CONTEXT - 1);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)((seed + i * i) % VOCABULARY);
    need(salvo_session_rollback(session, 0));
    need(salvo_session_feed(session, ids, count / 2));
    need(salvo_session_mark(session)); /* a file of the recurrent model contains this snapshot */
    need(salvo_session_feed(session, ids + count / 2, count - count / 2));
    if (seed / 8 % 2)
        need(salvo_session_next(session, &id));
    char name[64];
    snprintf(name, sizeof name, "/tmp/salvo-fuzz-state-%ld", (long)getpid());
    need(seed / 16 % 2 ? salvo_session_chat_save_file(
                             session, messages, seed / 32 % 3, sizeof(struct salvo_message), name)
                       : salvo_session_state_save_file(session, name));
    FILE *made = fopen(name, "rb");
    if (!made)
        abort();
    data[0] = (uint8_t)(seed % MODELS);
    const size_t size = fread(data + 1, 1, capacity - 1, made);
    const bool is_whole = fgetc(made) == EOF;
    fclose(made);
    unlink(name);
    return is_whole ? 1 + size : 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) // NOLINT(readability-non-const-parameter)
{
    const struct model_shape llama = smallest_llama(VOCABULARY, CONTEXT);
    static const struct model_shape rwkv7 = {.name = "rwkv7",
        .architecture = RWKV7,
        .layers = 1,
        .width = 8,
        .head_size = 8,
        .feed_forward = 8,
        .vocabulary = VOCABULARY,
        .context = CONTEXT,
        .decay_rank = 2,
        .iclr_rank = 2,
        .value_rank = 2,
        .gate_rank = 2};
    (void)argc;
    (void)argv;
    __lsan_disable(); /* the engines stay open; LeakSanitizer does not see all references to them */
    sessions[0] = open_session(&llama);
    sessions[1] = open_session(&rwkv7);
    __lsan_enable();
    for (unsigned i = 0; i < MODELS; i++) {
        uint8_t whole[4096];
        if (!make_file(whole, sizeof whole, i))
            abort();
        memcpy(headers[i], whole + 1, STATE_HEADER);
    }
    file = memfd_create("state", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

/* ---- The target ---- */

static void put_checksums_right(uint8_t *data, size_t size)
{
    const struct state_extent extent = session_state_extent(data, size);
    if (extent.size < STATE_HEADER || extent.size > size)
        return;
    const uint64_t checksum = session_state_checksum(data, extent.size);
    memcpy(data + STATE_CHECKSUM_AT, &checksum, sizeof checksum);
    uint8_t *section = data + extent.size;
    const size_t section_size = size - extent.size;
    if (section_size >= SECTION_HEADER && chat_section_begins(section, section_size)) {
        const uint64_t all = chat_section_checksum(section, section_size, checksum);
        memcpy(section + SECTION_CHECKSUM_AT, &all, sizeof all);
    }
}

/* Reads everything that was handed over. */
static size_t touch_messages(const struct salvo_messages *messages)
{
    size_t sum = 0;
    for (size_t i = 0; i < messages->count; i++) {
        const struct salvo_message *message = &messages->items[i];
        sum += strlen(message->role) + (message->json ? strlen(message->json) : 0);
        for (size_t j = 0; j <= message->content.size; j++) /* a NUL follows it */
            sum += (uint8_t)message->content.data[j];
    }
    return sum;
}

/* A session that has loaded the file continues like any other. */
static void go_on(struct salvo_session *session)
{
    const int32_t *tokens = salvo_session_tokens(session);
    const int32_t more[] = {1, 2, 3};
    const uint32_t position = salvo_session_position(session);
    int32_t id;
    if (position > CONTEXT || salvo_session_logits(session))
        abort();
    for (uint32_t i = 0; i < position; i++) {
        if (tokens[i] < 0 || tokens[i] >= VOCABULARY)
            abort();
    }
    for (int i = 0; i < 3; i++) /* fails where the context is full, or floats of the file are no numbers */
        (void)salvo_session_next(session, &id);
    (void)salvo_session_feed(session, more, 3);
    (void)salvo_session_rollback(session, salvo_session_position(session) / 2);
    (void)salvo_session_next(session, &id);
    if (salvo_session_position(session)) /* to the snapshot that the file may contain */
        (void)salvo_session_rollback(session, salvo_session_position(session) - 1);
    (void)salvo_session_next(session, &id);
    const size_t size = salvo_session_state_size(session);
    uint8_t *state = malloc(size);
    if (!state)
        abort();
    need(salvo_session_state_save(session, state, size));
    need(salvo_session_state_restore(session, state, size));
    free(state);
    (void)salvo_session_next(session, &id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct salvo_session *session = sessions[data[0] % MODELS];
    struct salvo_messages *messages;
    uint8_t *copy = malloc(size);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    put_checksums_right(copy + 1, size - 1);
    if (ftruncate(file, 0) != 0 || pwrite(file, copy + 1, size - 1, 0) != (ssize_t)(size - 1))
        abort();
    free(copy);

    need(salvo_session_rollback(session, 0));
    if (salvo_session_chat_load_file(session, path, &messages) == SALVO_OK) {
        if (touch_messages(messages) == SIZE_MAX)
            abort();
        salvo_free(messages);
        go_on(session);
    } else if (salvo_session_position(session) != 0) {
        abort(); /* refused without effect */
    } else if (salvo_session_state_load_file(session, path) == SALVO_OK) {
        go_on(session);
    }
    return 0;
}

/* ---- The mutator ---- */

/* Most files should pass the check of the model: its hash is corrected, often the size as well; sometimes the
 * version is an old one. */
static void repair(uint8_t *data, size_t size, unsigned seed)
{
    if (size < 1 + STATE_HEADER || seed % 8 == 0)
        return;
    const uint8_t *header = headers[data[0] % MODELS];
    uint8_t *state = data + 1;
    memcpy(state, header, STATE_VERSION_AT);
    memcpy(state + STATE_IDENTITY_AT, header + STATE_IDENTITY_AT, STATE_IDENTITY_SIZE);
    state[STATE_HEADER - 1] = 0; /* the end of the model's name */
    const uint32_t version = seed / 8 % 4 < 2 ? 4 : seed / 8 % 4;
    memcpy(state + STATE_VERSION_AT, &version, sizeof version);
    memcpy(state + STATE_KV_TYPE_AT, header + STATE_KV_TYPE_AT, sizeof(uint32_t));
    uint64_t own = 0;
    memcpy(&own, state + STATE_SIZE_AT, sizeof own);
    if (seed / 32 % 2 && (own > size - 1 || !chat_section_begins(state + own, size - 1 - (size_t)own))) {
        own = size - 1;
        memcpy(state + STATE_SIZE_AT, &own, sizeof own);
    } else if (own < size - 1 && size - 1 - own >= SECTION_HEADER) {
        const uint64_t section = size - 1 - own;
        memcpy(state + own + SECTION_SIZE_AT, &section, sizeof section);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed)
{
    if (size < 1 + STATE_HEADER || seed % 16 == 0) {
        const size_t made = make_file(data, capacity, seed / 16);
        if (made || size == 0)
            return made ? made : LLVMFuzzerMutate(data, size, capacity);
    }
    size = LLVMFuzzerMutate(data, size, capacity);
    repair(data, size, seed / 16);
    return size;
}

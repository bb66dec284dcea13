/* Sessions in files: a loaded session continues with the same bits; the error for another file names the
 * difference. */
#include "cmocka_test.h"
#include "engine_fixture.h"

#include "backend/common/state.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static void assert_refused(
    enum salvo_status expected, struct salvo_session *session, const char *file, const char *words)
{
    assert_int_equal(expected, salvo_session_state_load_file(session, file));
    if (!strstr(salvo_error(), words) || !strstr(salvo_error(), file))
        fail_msg("'%s' does not say '%s' and '%s'", salvo_error(), words, file);
}

/* Two engines take turns, the state going from one to the other through the file; a third never stops. */
static void keep_through_turns(const char *model, uint32_t turns, uint32_t context)
{
    const struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options), .context = context};
    struct fixture stopping[2] = {fixture_open(model, options), fixture_open(model, options)};
    struct fixture steady = fixture_open(model, options);
    for (uint32_t turn = 0; turn < turns; turn++) {
        struct salvo_session *session = stopping[turn % 2].session;
        if (turn)
            ASSERT_OK(salvo_session_state_load_file(session, path));
        if (salvo_session_position(session) + 8 > context) { /* a new conversation */
            ASSERT_OK(salvo_session_rollback(session, 0));
            ASSERT_OK(salvo_session_rollback(steady.session, 0));
        }
        uint32_t said = 1 + turn % 5;
        int32_t *ids = some_ids(said, steady.vocabulary, turn), got, want;
        ASSERT_OK(salvo_session_feed(session, ids, said));
        ASSERT_OK(salvo_session_feed(steady.session, ids, said));
        assert_memory_equal(salvo_session_logits(session), salvo_session_logits(steady.session),
            steady.vocabulary * sizeof(float));
        for (uint32_t i = 0; i < turn % 3; i++) {
            ASSERT_OK(salvo_session_next(session, &got));
            ASSERT_OK(salvo_session_next(steady.session, &want));
            assert_int_equal(want, got);
        }
        free(ids);
        ASSERT_OK(salvo_session_state_save_file(session, path));
    }
    fixture_close(&steady);
    fixture_close(&stopping[1]);
    fixture_close(&stopping[0]);
    unlink(path);
}

static void a_thousand_turns_of_llama(void **state)
{
    (void)state;
    keep_through_turns(made_model("llama-tiny", "Q8_0"), LONG_RUN(1000), 256);
}

static void a_thousand_turns_of_rwkv(void **state)
{
    (void)state;
    keep_through_turns(made_model("rwkv7-tiny", "Q8_0"), LONG_RUN(1000), 4096);
}

/* Going back by 100 tokens, further than the newest snapshot may be. */
static void a_loaded_session_can_be_rolled_back(void **state)
{
    (void)state;
    const char *model = made_model("rwkv7-tiny", "Q8_0");
    struct fixture first =
        fixture_open(model, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture second =
        fixture_open(model, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(700, first.vocabulary, 1), want, got;
    ASSERT_OK(salvo_session_feed(first.session, ids, 700));
    ASSERT_OK(salvo_session_state_save_file(first.session, path));
    ASSERT_OK(salvo_session_state_load_file(second.session, path));
    ASSERT_OK(salvo_session_rollback(first.session, 600));
    ASSERT_OK(salvo_session_rollback(second.session, 600));
    ASSERT_OK(salvo_session_state_save_file(second.session, path)); /* before anything is computed again */
    ASSERT_OK(salvo_session_state_load_file(second.session, path));
    for (int i = 0; i < 10; i++) {
        ASSERT_OK(salvo_session_next(first.session, &want));
        ASSERT_OK(salvo_session_next(second.session, &got));
        assert_int_equal(want, got);
    }
    free(ids);
    fixture_close(&second);
    fixture_close(&first);
    unlink(path);
}

/* A short state too, which has no snapshot yet: a rollback by one or two tokens begins at the end of the
 * loaded state. */
static void a_loaded_session_goes_back_to_its_end(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    const char *model = made_model("rwkv7-tiny", "Q8_0");
    struct fixture first =
        fixture_open(model, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture second =
        fixture_open(model, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(COUNT, first.vocabulary, 1), expected[5], got;
    ASSERT_OK(salvo_session_feed(first.session, ids, COUNT));
    ASSERT_OK(salvo_session_state_save_file(first.session, path));
    for (int i = 0; i < 5; i++)
        ASSERT_OK(salvo_session_next(first.session, &expected[i]));
    ASSERT_OK(salvo_session_state_load_file(second.session, path));
    for (uint32_t back = 1; back <= 2; back++) {
        for (uint32_t i = salvo_session_position(second.session) - COUNT; i < 3; i++) {
            ASSERT_OK(salvo_session_next(second.session, &got));
            assert_int_equal(expected[i], got);
        }
        ASSERT_OK(salvo_session_rollback(second.session, COUNT + 3 - back));
        const uint64_t before = counters_of(second.engine).tokens;
        for (uint32_t i = 3 - back; i < 5; i++) {
            ASSERT_OK(salvo_session_next(second.session, &got));
            assert_int_equal(expected[i], got);
        }
        assert_in_range(counters_of(second.engine).tokens - before, 1, 5);
        ASSERT_OK(salvo_session_rollback(second.session, COUNT + 1));
    }
    free(ids);
    fixture_close(&second);
    fixture_close(&first);
    unlink(path);
}

/* Rolls both sessions back by one token and asserts that they choose the same id. Returns the number of
 * tokens that the first one computed for it. */
static uint64_t tokens_to_go_back_one(struct fixture *loaded, struct fixture *original)
{
    const uint64_t before = counters_of(loaded->engine).tokens;
    int32_t want, got;
    ASSERT_OK(salvo_session_rollback(loaded->session, salvo_session_position(loaded->session) - 1));
    ASSERT_OK(salvo_session_rollback(original->session, salvo_session_position(original->session) - 1));
    ASSERT_OK(salvo_session_next(loaded->session, &got));
    ASSERT_OK(salvo_session_next(original->session, &want));
    assert_int_equal(want, got);
    return counters_of(loaded->engine).tokens - before;
}

/* A file of a recurrent session contains the nearest snapshot before its end, whether the caller marked it or
 * the engine took it, so a rollback begins there and not at the first token. */
static void a_loaded_session_goes_back_to_the_snapshot_of_the_file(void **state)
{
    (void)state;
    enum { MARKED = 500, COUNT = 510, MORE = 400 };
    const struct salvo_engine_options options = {.size = sizeof(struct salvo_engine_options), .batch = 128};
    const char *model = made_model("rwkv7-tiny", "Q8_0");
    struct fixture first = fixture_open(model, options), second = fixture_open(model, options);
    struct fixture third = fixture_open(model, options);
    int32_t *ids = some_ids(COUNT + MORE, first.vocabulary, 1);
    set_greedy(first.session);
    set_greedy(second.session);
    set_greedy(third.session);
    ASSERT_OK(salvo_session_feed(first.session, ids, MARKED));
    ASSERT_OK(salvo_session_mark(first.session));
    ASSERT_OK(salvo_session_feed(first.session, ids + MARKED, COUNT - MARKED));
    ASSERT_OK(salvo_session_mark(first.session)); /* at the end of the file, where a rollback cannot use it */
    ASSERT_OK(salvo_session_state_save_file(first.session, path));
    ASSERT_OK(salvo_session_state_load_file(second.session, path));
    ASSERT_OK(salvo_session_state_save_file(second.session, path)); /* the snapshot is saved again */
    ASSERT_OK(salvo_session_state_load_file(third.session, path));
    assert_int_equal(COUNT - 1 - MARKED, tokens_to_go_back_one(&third, &first));

    ASSERT_OK(salvo_session_rollback(first.session, COUNT - 1));
    ASSERT_OK(salvo_session_feed(first.session, ids + COUNT - 1, 1 + MORE));
    ASSERT_OK(salvo_session_state_save_file(first.session, path));
    ASSERT_OK(salvo_session_state_load_file(second.session, path));
    assert_in_range(tokens_to_go_back_one(&second, &first), 1, 256 + 128);
    free(ids);
    fixture_close(&third);
    fixture_close(&second);
    fixture_close(&first);
    unlink(path);
}

static void a_copied_session_goes_back_to_the_snapshot_too(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("rwkv7-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .sessions = 2});
    struct salvo_session *copy;
    int32_t *ids = some_ids(60, fixture.vocabulary, 1), id;
    ASSERT_OK(salvo_session_open(fixture.engine, &copy));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 50));
    ASSERT_OK(salvo_session_mark(fixture.session));
    ASSERT_OK(salvo_session_feed(fixture.session, ids + 50, 10));
    ASSERT_OK(salvo_session_copy(copy, fixture.session));
    const uint64_t before = counters_of(fixture.engine).tokens;
    ASSERT_OK(salvo_session_rollback(copy, 51));
    ASSERT_OK(salvo_session_next(copy, &id));
    assert_int_equal(1, counters_of(fixture.engine).tokens - before);
    free(ids);
    salvo_session_close(copy);
    fixture_close(&fixture);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("rwkv7-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture other = fixture_open(made_model("rwkv7-tiny", "F16"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture llama = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(20, fixture.vocabulary, 1);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 20));
    ASSERT_OK(salvo_session_state_save_file(fixture.session, path));
    assert_refused(SALVO_ERROR_ARGUMENT, other.session, path, "another model, 'rwkv7-tiny Q8_0, random'");
    assert_refused(SALVO_ERROR_ARGUMENT, llama.session, path, "another model");
    assert_refused(SALVO_ERROR_IO, fixture.session, "/tmp/salvo-no-such-file", "");

    const size_t size = salvo_session_state_size(fixture.session);
    char *bytes = calloc(size + 3, 1);
    assert_non_null(bytes);
    ASSERT_OK(salvo_session_state_save(fixture.session, bytes, size));
    write_file(path, bytes, size / 2);
    assert_refused(SALVO_ERROR_FORMAT, fixture.session, path, "cut");
    write_file(path, bytes, size + 3);
    assert_refused(SALVO_ERROR_FORMAT, fixture.session, path, "3 bytes follow");
    write_file(path, bytes, 5);
    assert_refused(SALVO_ERROR_FORMAT, fixture.session, path, "too few");
    bytes[size / 2] ^= 1;
    write_file(path, bytes, size);
    assert_refused(SALVO_ERROR_FORMAT, fixture.session, path, "damaged");
    bytes[8] ^= 64;
    write_file(path, bytes, size);
    assert_refused(SALVO_ERROR_UNSUPPORTED, fixture.session, path, "version");
    bytes[0] = 'x';
    write_file(path, bytes, size);
    assert_refused(SALVO_ERROR_FORMAT, fixture.session, path, "not a saved state");
    assert_int_equal(0, truncate(path, (off_t)1 << 34)); /* one hole; ThreadSanitizer cannot map 64 GiB */
    assert_refused(SALVO_ERROR_FORMAT, fixture.session, path, "not a saved state");

    assert_int_equal(20, salvo_session_position(fixture.session)); /* refused without effect */
    assert_int_equal(
        SALVO_ERROR_IO, salvo_session_state_save_file(fixture.session, "/tmp/salvo-no-such-folder/state"));
    free(bytes);
    free(ids);
    fixture_close(&llama);
    fixture_close(&other);
    fixture_close(&fixture);
    unlink(path);
}

/* ---- Files that were made to fit ---- */

/* In a saved state. */
enum {
    VERSION_AT = 8,
    SIZE_AT = 16,
    CHECKSUM_AT = 24,
    MODEL_HASH_AT = 32,
    COMPUTED_AT = 52,
    PENDING_AT = 56,
    MODEL_NAME_AT = 60,
    IDS_AT = 128
};

static void put_checksum(uint8_t *bytes, size_t size)
{
    const uint64_t checksum = session_state_checksum(bytes, size);
    memcpy(bytes + CHECKSUM_AT, &checksum, sizeof checksum);
}

/* Saves the state with four bytes replaced and the checksum corrected, and asserts that it is refused. */
static void assert_change_refused(struct fixture *fixture, size_t at, int32_t number, const char *words)
{
    const size_t size = salvo_session_state_size(fixture->session);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    ASSERT_OK(salvo_session_state_save(fixture->session, bytes, size));
    memcpy(bytes + at, &number, sizeof number);
    put_checksum(bytes, size);
    write_file(path, bytes, size);
    assert_refused(SALVO_ERROR_FORMAT, fixture->session, path, words);
    free(bytes);
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(20, fixture.vocabulary, 1);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 20));
    for (uint32_t i = 0; i < 20; i++) {
        static const int32_t wrong[] = {-1, INT32_MIN, INT32_MAX, 331};
        assert_change_refused(&fixture, IDS_AT + i * sizeof *wrong, wrong[i % 4], "outside the vocabulary");
    }
    free(ids);
    fixture_close(&fixture);
    unlink(path);
}

static void numbers_of_the_header_are_checked(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        int32_t number;
    } wrong[] = {{PENDING_AT, 331}, {PENDING_AT, INT32_MAX}, {PENDING_AT, -2}, {PENDING_AT, INT32_MIN},
        {COMPUTED_AT, 21}, {COMPUTED_AT, 19}, {COMPUTED_AT, -1}};
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(20, fixture.vocabulary, 1);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 20));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_change_refused(&fixture, wrong[i].at, wrong[i].number, "the state is inconsistent");
    const int32_t last = 330; /* the largest id may be chosen */
    const size_t size = salvo_session_state_size(fixture.session);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    ASSERT_OK(salvo_session_state_save(fixture.session, bytes, size));
    memcpy(bytes + PENDING_AT, &last, sizeof last);
    put_checksum(bytes, size);
    int32_t id;
    ASSERT_OK(salvo_session_state_restore(fixture.session, bytes, size));
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    assert_int_equal(last, id);
    free(bytes);
    free(ids);
    fixture_close(&fixture);
    unlink(path);
}

/* ---- The snapshot ---- */

enum { SNAPSHOT_AT = 30, SNAPSHOT_END = 40 };

/* A state of SNAPSHOT_END tokens and, for a recurrent model, a snapshot after SNAPSHOT_AT. To be freed. */
static uint8_t *state_with_snapshot(struct fixture *fixture, size_t *out_size)
{
    int32_t *ids = some_ids(SNAPSHOT_END, fixture->vocabulary, 1);
    ASSERT_OK(salvo_session_feed(fixture->session, ids, SNAPSHOT_AT));
    ASSERT_OK(salvo_session_mark(fixture->session));
    ASSERT_OK(salvo_session_feed(fixture->session, ids + SNAPSHOT_AT, SNAPSHOT_END - SNAPSHOT_AT));
    free(ids);
    *out_size = salvo_session_state_size(fixture->session);
    uint8_t *bytes = malloc(*out_size);
    assert_non_null(bytes);
    ASSERT_OK(salvo_session_state_save(fixture->session, bytes, *out_size));
    return bytes;
}

/* Bytes of a snapshot with its position. */
static size_t snapshot_size(const struct fixture *fixture)
{
    const struct salvo_engine *engine = fixture->engine;
    return sizeof(uint32_t) +
           (engine->has_recurrent_state ? state_size(engine->backend, engine->executor, 0) : 0);
}

/* A state with another size and position of the snapshot, and `version`, is refused. */
static void assert_snapshot_refused(struct fixture *fixture, const uint8_t *bytes, size_t full, size_t size,
    uint32_t version, uint32_t position)
{
    const size_t at = full - snapshot_size(fixture);
    const uint64_t all = size;
    uint8_t *changed = calloc(1, size > full ? size : full);
    assert_non_null(changed);
    memcpy(changed, bytes, full);
    memcpy(changed + at, &position, sizeof position);
    memcpy(changed + VERSION_AT, &version, sizeof version);
    memcpy(changed + SIZE_AT, &all, sizeof all);
    put_checksum(changed, size);
    write_file(path, changed, size);
    assert_refused(SALVO_ERROR_FORMAT, fixture->session, path, "the state is inconsistent");
    free(changed);
}

static void snapshots_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, SNAPSHOT_END, SNAPSHOT_END + 1, INT32_MAX, UINT32_MAX};
    static const char *const shapes[] = {"rwkv7-tiny", "llama-tiny"};
    for (int i = 0; i < 2; i++) {
        struct fixture fixture = fixture_open(made_model(shapes[i], "Q8_0"),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
        const bool is_recurrent = i == 0;
        size_t size;
        uint8_t *bytes = state_with_snapshot(&fixture, &size);
        uint32_t position;
        const size_t end = size - snapshot_size(&fixture); /* of the state before the snapshot */
        memcpy(&position, bytes + end, sizeof position);
        assert_int_equal(is_recurrent ? SNAPSHOT_AT : 0, position);
        ASSERT_OK(salvo_session_state_restore(fixture.session, bytes, size));
        for (size_t j = is_recurrent ? 0 : 1; j < sizeof wrong / sizeof *wrong; j++)
            assert_snapshot_refused(&fixture, bytes, size, size, 4, wrong[j]);
        assert_snapshot_refused(&fixture, bytes, size, size, 4, is_recurrent ? SNAPSHOT_END : 1);
        assert_snapshot_refused(&fixture, bytes, size, size - 1, 4, position);
        assert_snapshot_refused(&fixture, bytes, size, size + 1, 4, position);
        assert_snapshot_refused(&fixture, bytes, size, size, 3, position);
        for (size_t cut = 0; cut < 5; cut++)
            if (is_recurrent || cut != 4)
                assert_snapshot_refused(&fixture, bytes, size, end + cut, 4, position);
        free(bytes);
        fixture_close(&fixture);
    }
    unlink(path);
}

static void names_of_other_models_do_no_harm(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    const size_t size = salvo_session_state_size(fixture.session);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    ASSERT_OK(salvo_session_state_save(fixture.session, bytes, size));
    bytes[MODEL_HASH_AT] ^= 1;
    memcpy(bytes + MODEL_NAME_AT, "a\033[2J\n\200b", 9);
    put_checksum(bytes, size);
    write_file(path, bytes, size);
    assert_refused(SALVO_ERROR_ARGUMENT, fixture.session, path, "another model, 'a?[2J??b'");
    free(bytes);
    fixture_close(&fixture);
    unlink(path);
}

/* A copy of `model` with another value of its F32 key. */
static const char *with_other_value(const char *model, const char *key, float value)
{
    static char copy[64];
    size_t size = 0;
    char *bytes = NULL;
    FILE *file = fopen(model, "rb");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, 0, SEEK_END));
    size = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(size, fread(bytes, 1, size, file));
    fclose(file);
    char *found = memmem(bytes, size, key, strlen(key));
    assert_non_null(found);
    memcpy(found + strlen(key) + sizeof(uint32_t), &value, sizeof value); /* after the type */
    snprintf(copy, sizeof copy, "/tmp/salvo-other-%d.gguf", (int)getpid());
    file = fopen(copy, "wb");
    assert_non_null(file);
    assert_int_equal(size, fwrite(bytes, 1, size, file));
    assert_int_equal(0, fclose(file));
    free(bytes);
    return copy;
}

static void one_float_of_the_metadata_makes_another_model(void **state)
{
    (void)state;
    const struct salvo_engine_options options = {.size = sizeof(struct salvo_engine_options)};
    const char *model = made_model("llama-tiny", "Q8_0");
    const char *copy = with_other_value(model, "llama.attention.layer_norm_rms_epsilon", 0.5F);
    struct fixture fixture = fixture_open(model, options), other = fixture_open(copy, options);
    int32_t *ids = some_ids(3, fixture.vocabulary, 1);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    ASSERT_OK(salvo_session_state_save_file(fixture.session, path));
    assert_refused(SALVO_ERROR_ARGUMENT, other.session, path, "another model");
    free(ids);
    fixture_close(&other);
    fixture_close(&fixture);
    unlink(copy);
    unlink(path);
}

/* Converts a state of the current version, in memory with room for `count` ids more, and returns its size.
 * Versions 2 and 3 have no snapshot, and version 2 has the ids of the computed positions twice; the second
 * copy becomes ids far outside the vocabulary, because only the first one is used. */
static size_t make_older(uint8_t *bytes, size_t size, uint32_t count, size_t snapshot, uint32_t version)
{
    const size_t ids = count * sizeof(int32_t), head = IDS_AT + ids;
    size -= snapshot;
    if (version == 2) {
        memmove(bytes + head + ids, bytes + head, size - head);
        memset(bytes + head, 0x7f, ids);
        size += ids;
    }
    const uint64_t all = size;
    memcpy(bytes + VERSION_AT, &version, sizeof version);
    memcpy(bytes + SIZE_AT, &all, sizeof all);
    put_checksum(bytes, size);
    return size;
}

static void check_older_version(const char *shape, uint32_t version)
{
    struct fixture fixture = fixture_open(made_model(shape, "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture other = fixture_open(made_model(shape, "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    const struct salvo_sampler sampler = {
        .size = sizeof(struct salvo_sampler), .top_p = 1, .repeat_penalty = 1.5f, .repeat_last_n = 64};
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_set_sampler(other.session, &sampler));
    size_t size;
    uint8_t *saved = state_with_snapshot(&fixture, &size);
    uint8_t *bytes = realloc(saved, size + SNAPSHOT_END * sizeof(int32_t));
    assert_non_null(bytes);
    size = make_older(bytes, size, SNAPSHOT_END, snapshot_size(&fixture), version);
    ASSERT_OK(salvo_session_state_restore(other.session, bytes, size));
    for (int i = 0; i < 10; i++) {
        int32_t want, got;
        ASSERT_OK(salvo_session_next(fixture.session, &want));
        ASSERT_OK(salvo_session_next(other.session, &got));
        assert_int_equal(want, got);
    }
    free(bytes);
    fixture_close(&other);
    fixture_close(&fixture);
}

static void files_of_older_versions_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        check_older_version("llama-tiny", version);
        check_older_version("rwkv7-tiny", version);
    }
}

static void a_restored_session_has_no_logits(void **state)
{
    (void)state;
    const char *model = made_model("llama-tiny", "Q8_0");
    struct fixture first =
        fixture_open(model, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture fresh =
        fixture_open(model, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(20, first.vocabulary, 1), id;
    ASSERT_OK(salvo_session_feed(first.session, ids, 20));
    ASSERT_OK(salvo_session_state_save_file(first.session, path));
    ASSERT_OK(salvo_session_state_load_file(fresh.session, path));
    assert_null(salvo_session_logits(fresh.session));
    ASSERT_OK(salvo_session_next(fresh.session, &id)); /* the id that was chosen already */
    assert_null(salvo_session_logits(fresh.session));
    ASSERT_OK(salvo_session_feed(fresh.session, ids, 1));
    assert_non_null(salvo_session_logits(fresh.session));
    free(ids);
    fixture_close(&fresh);
    fixture_close(&first);
    unlink(path);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/salvo-test-state-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_turns_of_llama),
        cmocka_unit_test(a_thousand_turns_of_rwkv),
        cmocka_unit_test(a_loaded_session_can_be_rolled_back),
        cmocka_unit_test(a_loaded_session_goes_back_to_its_end),
        cmocka_unit_test(a_loaded_session_goes_back_to_the_snapshot_of_the_file),
        cmocka_unit_test(a_copied_session_goes_back_to_the_snapshot_too),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(numbers_of_the_header_are_checked),
        cmocka_unit_test(names_of_other_models_do_no_harm),
        cmocka_unit_test(one_float_of_the_metadata_makes_another_model),
        cmocka_unit_test(snapshots_that_do_not_fit_are_refused),
        cmocka_unit_test(files_of_older_versions_are_read),
        cmocka_unit_test(a_restored_session_has_no_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

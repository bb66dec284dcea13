#include "engine_fixture.h"

#include "base/memory.h"
#include "cmocka_test.h"
#include "model_write.h"
#include "program/sampling.h"
#include "unit/text_sample.h"
#include "vocabulary_copy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES = 40 };
static char folder[64];
static char paths[MOST_FILES][128];
static unsigned path_count;

static void remove_files(void)
{
    for (unsigned i = 0; i < path_count; i++)
        unlink(paths[i]);
    rmdir(folder);
}

/* A name in the folder; *out_new says whether it was not asked for before. */
static const char *file_path(const char *shape, const char *mix, const char *ending, bool *out_new)
{
    if (!*folder) {
        snprintf(folder, sizeof folder, "/tmp/salvo-test-XXXXXX");
        assert_non_null(mkdtemp(folder));
        atexit(remove_files);
    }
    assert_true(path_count < MOST_FILES);
    char *path = paths[path_count];
    snprintf(path, sizeof paths[0], "%s/%s-%s%s.gguf", folder, shape, mix, ending);
    *out_new = true;
    for (unsigned i = 0; i < path_count; i++) {
        if (strcmp(paths[i], path) == 0) {
            *out_new = false;
            return paths[i];
        }
    }
    path_count++;
    return path;
}

/* `vocabulary` 0: the vocabulary of the shape. */
static void make_model(const char *shape_name, const char *mix_name, uint32_t vocabulary, const char *path)
{
    const struct model_shape *shape = model_shapes;
    while (shape->name && strcmp(shape->name, shape_name) != 0)
        shape++;
    const struct model_mix *mix = model_mixes;
    while (mix->name && strcmp(mix->name, mix_name) != 0)
        mix++;
    assert_true(shape->name && mix->name);
    struct model_shape changed = *shape;
    if (vocabulary)
        changed.vocabulary = vocabulary;
    ASSERT_OK(model_write(&changed, mix, path, 1));
}

const char *made_model(const char *shape, const char *mix)
{
    bool is_new;
    const char *path = file_path(shape, mix, "", &is_new);
    if (is_new)
        make_model(shape, mix, 0, path);
    return path;
}

const char *made_model_of(const char *shape, const char *mix, uint32_t vocabulary)
{
    bool is_new;
    char ending[16];
    snprintf(ending, sizeof ending, "-%u", vocabulary);
    const char *path = file_path(shape, mix, ending, &is_new);
    if (is_new)
        make_model(shape, mix, vocabulary, path);
    return path;
}

void write_model_with_vocabulary(const char *shape, const char *mix, const char *path)
{
    bool is_new;
    const char *plain_path = file_path(shape, mix, "-ids", &is_new);
    make_model(shape, mix, SAMPLE_COUNT, plain_path);
    ASSERT_OK(copy_with_vocabulary(plain_path, path));
}

const char *made_model_with_vocabulary(const char *shape, const char *mix)
{
    bool is_new;
    const char *path = file_path(shape, mix, "-words", &is_new);
    if (is_new)
        write_model_with_vocabulary(shape, mix, path);
    return path;
}

struct fixture fixture_open(const char *path, struct salvo_engine_options options)
{
    struct fixture fixture;
    if (!options.threads)
        options.threads = 2;
    ASSERT_OK(salvo_model_open(path, &fixture.model));
    ASSERT_OK(salvo_engine_open(fixture.model, &options, &fixture.engine));
    ASSERT_OK(salvo_session_open(fixture.engine, &fixture.session));
    fixture.vocabulary = salvo_engine_info(fixture.engine)->vocabulary;
    return fixture;
}

void fixture_close(struct fixture *fixture)
{
    salvo_session_close(fixture->session);
    salvo_engine_close(fixture->engine);
    salvo_model_close(fixture->model);
}

uint64_t opening_failures(const char *path, const struct salvo_engine_options *options, uint64_t *out_count)
{
    struct salvo_model *model;
    struct salvo_engine *engine;
    uint64_t failures = 0;
    ASSERT_OK(salvo_model_open(path, &model));
    uint64_t count = memory_count();
    ASSERT_OK(salvo_engine_open(model, options, &engine));
    count = memory_count() - count;
    salvo_engine_close(engine);
    for (uint64_t nth = 1; nth <= count; nth++) {
        memory_fail_at(nth);
        const enum salvo_status status = salvo_engine_open(model, options, &engine);
        memory_fail_at(0);
        if (status == SALVO_OK)
            salvo_engine_close(engine);
        else
            assert_int_equal(SALVO_ERROR_MEMORY, status);
        failures += status != SALVO_OK;
    }
    salvo_model_close(model);
    *out_count = count;
    return failures;
}

int32_t *some_ids(uint32_t count, uint32_t vocabulary, uint64_t seed)
{
    int32_t *ids = calloc(count, sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)(sampling_random(seed, i) % vocabulary);
    return ids;
}

uint8_t *saved_state(struct salvo_session *session, size_t *out_size)
{
    *out_size = salvo_session_state_size(session);
    uint8_t *bytes = malloc(*out_size);
    assert_non_null(bytes);
    ASSERT_OK(salvo_session_state_save(session, bytes, *out_size));
    return bytes;
}

size_t saved_kv_size(const struct fixture *fixture, uint32_t positions)
{
    int32_t *ids = some_ids(2 * positions, fixture->vocabulary, 1);
    size_t sizes[2];
    for (size_t i = 0; i < 2; i++) {
        ASSERT_OK(salvo_session_eval(fixture->session, ids + i * positions, positions, NULL, NULL));
        sizes[i] = salvo_session_state_size(fixture->session);
    }
    free(ids);
    return sizes[1] - sizes[0] - positions * sizeof(int32_t);
}

struct row_keeper {
    float *rows;
    uint32_t vocabulary, next;
};

static bool keep_row(void *user, uint32_t position, const float *logits)
{
    struct row_keeper *keeper = user;
    assert_int_equal(keeper->next++, position);
    memcpy(keeper->rows + (size_t)position * keeper->vocabulary, logits, keeper->vocabulary * sizeof *logits);
    return true;
}

float *logits_at_once(const struct fixture *fixture, const int32_t *ids, uint32_t count)
{
    struct row_keeper keeper = {calloc(count, fixture->vocabulary * sizeof(float)), fixture->vocabulary, 0};
    assert_non_null(keeper.rows);
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    ASSERT_OK(salvo_session_eval(fixture->session, ids, count, keep_row, &keeper));
    assert_int_equal(count, keeper.next);
    return keeper.rows;
}

float *logits_by_chunks(const struct fixture *fixture, const int32_t *ids, uint32_t count, uint32_t chunk)
{
    float *rows = calloc(count, fixture->vocabulary * sizeof(float));
    assert_non_null(rows);
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    for (uint32_t first = 0; first < count;) {
        uint32_t part = count - first < chunk ? count - first : chunk;
        ASSERT_OK(salvo_session_feed(fixture->session, ids + first, part));
        first += part;
        const float *logits = salvo_session_logits(fixture->session);
        assert_non_null(logits);
        memcpy(
            rows + (size_t)(first - 1) * fixture->vocabulary, logits, fixture->vocabulary * sizeof *logits);
    }
    return rows;
}

int32_t *continuation(struct salvo_session *session, const int32_t *ids, uint32_t id_count, uint32_t count)
{
    int32_t *taken = calloc(count, sizeof *taken);
    assert_non_null(taken);
    ASSERT_OK(salvo_session_feed(session, ids, id_count));
    for (uint32_t i = 0; i < count; i++)
        ASSERT_OK(salvo_session_next(session, &taken[i]));
    return taken;
}

struct salvo_counters counters_of(const struct salvo_engine *engine)
{
    struct salvo_counters counters = SALVO_COUNTERS_INIT;
    ASSERT_OK(salvo_engine_counters(engine, &counters));
    return counters;
}

struct salvo_sampler default_sampler(const struct salvo_model *model)
{
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    ASSERT_OK(salvo_sampler_default(model, &sampler));
    return sampler;
}

void set_greedy(struct salvo_session *session)
{
    const struct salvo_sampler greedy = {
        .size = sizeof(struct salvo_sampler), .top_p = 1, .repeat_penalty = 1};
    ASSERT_OK(salvo_session_set_sampler(session, &greedy));
}

static void print_failed_output(void *user, const struct salvo_verify_output *output)
{
    (void)user;
    if (output->not_finite || !(output->error <= output->tolerance))
        print_message("%s: %g\n", output->operation, output->error);
}

struct salvo_verify_result verify_against_cpu(
    const char *backend, const char *path, enum salvo_kv_type kv_type, const int32_t *ids, size_t count)
{
    struct salvo_model *model;
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    ASSERT_OK(salvo_model_open(path, &model));
    ASSERT_OK(salvo_verify(model,
        &(struct salvo_verify_options){.size = sizeof(struct salvo_verify_options),
            .backend = backend,
            .against = "cpu",
            .ids = ids,
            .count = count,
            .threads = 2,
            .kv_type = kv_type},
        print_failed_output, NULL, &result));
    if (!result.passed || result.failed)
        fail_msg("%s: %u of %u outputs out of tolerance, mean divergence %g", path, result.failed,
            result.outputs, result.mean_divergence);
    salvo_model_close(model);
    return result;
}

double divergence_of(const float *p, const float *q, uint32_t vocabulary)
{
    double p_total = 0, q_total = 0, divergence = 0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        p_total += exp((double)p[i]);
        q_total += exp((double)q[i]);
    }
    for (uint32_t i = 0; i < vocabulary; i++)
        divergence += exp((double)p[i]) / p_total * ((double)p[i] - (double)q[i] + log(q_total / p_total));
    return divergence;
}

void quantized_copy(const char *path, const char *type, char *out, size_t size)
{
    const struct salvo_quantize_options options = {
        .size = sizeof(struct salvo_quantize_options), .type = type};
    struct salvo_model *model;
    snprintf(out, size, "%s.%s", path, type);
    ASSERT_OK(salvo_model_open(path, &model));
    ASSERT_OK(salvo_quantize(model, out, &options));
    salvo_model_close(model);
}

void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(size, fwrite(bytes, 1, size, file));
    assert_int_equal(0, fclose(file));
}

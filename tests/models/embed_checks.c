#include "embed_checks.h"

#include "cmocka_test.h"

#include <salvo/embed.h>

#include <math.h>
#include <stdlib.h>

enum { TEXTS = 4, SESSIONS = 2, MOST_TOKENS = 21 };

static const size_t counts[TEXTS] = {1, 5, MOST_TOKENS, 2};

/* [TEXTS][width], by several sessions at once or by one; to be freed. */
static float *embeddings(const char *path, const char *backend, bool together, uint32_t *out_width)
{
    struct fixture fixture = fixture_open(path, (struct salvo_engine_options){
                                                    .size = sizeof(struct salvo_engine_options),
                                                    .backend = backend,
                                                    .sessions = SESSIONS,
                                                    .context = 32,
                                                    .batch = 16,
                                                });
    struct salvo_session *sessions[SESSIONS] = {fixture.session};
    const struct salvo_embed_options options = {
        .size = sizeof options, .pooling = SALVO_POOLING_MEAN, .norm = SALVO_NORM_NONE};
    const int32_t *texts[TEXTS];
    int32_t *ids = some_ids(MOST_TOKENS + TEXTS, fixture.vocabulary, 5);
    *out_width = salvo_engine_width(fixture.engine);
    float *out = calloc(TEXTS * *out_width, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < TEXTS; i++)
        texts[i] = ids + i;
    ASSERT_OK(salvo_session_open(fixture.engine, &sessions[1]));
    ASSERT_OK(salvo_engine_embed(sessions, together ? SESSIONS : 1, texts, counts, TEXTS, &options, out));
    salvo_session_close(sessions[1]);
    free(ids);
    fixture_close(&fixture);
    return out;
}

static double difference(const float *a, const float *b, uint32_t width)
{
    double squares = 0, differences = 0;
    for (uint32_t i = 0; i < width; i++) {
        const double apart = (double)a[i] - (double)b[i];
        squares += (double)b[i] * (double)b[i];
        differences += apart * apart;
    }
    return sqrt(differences / squares);
}

double embedding_difference(const char *path, const char *backend)
{
    double largest = 0;
    uint32_t width;
    float *expected = embeddings(path, "cpu", false, &width);
    for (int together = 0; together < 2; together++) {
        float *got = embeddings(path, backend, together != 0, &width);
        for (size_t i = 0; i < TEXTS; i++) {
            const double now = difference(got + i * width, expected + i * width, width);
            largest = now <= largest ? largest : now; /* a NaN counts */
        }
        free(got);
    }
    free(expected);
    print_message("%s: embeddings differ by %.1e\n", backend, largest);
    return largest;
}

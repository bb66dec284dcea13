/*
 * device-session [BACKEND] TURNS RUNS MODEL...: sessions on a device (default: CUDA), compared with each
 * other and with the CPU. Uses salvo.h alone, so that it runs wherever the program does. Exit status 1 if a
 * check fails.
 *
 *   - the same run gives the same bits, RUNS times
 *   - decoding ahead gives what one submission a token gives, within 16 bytes a token, without an allocation
 *   - TURNS turns in one session agree with one pass
 *   - a state comes back bit for bit, and goes on on the CPU
 */
#include <salvo/debug.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void expect(bool holds, const char *model, const char *what, double value)
{
    if (!holds) {
        failures++;
        printf("FAILED %s: %s (%g)\n", model, what, value);
    }
}

/* A call that fails ends the program. */
static void must(enum salvo_status status, const char *what)
{
    if (status != SALVO_OK) {
        printf("%s: %s\n", what, salvo_error());
        exit(1);
    }
}

static void *must_have(void *memory)
{
    if (!memory) {
        printf("out of memory\n");
        exit(1);
    }
    return memory;
}

struct side {
    struct salvo_engine *engine;
    struct salvo_session *session;
    uint32_t vocabulary;
};

static struct side open_side(struct salvo_model *model, const char *backend, uint32_t context)
{
    struct side side;
    const struct salvo_sampler greedy = {
        .size = sizeof(struct salvo_sampler), .top_p = 1, .repeat_penalty = 1};
    const struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options), .backend = backend, .context = context};
    must(salvo_engine_open(model, &options, &side.engine), backend);
    must(salvo_session_open(side.engine, &side.session), backend);
    must(salvo_session_set_sampler(side.session, &greedy), backend);
    side.vocabulary = salvo_engine_info(side.engine)->vocabulary;
    return side;
}

static void close_side(struct side *side)
{
    salvo_session_close(side->session);
    salvo_engine_close(side->engine);
}

static int32_t *some_ids(uint32_t count, uint32_t vocabulary)
{
    int32_t *ids = must_have(malloc(count * sizeof *ids));
    uint64_t random = 7;
    for (uint32_t i = 0; i < count; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        ids[i] = (int32_t)((random >> 33) % vocabulary);
    }
    return ids;
}

static float *logits_of(const struct side *side)
{
    const float *logits = salvo_session_logits(side->session);
    float *copy = must_have(malloc(side->vocabulary * sizeof *copy));
    if (!logits) {
        printf("there are no logits\n");
        exit(1);
    }
    memcpy(copy, logits, side->vocabulary * sizeof *copy);
    return copy;
}

/* The logits after all ids, fed in parts of `part`. */
static float *feed(const struct side *side, const int32_t *ids, uint32_t count, uint32_t part)
{
    must(salvo_session_rollback(side->session, 0), "rollback");
    for (uint32_t i = 0; i < count; i += part)
        must(salvo_session_feed(side->session, ids + i, count - i < part ? count - i : part), "feed");
    return logits_of(side);
}

static double log_sum(const float *logits, uint32_t count)
{
    double largest = (double)logits[0], sum;
    for (uint32_t i = 1; i < count; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    sum = exp((double)logits[0] - largest);
    for (uint32_t i = 1; i < count; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

/* Kullback-Leibler divergence of b from a. */
static double divergence(const float *a, const float *b, uint32_t count)
{
    const double all_a = log_sum(a, count), all_b = log_sum(b, count);
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double log_a = (double)a[i] - all_a, log_b = (double)b[i] - all_b;
        sum += exp(log_a) * (log_a - log_b);
    }
    return sum;
}

/* ---- Checks ---- */

/* Feeds a prompt and generates some tokens after it, repeatedly. */
static void check_bits(const struct side *side, const int32_t *ids, uint32_t runs, const char *name)
{
    enum { COUNT = 8 };
    int32_t first_ids[COUNT], id;
    float *first = NULL;
    for (uint32_t run = 0; run < runs; run++) {
        float *logits = feed(side, ids, 70, 70);
        if (!first) {
            first = logits;
            logits = NULL;
        } else {
            bool equal = memcmp(first, logits, side->vocabulary * sizeof *first) == 0;
            expect(equal, name, "the same prompt again", run);
        }
        for (int i = 0; i < COUNT; i++) {
            must(salvo_session_next(side->session, &id), "next");
            expect(run == 0 || id == first_ids[i], name, "the same token again", run);
            first_ids[i] = run == 0 ? id : first_ids[i];
        }
        free(logits);
    }
    free(first);
}

static void check_ahead(const struct side *side, const int32_t *ids, const char *name)
{
    enum { COUNT = 40 };
    int32_t plain[COUNT];
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    free(feed(side, ids, 20, 20));
    /* A rollback computes the last token again, alone, which a prompt may compute with finer inputs. So this
     * session is rolled back, too. */
    must(salvo_session_next(side->session, &plain[0]), "next");
    must(salvo_session_rollback(side->session, 20), "rollback");
    for (int i = 0; i < COUNT; i++)
        must(salvo_session_next(side->session, &plain[i]), "next");
    must(salvo_session_rollback(side->session, 20), "rollback");
    struct salvo_counters before = SALVO_COUNTERS_INIT;
    must(salvo_engine_counters(side->engine, &before), "counters");
    for (int i = 0; i < COUNT; i++) {
        int32_t id;
        must(salvo_session_next(side->session, &id), "next");
        expect(id == plain[i], name, "the same token after going back", i);
    }
    struct salvo_counters after = SALVO_COUNTERS_INIT;
    must(salvo_engine_counters(side->engine, &after), "counters");
    const double bytes = (double)(after.bytes_read_back - before.bytes_read_back);
    expect(bytes <= 16.0 * (double)(after.tokens - before.tokens), name, "bytes read back", bytes);
    expect(after.allocations_after_load == 0, name, "allocations", (double)after.allocations_after_load);

    must(salvo_session_rollback(side->session, 20), "rollback");
    const struct salvo_generate_options options = {
        .size = sizeof(struct salvo_generate_options), .max_tokens = COUNT, .ignore_end = true};
    if (salvo_session_generate(side->session, &options, &result) != SALVO_OK)
        return; /* a model without a vocabulary writes no text */
    expect(memcmp(plain, salvo_session_tokens(side->session) + 20, sizeof plain) == 0, name, "decoding ahead",
        0);
}

static void check_turns(const struct side *side, const int32_t *ids, uint32_t turns, const char *name)
{
    const uint32_t count = turns * 3;
    float *in_turns, *at_once;
    must(salvo_session_rollback(side->session, 0), "rollback");
    for (uint32_t i = 0; i < turns; i++) { /* two tokens at once, one alone */
        must(salvo_session_feed(side->session, ids + i * 3, 2), "turn");
        must(salvo_session_feed(side->session, ids + i * 3 + 2, 1), "turn");
    }
    in_turns = logits_of(side);
    at_once = feed(side, ids, count, count);
    double difference = divergence(at_once, in_turns, side->vocabulary);
    expect(difference < 1e-3, name, "turns against one pass", difference);
    free(in_turns);
    free(at_once);
}

static void check_states(
    const struct side *side, const struct side *cpu, const int32_t *ids, const char *name)
{
    float *expected = feed(side, ids, 300, 64), *got;
    size_t size = salvo_session_state_size(side->session);
    uint8_t *saved = must_have(malloc(size)), *again = must_have(malloc(size));
    must(salvo_session_state_save(side->session, saved, size), "save");
    must(salvo_session_feed(side->session, ids + 300, 1), "feed");
    free(expected);
    expected = logits_of(side);

    must(salvo_session_rollback(side->session, 0), "rollback");
    must(salvo_session_state_restore(side->session, saved, size), "restore");
    must(salvo_session_state_save(side->session, again, size), "save");
    expect(memcmp(saved, again, size) == 0, name, "a state that was restored", 0);
    must(salvo_session_feed(side->session, ids + 300, 1), "feed");
    got = logits_of(side);
    expect(memcmp(expected, got, side->vocabulary * sizeof *got) == 0, name, "going on from a state", 0);
    free(got);

    must(salvo_session_state_restore(cpu->session, saved, size), "restore on the CPU");
    must(salvo_session_feed(cpu->session, ids + 300, 1), "feed");
    got = logits_of(cpu);
    double difference = divergence(expected, got, side->vocabulary);
    expect(difference < 1e-3, name, "a state on the CPU", difference);
    free(got);
    free(expected);
    free(saved);
    free(again);
}

static void check_model(const char *backend, const char *path, uint32_t turns, uint32_t runs)
{
    struct salvo_model *model;
    const uint32_t context = turns * 3 > 302 ? turns * 3 : 302;
    must(salvo_model_open(path, &model), path);
    struct side side = open_side(model, backend, context), cpu = open_side(model, "cpu", context);
    int32_t *ids = some_ids(context, side.vocabulary);
    check_bits(&side, ids, runs, path);
    check_ahead(&side, ids, path);
    check_turns(&side, ids, turns, path);
    check_states(&side, &cpu, ids, path);
    free(ids);
    close_side(&side);
    close_side(&cpu);
    salvo_model_close(model);
}

int main(int argc, char **argv)
{
    const char *backend = "cuda";
    if (argc > 1 && (*argv[1] < '0' || *argv[1] > '9')) {
        backend = argv[1];
        argc--;
        argv++;
    }
    if (argc < 4) {
        printf("usage: device-session [BACKEND] TURNS RUNS MODEL...\n");
        return 2;
    }
    const uint32_t turns = (uint32_t)strtoul(argv[1], NULL, 10), runs = (uint32_t)strtoul(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++)
        check_model(backend, argv[i], turns, runs);
    printf("%d models, %d failures\n", argc - 3, failures);
    return failures ? 1 : 0;
}

#include "bench.h"
#include "commands.h"
#include "json_output.h"
#include "measure.h"
#include "profile_table.h"
#include "progress.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <salvo/debug.h>
#include <stdlib.h>

static const struct option option_table[] = {
    MODEL_OPTION(&engine_flags.model),
    CONTEXT_OPTION("context size in tokens (default: as many as the longest test needs)"),
    {'p', "prompts", "N,N", OPTION_COUNTS, &bench_options.prompts,
        "prompt lengths; 0: no prompt test (default: 64,512)"},
    {'n', "tokens", "N,N", OPTION_COUNTS, &bench_options.tokens,
        "tokens to generate; 0: no generation test (default: 128)"},
    {'d', "depths", "N,N", OPTION_COUNTS, &bench_options.depths,
        "tokens in the context before each test (default: 0)"},
    {0, "sessions", "N,N", OPTION_COUNTS, &bench_options.sessions,
        "instead: as many sessions that decode at once, each after a prompt (default: -p 64)"},
    {0, "rate", "R", OPTION_POSITIVE, &bench_options.rate,
        "with --sessions: R requests a second arrive at random moments"},
    {0, "requests", "N", OPTION_COUNT, &bench_options.requests,
        "with --rate: number of requests (default: 32)"},
    {0, "arriving", "N", OPTION_COUNT, &bench_options.arriving,
        "with --sessions: a prompt of N tokens arrives while the sessions decode"},
    {0, "ahead", "N", OPTION_COUNT, &bench_options.ahead,
        "tokens per submission to the device (default: chosen by the device)"},
    {'r', "repetitions", "N", OPTION_COUNT, &bench_options.repetitions,
        "repetitions of each test (default: 5)"},
    {0, "profile", NULL, OPTION_FLAG, &bench_options.profile,
        "instead: time spent in each phase of each prompt and of one token"},
    {0},
};

enum { MOST_TESTS = 512, WARM_UP_TOKENS = 4, MOST_REPETITIONS = 1000 };
static const double warm_up_seconds = 0.4;

struct test {
    bool is_prompt; /* pp: a prompt at once; otherwise tg: token after token */
    uint32_t count, depth;
    char name[32];                              /* as llama-bench's: "pp512", "tg128@d4096" */
    double average, deviation;                  /* tokens per second */
    double seconds;                             /* of one repetition: until the first token, for prompts */
    double submissions, waits, bytes_read_back; /* per token */
    double dispatches, barriers;                /* per token; 0 if the backend has none */
    double idle;                                /* device time per token in seconds; -1: unknown */
};

static void add_tests(
    struct test *tests, size_t *test_count, const struct count_list *counts, bool is_prompt, uint32_t depth)
{
    for (size_t i = 0; i < counts->count; i++) {
        if (counts->items[i] == 0 || *test_count == MOST_TESTS)
            continue;
        struct test *test = &tests[(*test_count)++];
        *test = (struct test){.is_prompt = is_prompt, .count = counts->items[i], .depth = depth};
        int used =
            snprintf(test->name, sizeof test->name, "%s%" PRIu32, is_prompt ? "pp" : "tg", test->count);
        if (depth)
            snprintf(test->name + used, sizeof test->name - (size_t)used, "@d%" PRIu32, depth);
    }
}

/* Context of the longest test. Generation adds two tokens: the first one of the context, and one that is not
 * measured. */
static uint64_t needed_context(const struct test *tests, size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t needed = (uint64_t)tests[i].depth + tests[i].count + (tests[i].is_prompt ? 0 : 2);
        most = needed > most ? needed : most;
    }
    return most;
}

static enum salvo_status generate(struct salvo_session *session, uint32_t count)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    const struct salvo_generate_options generate_options = {.size = sizeof(struct salvo_generate_options),
        .max_tokens = count,
        .ignore_end = true,
        .ahead = bench_options.ahead};
    return salvo_session_generate(session, &generate_options, &result);
}

/* Brings the session to the depth of the test. Generation at depth 0 starts after one token. After a rollback
 * of a recurrent model, tokens since its last kept state are computed again: here, and not while time is
 * taken. */
static enum salvo_status go_to_depth(
    struct salvo_session *session, const struct test *test, const int32_t *ids)
{
    uint32_t depth = test->is_prompt || test->depth ? test->depth : 1,
             position = salvo_session_position(session);
    enum salvo_status status = SALVO_OK;
    if (position > depth) {
        position = depth ? depth - 1 : 0;
        status = salvo_session_rollback(session, position);
    }
    if (status == SALVO_OK && position < depth)
        status = salvo_session_feed(session, ids + position, depth - position);
    return status;
}

static enum salvo_status run_once(struct salvo_session *session, const struct test *test, uint32_t count,
    const int32_t *ids, double *out_seconds)
{
    enum salvo_status status = go_to_depth(session, test, ids);
    if (status == SALVO_OK && !test->is_prompt)
        status = generate(session,
            1); /* not measured: uses the logits of the prompt, or recomputes them after a rollback */
    double start = seconds_now();
    if (status == SALVO_OK && test->is_prompt)
        status = salvo_session_feed(session, ids + test->depth, count);
    else if (status == SALVO_OK)
        status = generate(session, count);
    *out_seconds = seconds_now() - start;
    return status;
}

/* Repeats the test with idle times measured, which itself slows the device down. */
static enum salvo_status measure_idle(struct loaded *loaded, struct test *test, const int32_t *ids)
{
    double seconds;
    test->idle = -1;
    if (test->is_prompt || salvo_engine_measure_idle(loaded->engine, true) != SALVO_OK)
        return SALVO_OK;
    struct salvo_counters before = counters_of(loaded->engine);
    enum salvo_status status = run_once(loaded->session, test, test->count, ids, &seconds);
    struct salvo_counters after = counters_of(loaded->engine);
    test->idle = rate(after.idle_seconds - before.idle_seconds, (double)(after.tokens - before.tokens));
    (void)salvo_engine_measure_idle(loaded->engine, false);
    return status;
}

static enum salvo_status measure(
    struct loaded *loaded, struct test *test, const int32_t *ids, const char *place)
{
    double sum = 0, squares = 0, seconds;
    uint64_t tokens = 0, submissions = 0, waits = 0, bytes = 0, dispatches = 0, barriers = 0;
    uint32_t warm_up = test->is_prompt || test->count < WARM_UP_TOKENS ? test->count : WARM_UP_TOKENS;
    const double start = seconds_now();
    enum salvo_status status;
    do /* a device raises its clock rate only under load */
        status = run_once(loaded->session, test, warm_up, ids, &seconds);
    while (status == SALVO_OK && seconds_now() - start < warm_up_seconds);
    for (uint32_t i = 0; i < bench_options.repetitions && status == SALVO_OK; i++) {
        progress_show("%s %s, %" PRIu32 " of %" PRIu32, place, test->name, i + 1, bench_options.repetitions);
        status = go_to_depth(loaded->session, test, ids);
        struct salvo_counters before = counters_of(loaded->engine);
        if (status == SALVO_OK)
            status = run_once(loaded->session, test, test->count, ids, &seconds);
        struct salvo_counters after = counters_of(loaded->engine);
        tokens += after.tokens - before.tokens;
        submissions += after.submissions - before.submissions;
        waits += after.waits - before.waits;
        bytes += after.bytes_read_back - before.bytes_read_back;
        dispatches += after.dispatches - before.dispatches;
        barriers += after.barriers - before.barriers;
        double speed = rate(test->count, seconds);
        sum += speed;
        squares += speed * speed;
        test->seconds += seconds / bench_options.repetitions;
    }
    double n = bench_options.repetitions, variance = n > 1 ? (squares - sum * sum / n) / (n - 1) : 0;
    test->average = sum / n;
    test->deviation = variance > 0 ? sqrt(variance) : 0;
    test->submissions = rate((double)submissions, (double)tokens);
    test->waits = rate((double)waits, (double)tokens);
    test->bytes_read_back = rate((double)bytes, (double)tokens);
    test->dispatches = rate((double)dispatches, (double)tokens);
    test->barriers = rate((double)barriers, (double)tokens);
    return status == SALVO_OK ? measure_idle(loaded, test, ids) : status;
}

static void print_header(const struct loaded *loaded)
{
    bench_print_model(loaded);
    printf("%-16s %20s %14s %17s %11s %16s\n", "test", "tok/s", "first token", "submissions/token",
        "waits/token", "read back/token");
}

static void print_test(const struct test *test)
{
    char speed[48], latency[32] = "", bytes[32];
    snprintf(speed, sizeof speed, "%.2f ± %.2f", test->average, test->deviation);
    if (test->is_prompt)
        snprintf(latency, sizeof latency, "%.1f ms", test->seconds * 1e3);
    /* The plus-minus sign is two bytes in one column. */
    printf("%-16s %21s %14s %17.4f %11.4f %16s\n", test->name, speed, latency, test->submissions, test->waits,
        format_bytes((uint64_t)(test->bytes_read_back + 0.5), bytes));
    if (test->dispatches > 0)
        printf("%-16s per token %.1f dispatches, %.1f barriers", "", test->dispatches, test->barriers);
    if (test->dispatches > 0 && test->idle >= 0)
        printf(", device idle for %.1f us", test->idle * 1e6);
    if (test->dispatches > 0)
        putchar('\n');
    fflush(stdout);
}

static void write_test(struct json_writer *json, const struct test *test)
{
    json_begin(json, '{');
    json_key(json, "test");
    json_string(json, test->name);
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"avg_ts", test->average}, {"stddev_ts", test->deviation},
        {"submissions_per_token", test->submissions}, {"waits_per_token", test->waits},
        {"bytes_read_back_per_token", test->bytes_read_back}, {"dispatches_per_token", test->dispatches},
        {"barriers_per_token", test->barriers}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(json, numbers[i].key);
        json_float(json, numbers[i].value, true);
    }
    if (test->idle >= 0) {
        json_key(json, "idle_us_per_token");
        json_float(json, test->idle * 1e6, true);
    }
    if (test->is_prompt) {
        json_key(json, "first_token_ms");
        json_float(json, test->seconds * 1e3, true);
    }
    json_end(json, '}');
}

/* Prints each test when it ends; JSON is written only if all tests succeed. */
static int run_tests(struct loaded *loaded, struct test *tests, size_t count, const int32_t *ids)
{
    if (!output_flags.json)
        print_header(loaded);
    for (size_t i = 0; i < count; i++) {
        char place[48];
        snprintf(place, sizeof place, "%zu/%zu", i + 1, count);
        enum salvo_status status = measure(loaded, &tests[i], ids, place);
        progress_clear();
        if (status != SALVO_OK)
            return library_failure();
        if (!output_flags.json)
            print_test(&tests[i]);
    }
    if (output_flags.json) {
        struct json_writer json = json_output();
        bench_begin_json(&json, loaded, "tests");
        for (size_t i = 0; i < count; i++)
            write_test(&json, &tests[i]);
        bench_end_json(&json);
    } else {
        bench_print_memory();
    }
    return EXIT_DONE;
}

/* The phases of one prompt or token, after the test's depth. */
static enum salvo_status profile(
    struct loaded *loaded, const struct test *test, const int32_t *ids, struct profile_table *table)
{
    enum salvo_status status = SALVO_OK;
    if (salvo_session_position(loaded->session) > test->depth)
        status = salvo_session_rollback(loaded->session, 0);
    uint32_t position = salvo_session_position(loaded->session);
    if (status == SALVO_OK && position < test->depth)
        status = salvo_session_feed(loaded->session, ids + position, test->depth - position);
    table->depth = test->depth;
    table->tokens = test->is_prompt ? test->count : 1;
    table->bytes_per_second = salvo_engine_info(loaded->engine)->bytes_per_second;
    if (status == SALVO_OK)
        status = salvo_session_profile(loaded->session, ids + test->depth, table->tokens,
            bench_options.repetitions, profile_table_add, table);
    return status;
}

static int run_profiles(struct loaded *loaded, const struct test *tests, size_t count, const int32_t *ids)
{
    static struct profile_table tables[MOST_TESTS];
    int result = EXIT_DONE;
    for (size_t i = 0; i < count && result == EXIT_DONE; i++) {
        if (profile(loaded, &tests[i], ids, &tables[i]) != SALVO_OK)
            result = library_failure();
        else if (tables[i].failed)
            result = failure("out of memory");
        else if (!output_flags.json)
            profile_table_print(&tables[i]);
    }
    struct json_writer json = json_output();
    if (output_flags.json && result == EXIT_DONE) {
        bench_begin_json(&json, loaded, "profiles");
        for (size_t i = 0; i < count; i++)
            profile_table_write(&tables[i], &json);
        bench_end_json(&json);
    }
    for (size_t i = 0; i < count; i++)
        profile_table_free(&tables[i]);
    return result;
}

/* Greedy, so that the choice of a token costs the same for every model. */
static int load_for(struct loaded *loaded, const struct test *tests, size_t count)
{
    const struct salvo_sampler greedy = {
        .size = sizeof(struct salvo_sampler), .top_p = 1, .repeat_penalty = 1};
    int result = bench_load(loaded, 1, needed_context(tests, count));
    if (result == EXIT_DONE && salvo_session_set_sampler(loaded->session, &greedy) != SALVO_OK)
        result = library_failure();
    return result;
}

static int run_one_session(void)
{
    static struct test tests[MOST_TESTS];
    size_t test_count = 0;
    if (!bench_options.prompts.count)
        bench_options.prompts = (struct count_list){{64, 512}, 2};
    for (size_t i = 0; i < bench_options.depths.count; i++) {
        add_tests(tests, &test_count, &bench_options.prompts, true, bench_options.depths.items[i]);
        add_tests(tests, &test_count, &bench_options.tokens, false, bench_options.depths.items[i]);
    }
    if (test_count == 0)
        return usage_error("bench: -p 0 and -n 0: no test to run");
    struct loaded loaded = {0};
    int result = load_for(&loaded, tests, test_count);
    int32_t *ids = NULL;
    if (result == EXIT_DONE) {
        struct salvo_engine_info info = *salvo_engine_info(loaded.engine);
        ids = malloc(info.context * sizeof *ids);
        if (ids) {
            bench_fill_ids(ids, info.context, info.vocabulary);
            result = bench_options.profile ? run_profiles(&loaded, tests, test_count, ids)
                                           : run_tests(&loaded, tests, test_count, ids);
        } else {
            result = failure("out of memory");
        }
    }
    free(ids);
    unload(&loaded);
    return result;
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    if (bench_options.repetitions > MOST_REPETITIONS)
        return usage_error(
            "bench: invalid -r %" PRIu32 ": the maximum is %d", bench_options.repetitions, MOST_REPETITIONS);
    if (!bench_options.sessions.count && (bench_options.rate > 0 || bench_options.arriving))
        return usage_error("bench: --rate and --arriving need --sessions");
    return bench_options.sessions.count ? bench_run_sessions() : run_one_session();
}

const struct command bench_command = {
    .name = "bench",
    .model = &engine_flags.model,
    .summary = "measure how fast a model runs",
    .details = "pp512 is a prompt of 512 tokens, tg128 generates 128 tokens, tg128@d4096 does so after 4096 "
               "tokens of context.\n"
               "Each test is warmed up first. The tokens are random, so the model needs no vocabulary.",
    .options = option_table,
    .shared = {engine_flag_table + ENGINE_FLAGS_AFTER_CONTEXT, output_flag_table},
    .run = run,
};

#include "cmocka_test.h"

#include "program/sampling.h"
#include "unit/sampling_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGE = 49152 };

static const struct sampler_settings greedy = {.top_p = 1, .repeat_penalty = 1};
static const struct sampler_settings plain = {.temperature = 1, .top_p = 1, .repeat_penalty = 1};
static const struct sampler_settings usual = {.temperature = 0.8f,
    .top_k = 40,
    .top_p = 0.95f,
    .min_p = 0.05f,
    .repeat_penalty = 1,
    .repeat_last_n = 64};

static int32_t choose(const struct sampler_settings *settings, const float *logits, uint32_t vocabulary,
    const int32_t *tokens, uint32_t count)
{
    static float copy[LARGE];
    static struct sampling_candidate scratch[LARGE];
    memcpy(copy, logits, vocabulary * sizeof *copy);
    return sampling_choose(settings, copy, vocabulary, tokens, count, scratch);
}

/* ---- Temperature 0 ---- */

static int32_t largest_of(const float *logits, uint32_t vocabulary)
{
    return choose(&greedy, logits, vocabulary, NULL, 0);
}

#define ASSERT_LARGEST(expected, ...)                                                   \
    do {                                                                                \
        const float logits[] = {__VA_ARGS__};                                           \
        assert_int_equal(expected, largest_of(logits, sizeof logits / sizeof *logits)); \
    } while (0)

static void short_rows_give_the_lowest_id_of_the_largest(void **state)
{
    (void)state;
    ASSERT_LARGEST(0, 7);
    ASSERT_LARGEST(0, -7);
    ASSERT_LARGEST(0, 2, 1);
    ASSERT_LARGEST(1, 1, 2);
    ASSERT_LARGEST(0, 1, 1);
    ASSERT_LARGEST(1, -3, -1, -2);
    ASSERT_LARGEST(0, 0, -0.0f);
    ASSERT_LARGEST(0, -0.0f, 0);
    ASSERT_LARGEST(2, NAN, 1, 2, NAN);
    ASSERT_LARGEST(3, NAN, -INFINITY, NAN, -1e30f);
    ASSERT_LARGEST(1, 3, INFINITY, 4, INFINITY);
    ASSERT_LARGEST(2, -INFINITY, NAN, -3e38f);
    ASSERT_LARGEST(-1, NAN);
    ASSERT_LARGEST(-1, NAN, NAN, NAN);
    ASSERT_LARGEST(-1, -INFINITY, NAN);
}

static void any_place_in_a_whole_vocabulary_can_win(void **state)
{
    (void)state;
    static float logits[LARGE];
    for (uint32_t size = LARGE; size > 1; size = size * 5 / 8) {
        for (uint32_t i = 0; i < size; i++)
            logits[i] = -5;
        assert_int_equal(0, largest_of(logits, size)); /* all equal */
        for (uint32_t at = size - 1; at > 0; at = at * 3 / 4) {
            logits[at] = -4;
            assert_int_equal(at, largest_of(logits, size));
            logits[at] = -5;
        }
    }
    for (uint32_t i = 0; i < LARGE; i++)
        logits[i] = NAN;
    assert_int_equal(-1, largest_of(logits, LARGE));
    assert_int_equal(-1, choose(&usual, logits, LARGE, NULL, 0));
    logits[LARGE - 1] = -1e30f;
    assert_int_equal(LARGE - 1, largest_of(logits, LARGE));
    assert_int_equal(LARGE - 1, choose(&usual, logits, LARGE, NULL, 0));
}

/* ---- Weights and random numbers ---- */

static void weights_are_exponentials(void **state)
{
    (void)state;
    assert_true(sampling_weight(0) == UINT64_C(1) << 32);
    assert_true(sampling_weight(-INFINITY) == 0);
    assert_true(sampling_weight(NAN) == 0);
    assert_true(sampling_weight(-22.2f) == 0);
    double worst = 0;
    for (unsigned i = 0; i < 100000; i++) {
        float x = -22 * (float)i * 1e-5f;
        double exact = exp((double)x) * 0x1p32;
        double error = fabs((double)sampling_weight(x) - exact) - 1; /* rounding down is not an error */
        worst = error / exact > worst ? error / exact : worst;
        assert_true(sampling_weight(x) <= UINT64_C(1) << 32);
    }
    assert_true(worst < 4e-7);
}

static void random_numbers_are_those_of_the_definition(void **state)
{
    (void)state;
    assert_true(sampling_random(1, 2) == sampling_random(1, 2));
    assert_true(sampling_random(1, 2) != sampling_random(2, 1));
    /* Half of the bits differ between neighbours. */
    unsigned differing = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t here = sampling_random(i, i);
        differing += (unsigned)__builtin_popcountll(here ^ sampling_random(i + 1, i));
        differing += (unsigned)__builtin_popcountll(here ^ sampling_random(i, i + 1));
    }
    assert_in_range(differing, 63000, 65000);
}

/* ---- Against a plain implementation: sorts everything, then goes stage by stage ---- */

struct entry {
    float logit;
    int32_t id;
    bool stays;
    uint64_t weight;
};

static int by_logit(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id - b->id;
}

static int by_id(const void *left, const void *right)
{
    return ((const struct entry *)left)->id - ((const struct entry *)right)->id;
}

__extension__ typedef unsigned __int128 wide;

static uint64_t share_of(uint64_t sum, float share)
{
    return (uint64_t)((wide)sum * (uint64_t)(share * 0x1p32f) >> 32);
}

static uint64_t weight_between(float logit, float largest, float inverse_temperature)
{
    return logit == largest ? UINT64_C(1) << 32 : sampling_weight((logit - largest) * inverse_temperature);
}

static void adjust(const struct sampler_settings *settings, struct entry *entries, uint32_t vocabulary,
    const int32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < vocabulary; i++) {
        uint32_t times = 0;
        for (uint32_t j = 0; j < count; j++)
            times += tokens[j] == (int32_t)i && j + settings->repeat_last_n >= count;
        float *logit = &entries[i].logit;
        if (settings->bias)
            *logit += settings->bias[i];
        if (times) {
            *logit *= *logit > 0 ? 1 / settings->repeat_penalty : settings->repeat_penalty;
            *logit = fmaf(-(float)times, settings->frequency_penalty, *logit) - settings->presence_penalty;
        }
        if (isnan(*logit))
            *logit = -INFINITY;
    }
}

static int32_t choose_plainly(const struct sampler_settings *settings, const float *logits,
    uint32_t vocabulary, const int32_t *tokens, uint32_t count)
{
    static struct entry entries[LARGE];
    for (uint32_t i = 0; i < vocabulary; i++)
        entries[i] = (struct entry){.logit = logits[i], .id = (int32_t)i};
    adjust(settings, entries, vocabulary, tokens, count);
    qsort(entries, vocabulary, sizeof *entries, by_logit);
    float largest = entries[0].logit;
    if (largest == -INFINITY)
        return -1;
    if (settings->temperature == 0)
        return entries[0].id;

    uint32_t kept = settings->top_k && settings->top_k < vocabulary ? settings->top_k : vocabulary;
    uint64_t sum = 0, running = 0;
    for (uint32_t i = 0; i < kept; i++)
        sum += weight_between(entries[i].logit, largest, 1);
    for (uint32_t i = 0; i < kept; i++) {
        uint64_t weight = weight_between(entries[i].logit, largest, 1);
        bool reached = settings->top_p < 1 && i > 0 && running >= share_of(sum, settings->top_p);
        bool heavy = weight >= share_of(UINT64_C(1) << 32, settings->min_p);
        running += weight;
        entries[i].stays = !reached && heavy;
        entries[i].weight = weight_between(entries[i].logit, largest, 1 / settings->temperature);
    }
    qsort(entries, vocabulary, sizeof *entries, by_id);
    sum = 0;
    for (uint32_t i = 0; i < vocabulary; i++)
        sum += entries[i].stays ? entries[i].weight : 0;
    uint64_t random = sampling_random(settings->seed, count);
    uint64_t threshold = (uint64_t)((wide)random * sum >> 64);
    running = 0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        running += entries[i].stays ? entries[i].weight : 0;
        if (running > threshold)
            return entries[i].id;
    }
    return -2;
}

static void every_stage_agrees_with_a_plain_implementation(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 31, 32, 33, 64, 320, 1000, 4099};
    static float logits[4099], bias[4099];
    static int32_t tokens[500];
    uint64_t counter = 0;
    for (unsigned round = 0; round < 6000; round++) {
        uint32_t size = sizes[round % 10];
        sampling_case_fill(round, size, logits, bias, &counter);
        for (unsigned i = 0; i < 500; i++)
            tokens[i] =
                (int32_t)(sampling_case_uniform(&counter) * sampling_case_uniform(&counter) * (float)size);
        const struct sampler_settings settings = sampling_case_settings(round, 600, bias);
        uint32_t count = round % 501;
        assert_int_equal(choose_plainly(&settings, logits, size, tokens, count),
            choose(&settings, logits, size, tokens, count));
    }
}

/* Seeds whose random numbers lie at the borders between ids: an id has its share from the first number on,
 * and one without weight has none. The seeds come from turning sampling.h's definition around. */
static void borders_belong_to_the_id_above(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, random;
        int32_t of_two, of_the_heavier; /* logits 0, 0; logits -100, 0 */
    } cases[] = {
        {UINT64_C(0xe7114fab484158d7), 0, 0, 1},
        {UINT64_C(0xa5998d04524e521b), (UINT64_C(1) << 63) - 1, 0, 1},
        {UINT64_C(0x8ac6b3344996468f), UINT64_C(1) << 63, 1, 1},
        {UINT64_C(0xa069956c7f466d4c), UINT64_MAX, 1, 1},
    };
    const int32_t token = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sampler_settings settings = {
            .temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = cases[i].seed};
        assert_true(sampling_random(cases[i].seed, 1) == cases[i].random);
        assert_int_equal(choose(&settings, (float[]){0, 0}, 2, &token, 1), cases[i].of_two);
        assert_int_equal(choose(&settings, (float[]){-100, 0}, 2, &token, 1), cases[i].of_the_heavier);
    }
}

static void large_vocabularies_agree_too(void **state)
{
    (void)state;
    static float logits[LARGE];
    uint64_t counter = 0;
    for (unsigned round = 0; round < 12; round++) {
        sampling_case_logits(logits, LARGE, 10, round % 2 ? 0.25f : 0, &counter);
        if (round == 10) { /* every id passes the threshold of the ids before it */
            for (uint32_t i = 0; i < LARGE; i++)
                logits[i] = (float)i * 1e-3f;
        }
        struct sampler_settings settings = usual;
        settings.top_k = round % 3 == 0 ? 0 : round % 3 == 1 ? 40 : 20000;
        settings.seed = round;
        assert_int_equal(
            choose_plainly(&settings, logits, LARGE, NULL, 0), choose(&settings, logits, LARGE, NULL, 0));
    }
}

static void among_equal_logits_top_k_keeps_the_lower_ids(void **state)
{
    (void)state;
    static float logits[1000];
    for (unsigned i = 0; i < 1000; i++)
        logits[i] = i == 900 ? 2 : 1;
    struct sampler_settings settings = plain;
    settings.top_k = 4;
    unsigned seen[1000] = {0};
    for (unsigned seed = 0; seed < 500; seed++) {
        settings.seed = seed;
        seen[choose(&settings, logits, 1000, NULL, 0)]++;
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[900]);
    assert_int_equal(500, seen[0] + seen[1] + seen[2] + seen[900]);
}

/* ---- The distribution ---- */

/* Upper 1 in 10,000 of chi-square, by Wilson and Hilferty's cube root. */
static double chi_square_limit(unsigned freedom)
{
    double a = 2.0 / (9.0 * freedom), root = 1 - a + 3.719 * sqrt(a);
    return freedom * root * root * root;
}

static void assert_distribution(
    const struct sampler_settings *given, const float *logits, uint32_t size, const double *probabilities)
{
    enum { DRAWS = 100000 };
    struct sampler_settings settings = *given;
    static unsigned counts[512];
    memset(counts, 0, sizeof counts);
    int32_t tokens[1000] = {0};
    for (unsigned i = 0; i < DRAWS; i++) { /* many seeds, many positions */
        settings.seed = i / 1000;
        counts[choose(&settings, logits, size, tokens, i % 1000)]++;
    }
    double chi = 0;
    unsigned bins = 0;
    for (uint32_t i = 0; i < size; i++) {
        double expected = probabilities[i] * DRAWS;
        if (expected < 1e-9) {
            assert_int_equal(0, counts[i]);
            continue;
        }
        if (expected < 5)
            continue;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        bins++;
    }
    assert_true(bins > 1);
    assert_true(chi < chi_square_limit(bins - 1));
}

static void ids_come_as_often_as_their_probability_says(void **state)
{
    (void)state;
    enum { SIZE = 60 };
    float logits[SIZE];
    double probabilities[SIZE], sum = 0;
    uint64_t counter = 5;
    for (unsigned i = 0; i < SIZE; i++)
        logits[i] = 6 * sampling_case_uniform(&counter);
    for (unsigned i = 0; i < SIZE; i++)
        sum += probabilities[i] = exp(logits[i] / 0.7);
    for (unsigned i = 0; i < SIZE; i++)
        probabilities[i] /= sum;
    struct sampler_settings settings = plain;
    settings.temperature = 0.7f;
    assert_distribution(&settings, logits, SIZE, probabilities);
}

static void filters_leave_the_rest_in_proportion(void **state)
{
    (void)state;
    /* Probabilities 0.4, 0.3, 0.2, 0.1: top-p 0.85 leaves the first three, min-p 0.6 of the largest the first
     * two.
     */
    const double shares[] = {0.1, 0.4, 0.2, 0.3};
    float logits[4];
    for (unsigned i = 0; i < 4; i++)
        logits[i] = (float)log(shares[i]);
    struct sampler_settings settings = plain;
    settings.top_p = 0.85f;
    assert_distribution(&settings, logits, 4, (double[]){0, 4 / 9.0, 2 / 9.0, 3 / 9.0});
    settings.min_p = 0.6f;
    assert_distribution(&settings, logits, 4, (double[]){0, 4 / 7.0, 0, 3 / 7.0});
    settings.top_p = 1;
    settings.min_p = 0;
    settings.top_k = 3;
    assert_distribution(&settings, logits, 4, (double[]){0, 4 / 9.0, 2 / 9.0, 3 / 9.0});
}

/* ---- Bias and penalties by hand ---- */

static void bias_and_penalties_move_the_choice(void **state)
{
    (void)state;
    const float logits[] = {2, 4, -1, 3};
    float bias[] = {0, -INFINITY, 0, 0};
    const int32_t tokens[] = {1, 1, 3, 0};
    struct sampler_settings settings = greedy;
    settings.bias = bias;
    assert_int_equal(3, choose(&settings, logits, 4, NULL, 0));
    bias[2] = 100;
    assert_int_equal(2, choose(&settings, logits, 4, NULL, 0));

    settings = greedy;
    settings.repeat_last_n = 4;
    settings.presence_penalty = 0.5f; /* 1.5, 3.5, -1, 2.5 */
    assert_int_equal(1, choose(&settings, logits, 4, tokens, 4));
    settings.frequency_penalty = 0.75f; /* 0.75, 2, -1, 1.75 */
    assert_int_equal(1, choose(&settings, logits, 4, tokens, 4));
    settings.frequency_penalty = 2; /* -0.5, -0.5, -1, 0.5 */
    assert_int_equal(3, choose(&settings, logits, 4, tokens, 4));
    settings.repeat_last_n = 2; /* only 3 and 0 count */
    assert_int_equal(1, choose(&settings, logits, 4, tokens, 4));

    settings = greedy;
    settings.repeat_last_n = 64;
    settings.repeat_penalty = 2; /* 1, 2, -1, 1.5: once, however often it came */
    assert_int_equal(1, choose(&settings, logits, 4, tokens, 4));
    const int32_t all[] = {0, 1, 2, 3};
    const float negative[] = {-1, -3, -2, -4};
    assert_int_equal(1, choose(&settings, (const float[]){-2.1f, -2, -5, -4}, 4, all, 4)); /* -4.2, -4, ... */
    assert_int_equal(
        0, choose(&settings, negative, 4, (const int32_t[]){0, 1}, 2)); /* -2, -6, -2, -4: lower id */
}

static void the_same_seed_gives_the_same_ids(void **state)
{
    (void)state;
    static float logits[4000];
    uint64_t counter = 9;
    sampling_case_logits(logits, 4000, 8, 0, &counter);
    int32_t tokens[200] = {0};
    struct sampler_settings settings = usual;
    unsigned different = 0;
    for (uint32_t position = 0; position < 200; position++) {
        settings.seed = 42;
        int32_t first = choose(&settings, logits, 4000, tokens, position);
        assert_int_equal(first, choose(&settings, logits, 4000, tokens, position));
        settings.seed = 43;
        different += first != choose(&settings, logits, 4000, tokens, position);
    }
    assert_true(different > 50);
}

/* Not a test of speed, which depends on the machine; it prints what it took. */
static void timing(void **state)
{
    (void)state;
    static float logits[LARGE];
    uint64_t counter = 0;
    sampling_case_logits(logits, LARGE, 10, 0, &counter);
    struct sampler_settings without_top_k = usual;
    without_top_k.top_k = 0;
    const struct {
        const char *name;
        const struct sampler_settings *settings;
    } cases[] = {{"greedy", &greedy}, {"default", &usual}, {"without top-k", &without_top_k}};
    for (unsigned i = 0; i < 3; i++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (unsigned round = 0; round < 100; round++)
            choose(cases[i].settings, logits, LARGE, NULL, 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        print_message("%u logits, %s: %.1f us\n", LARGE, cases[i].name, seconds * 1e4);
    }
}

/* A mask does what a bias of -infinity does, also beside a bias. */
static void masks_forbid_ids(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 31, 32, 33, 320, 1000};
    static float logits[1000], bias[1000], forbidding[1000];
    static uint32_t mask[32];
    static int32_t tokens[50];
    uint64_t counter = 0;
    for (unsigned round = 0; round < 1200; round++) {
        const uint32_t size = sizes[round % 6];
        sampling_case_fill(round, size, logits, bias, &counter);
        memset(mask, round % 3 ? 0 : 0xff, sizeof mask); /* few ids, or all but a few */
        for (uint32_t i = 0; i < 1 + size / 16; i++) {
            const uint32_t id = (uint32_t)(sampling_case_uniform(&counter) * (float)size) % size;
            mask[id / 32] ^= UINT32_C(1) << id % 32;
        }
        struct sampler_settings settings = sampling_case_settings(round, 40, bias);
        for (uint32_t i = 0; i < size; i++)
            forbidding[i] = !(mask[i / 32] >> i % 32 & 1) ? -INFINITY : settings.bias ? bias[i] : 0;
        struct sampler_settings expected = settings;
        expected.bias = forbidding;
        settings.mask = mask;
        assert_int_equal(choose(&expected, logits, size, tokens, round % 51),
            choose(&settings, logits, size, tokens, round % 51));
    }
    memset(mask, 0, sizeof mask);
    assert_int_equal(-1, choose(&(struct sampler_settings){.top_p = 1, .repeat_penalty = 1, .mask = mask},
                             logits, 32, tokens, 0));
}

/* ---- Log-probabilities ---- */

/* log(exp(l) / sum) in long double, without subtracting the largest first. */
static long double plain_logprob(const float *logits, uint32_t vocabulary, uint32_t id)
{
    long double sum = 0;
    for (uint32_t i = 0; i < vocabulary; i++)
        sum += isnan(logits[i]) ? 0 : expl((long double)logits[i]);
    return isnan(logits[id]) ? -INFINITY : logl(expl((long double)logits[id]) / sum);
}

static void check_logprobs(const float *logits, uint32_t vocabulary, int32_t chosen, uint32_t top_count)
{
    struct sampling_logprob found[1 + MAX_TOP_LOGPROBS];
    static bool listed[LARGE];
    memset(listed, 0, vocabulary * sizeof *listed);
    sampling_logprobs(logits, vocabulary, chosen, top_count, found);
    assert_int_equal(chosen, found[0].id);
    for (uint32_t i = 0; i <= top_count; i++) {
        int32_t id = found[i].id;
        if (i) { /* the best id that is not listed yet, by a plain search */
            int32_t best = -1;
            for (uint32_t j = 0; j < vocabulary; j++) {
                if (!listed[j] && logits[j] > -INFINITY && (best < 0 || logits[j] > logits[best]))
                    best = (int32_t)j;
            }
            assert_int_equal(best, id);
        }
        if (id < 0) {
            assert_true(found[i].logprob == -INFINITY);
            continue;
        }
        listed[id] |= i > 0;
        const long double expected = plain_logprob(logits, vocabulary, (uint32_t)id);
        if (isinf(expected))
            assert_true(found[i].logprob == -INFINITY);
        else
            assert_true(fabsl(found[i].logprob - expected) <= 1e-6L * (1 + fabsl(expected)));
    }
}

static void logprobs_are_a_log_softmax(void **state)
{
    (void)state;
    static float logits[LARGE];
    uint64_t random = 5;
    for (uint32_t vocabulary = 1; vocabulary <= LARGE; vocabulary = vocabulary * 3 + 1) {
        for (uint32_t i = 0; i < vocabulary; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            logits[i] = (float)(random >> 40) * 0x1p-19f - 16; /* ties are likely */
            logits[i] = random >> 33 & 15 ? logits[i] : random >> 37 & 1 ? NAN : -INFINITY;
        }
        logits[vocabulary / 2] = 3;
        for (uint32_t top_count = 0; top_count <= MAX_TOP_LOGPROBS; top_count += 4)
            check_logprobs(logits, vocabulary, (int32_t)(vocabulary / 2), top_count);
        check_logprobs(logits, vocabulary, (int32_t)vocabulary - 1, MAX_TOP_LOGPROBS);
    }
}

static void infinite_logits_share_the_probability(void **state)
{
    (void)state;
    const float logits[] = {1, INFINITY, 2, INFINITY};
    struct sampling_logprob found[4];
    sampling_logprobs(logits, 4, 3, 3, found);
    assert_int_equal(1, found[1].id);
    assert_int_equal(3, found[2].id);
    assert_true(fabsf(found[0].logprob + 0.6931472f) < 1e-6f);
    assert_true(fabsf(found[1].logprob + 0.6931472f) < 1e-6f);
    assert_true(found[3].id == 2 && found[3].logprob == -INFINITY);
}

static void without_numbers_no_id_has_a_probability(void **state)
{
    (void)state;
    const float logits[][3] = {{NAN, NAN, NAN}, {-INFINITY, NAN, -INFINITY}};
    for (int i = 0; i < 2; i++) {
        struct sampling_logprob found[3];
        sampling_logprobs(logits[i], 3, 1, 2, found);
        assert_int_equal(1, found[0].id);
        for (int j = 0; j < 3; j++)
            assert_true(found[j].logprob == -INFINITY && (j == 0 || found[j].id == -1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_rows_give_the_lowest_id_of_the_largest),
        cmocka_unit_test(any_place_in_a_whole_vocabulary_can_win),
        cmocka_unit_test(weights_are_exponentials),
        cmocka_unit_test(random_numbers_are_those_of_the_definition),
        cmocka_unit_test(every_stage_agrees_with_a_plain_implementation),
        cmocka_unit_test(borders_belong_to_the_id_above),
        cmocka_unit_test(masks_forbid_ids),
        cmocka_unit_test(logprobs_are_a_log_softmax),
        cmocka_unit_test(infinite_logits_share_the_probability),
        cmocka_unit_test(without_numbers_no_id_has_a_probability),
        cmocka_unit_test(large_vocabularies_agree_too),
        cmocka_unit_test(among_equal_logits_top_k_keeps_the_lower_ids),
        cmocka_unit_test(ids_come_as_often_as_their_probability_says),
        cmocka_unit_test(filters_leave_the_rest_in_proportion),
        cmocka_unit_test(bias_and_penalties_move_the_choice),
        cmocka_unit_test(the_same_seed_gives_the_same_ids),
        cmocka_unit_test(timing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

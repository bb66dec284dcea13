#include "sampler_flags.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sampler_flags {
    float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    struct optional_number top_k, repeat_last_n;
    struct text_list biases;
    struct optional_seed seed;
} flags = {NAN, NAN, NAN, NAN, NAN, NAN, {0}, {0}, {{0}, 0}, {0}};

static const uint32_t no_top_k = 0, all_tokens = UINT32_MAX;

const struct option sampler_flag_table[] = {
    {0, "temp", "T", OPTION_POSITIVE, &flags.temperature,
        "temperature; 0: greedy (default: the model's, else 0.8)", .also = "--temperature"},
    {0, "top-k", "K", OPTION_MAYBE, &flags.top_k,
        "sample from the K most likely tokens; 0 or -1: off (default: the model's, else 40)",
        .minus_one = &no_top_k},
    {0, "top-p", "P", OPTION_SHARE, &flags.top_p,
        "sample from the most likely tokens whose probabilities add up to P; 1: off (default: the model's, "
        "else 0.95)"},
    {0, "min-p", "P", OPTION_SHARE, &flags.min_p,
        "drop tokens below P times the highest probability; 0: off (default: the model's, else 0.05)"},
    {0, "repeat-penalty", "X", OPTION_FACTOR, &flags.repeat_penalty,
        "penalize repeated tokens; 1: off (default: 1)"},
    {0, "repeat-last-n", "N", OPTION_MAYBE, &flags.repeat_last_n,
        "last N tokens that the penalties apply to; -1: all (default: 64)", .minus_one = &all_tokens},
    {0, "presence-penalty", "X", OPTION_FLOAT, &flags.presence_penalty,
        "subtract X from the logits of tokens that occurred (default: the model's, else 0)"},
    {0, "frequency-penalty", "X", OPTION_FLOAT, &flags.frequency_penalty,
        "subtract X for each occurrence of a token (default: the model's, else 0)"},
    {0, "logit-bias", "ID=X", OPTION_TEXTS, &flags.biases,
        "add X to the logit of token ID; X may be -inf; repeatable"},
    {'s', "seed", "N", OPTION_SEED, &flags.seed, "random seed; -1: random (default)"},
    {0},
};

static void override(float given, float *value)
{
    if (!isnan(given))
        *value = given;
}

/* ID=X, or as llama.cpp has it ID+X and ID-X. */
static bool parse_bias(const char *text, long *out_id, float *out_bias)
{
    char *end;
    *out_id = strtol(text, &end, 10);
    if (end == text || *out_id < 0 || *out_id > INT32_MAX || !*end || !strchr("=+-", *end))
        return false;
    const char *number = *end == '=' ? end + 1 : end;
    *out_bias = strtof(number, &end);
    return end != number && !*end && !isnan(*out_bias);
}

static int add_bias(struct salvo_session *session, const char *text)
{
    long id;
    float bias;
    if (!parse_bias(text, &id, &bias))
        return usage_error("invalid --logit-bias '%s': expected ID=X, for example 15=-2.5 or 15=-inf", text);
    if (salvo_session_set_bias(session, (int32_t)id, bias) != SALVO_OK)
        return usage_error("--logit-bias %s: %s", text, salvo_error());
    return EXIT_DONE;
}

struct salvo_sampler sampler_default_from_flags(const struct salvo_model *model)
{
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    (void)salvo_sampler_default(model, &sampler);
    override(flags.temperature, &sampler.temperature);
    override(flags.top_p, &sampler.top_p);
    override(flags.min_p, &sampler.min_p);
    override(flags.repeat_penalty, &sampler.repeat_penalty);
    override(flags.presence_penalty, &sampler.presence_penalty);
    override(flags.frequency_penalty, &sampler.frequency_penalty);
    if (flags.top_k.given)
        sampler.top_k = flags.top_k.value;
    if (flags.repeat_last_n.given)
        sampler.repeat_last_n = flags.repeat_last_n.value;
    if (flags.top_p == 0)
        sampler.top_p = FLT_MIN; /* as in llama.cpp the most likely token alone; the library's 0 is off */
    sampler.seed = flags.seed.given ? flags.seed.value : SALVO_SEED_RANDOM;
    return sampler;
}

bool sampler_flags_have_bias(void)
{
    return flags.biases.count > 0;
}

int sampler_from_flags(
    const struct salvo_model *model, struct salvo_session *session, struct salvo_sampler *out)
{
    struct salvo_sampler sampler = sampler_default_from_flags(model);
    for (size_t i = 0; i < flags.biases.count; i++) {
        int result = add_bias(session, flags.biases.items[i]);
        if (result != EXIT_DONE)
            return result;
    }
    if (salvo_session_set_sampler(session, &sampler) != SALVO_OK ||
        salvo_session_get_sampler(session, &sampler) != SALVO_OK)
        return usage_error("%s", salvo_error());
    flags.seed = (struct optional_seed){true, sampler.seed}; /* a random one stays the same from now on */
    *out = sampler;
    return EXIT_DONE;
}

static const struct option *find_flag(const char *name)
{
    enum { COUNT = sizeof sampler_flag_table / sizeof *sampler_flag_table - 1 };
    const char *names[COUNT];
    char flag[64], given[64];
    snprintf(given, sizeof given, "--%s", name);
    dash_name(given, flag);
    for (size_t i = 0; i < COUNT; i++) {
        names[i] = sampler_flag_table[i].name;
        if (option_is_called(&sampler_flag_table[i], flag, strlen(flag)))
            return &sampler_flag_table[i];
    }
    const char *nearest = nearest_name(name, names, COUNT);
    if (nearest)
        usage_error("/set: unknown setting '%s'; did you mean %s?", name, nearest);
    else
        usage_error("/set: unknown setting '%s'; /set without a name lists the settings", name);
    return NULL;
}

int sampler_flag_set(const struct salvo_model *model, struct salvo_session *session, const char *name,
    const char *value, struct salvo_sampler *out)
{
    const struct option *option = find_flag(name);
    if (!option)
        return EXIT_USAGE;
    const struct sampler_flags before = flags;
    int result = option_store("/set", option, name, value);
    if (result == EXIT_DONE)
        result = sampler_from_flags(model, session, out);
    if (result != EXIT_DONE || option->kind == OPTION_TEXTS)
        flags = before; /* the session has the bias now; the text of the option is freed by the caller */
    return result;
}

void sampler_flags_next_seed(void)
{
    flags.seed.value++;
}

#include "shape_case.h"

#include "random_weights.h"

#include <stdio.h>

enum {
    MOST_COLUMNS = 2048,     /* of q */
    MOST_ELEMENTS = 1 << 14, /* of a matrix, in most files: larger ones take long */
    MOST_OF_LARGE = 1 << 17, /* and in the others */
    MOST_HEAD_SIZE = 512,
    MOST_RATIO = 128, /* of query heads to KV heads */
};

uint32_t random_below(uint64_t *state, uint32_t below)
{
    const uint64_t number = random_next(state);
    return below ? (uint32_t)(number % below) : 0;
}

/* from .. to */
static uint32_t between(uint64_t *state, uint32_t from, uint32_t to)
{
    return from + random_below(state, to - from + 1);
}

static bool one_in(uint64_t *state, uint32_t count)
{
    return random_below(state, count) == 0;
}

/* Whole blocks of 256, whole blocks of 32, or any number, which no block format fits. */
static uint32_t random_columns(uint64_t *state)
{
    switch (random_below(state, 4)) {
    case 0:
        return 256 * between(state, 1, 2);
    case 1:
        return 32 * between(state, 1, 12);
    case 2:
        return between(state, 1, 40);
    default:
        return between(state, 1, 400);
    }
}

static uint32_t random_vocabulary(uint64_t *state)
{
    switch (random_below(state, 3)) {
    case 0:
        return between(state, 3, 9);
    case 1:
        return between(state, 10, 130);
    default:
        return between(state, 131, 700);
    }
}

/* Small sizes, sizes of published models, and random ones; a few are refused. */
static uint32_t random_head_size(uint64_t *state, uint32_t most)
{
    if (one_in(state, 40))
        return between(state, 1, 60);
    if (one_in(state, 3))
        return (uint32_t[]){32, 64, 80, 96, 128}[random_below(state, 5)];
    return 8 * between(state, 1, one_in(state, 3) ? most / 8 : 8);
}

/* ---- Llama and its relatives ---- */

static void choose_heads(uint64_t *state, struct model_shape *shape)
{
    shape->head_size = random_head_size(state, MOST_HEAD_SIZE);
    shape->kv_heads = between(state, 1, 4);
    uint32_t ratio = one_in(state, 3) ? between(state, 9, MOST_RATIO) : between(state, 1, 8);
    while (shape->kv_heads > 1 && shape->head_size * ratio * shape->kv_heads > MOST_COLUMNS)
        shape->kv_heads--;
    while (ratio > 1 && shape->head_size * ratio > MOST_COLUMNS)
        ratio /= 2;
    shape->heads = shape->kv_heads * ratio;
    if (shape->head_size > 2 && one_in(state, 3))
        shape->rope_dimensions = 2 * between(state, 1, shape->head_size / 2);
}

static void choose_family(uint64_t *state, struct model_shape *shape)
{
    static const struct {
        const char *name;
        bool qkv_bias, qk_norm, post_norms, fused_gate_up, windows;
    } families[] = {{"llama", 0, 0, 0, 0, 0}, {"qwen2", 1, 0, 0, 0, 0}, {"qwen3", 0, 1, 0, 0, 0},
        {"smollm3", 0, 0, 0, 0, 0}, {"phi3", 0, 0, 0, 1, 1}, {"gemma", 0, 0, 0, 0, 0},
        {"gemma2", 0, 0, 1, 0, 1}, {"gemma3", 0, 1, 1, 0, 1}};
    const uint32_t family = random_below(state, sizeof families / sizeof *families);
    shape->family = families[family].name;
    shape->qkv_bias = families[family].qkv_bias || one_in(state, 5);
    shape->qk_norm = families[family].qk_norm;
    shape->post_norms = families[family].post_norms;
    shape->fused_gate_up = families[family].fused_gate_up;
    shape->fused_qkv = !shape->qkv_bias && one_in(state, 3);
    shape->biases = one_in(state, 4);
    if (families[family].windows)
        shape->window = one_in(state, 4) ? between(state, 200, 300) : between(state, 1, 40);
    shape->attention_cap = one_in(state, 4) ? 1.0f + (float)random_below(state, 50) : 0;
    shape->output_cap = one_in(state, 4) ? 1.0f + (float)random_below(state, 30) : 0;
}

static void choose_llama(uint64_t *state, struct model_shape *shape)
{
    shape->architecture = LLAMA;
    shape->width = random_columns(state);
    shape->tied = one_in(state, 2);
    shape->rope_base = one_in(state, 2) ? 10000 : 500000;
    shape->rope_factor = one_in(state, 5) ? 8 : 0;
    choose_heads(state, shape);
    if (shape->head_size < 2)
        shape->rope_factor = 0; /* the file has a factor for each pair */
    choose_family(state, shape);
}

/* ---- RWKV-7 ---- */

static void choose_rwkv7(uint64_t *state, struct model_shape *shape)
{
    shape->architecture = one_in(state, 3) ? ARWKV7 : RWKV7;
    shape->head_size = random_head_size(state, 256);
    shape->width = shape->head_size * between(state, 1, 5);
    shape->decay_rank = between(state, 1, 70);
    shape->iclr_rank = between(state, 1, 70);
    shape->value_rank = between(state, 1, 70);
    shape->gate_rank = one_in(state, 3) ? 0 : between(state, 1, 130);
}

/* ---- */

/* Fewer and shorter rows where matrices would have too many elements. */
static void limit_size(uint64_t *state, struct model_shape *shape)
{
    const uint32_t most = one_in(state, 10) ? MOST_OF_LARGE : MOST_ELEMENTS;
    while (shape->architecture == LLAMA && shape->width * shape->heads * shape->head_size > most)
        shape->width = (shape->width + 1) / 2;
    while (
        shape->architecture != LLAMA && shape->width > shape->head_size && shape->width * shape->width > most)
        shape->width -= shape->head_size;
    while (shape->width * shape->feed_forward > most)
        shape->feed_forward = (shape->feed_forward + 1) / 2;
    while (shape->width * shape->vocabulary > most)
        shape->vocabulary = 3 + shape->vocabulary / 2;
}

/* The context is filled to its end, so that whatever is too small for it is overrun. */
static struct salvo_engine_options choose_options(uint64_t *state)
{
    struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options),
        .sessions = one_in(state, 2) ? 1 : between(state, 2, MOST_SESSIONS),
        .threads = between(state, 1, 3),
        .kv_type = (enum salvo_kv_type)random_below(state, SALVO_KV_Q8_0 + 1),
    };
    options.context = between(state, 1, 48);
    if (one_in(state, 12)) { /* beyond a KV page */
        options.context = between(state, 254, 260);
        options.sessions = 1;
    }
    options.batch = one_in(state, 3) ? 0 : between(state, 1, options.context + 3);
    return options;
}

struct shape_case shape_case_make(uint64_t seed)
{
    uint64_t state = seed;
    uint32_t mixes = 0;
    while (model_mixes[mixes].name)
        mixes++;
    struct shape_case made = {.seed = seed, .mix = &model_mixes[random_below(&state, mixes)]};
    if (one_in(&state, 4))
        choose_rwkv7(&state, &made.shape);
    else
        choose_llama(&state, &made.shape);
    made.shape.name = "random";
    made.shape.layers = between(&state, 1, 3);
    made.shape.feed_forward = random_columns(&state);
    made.shape.vocabulary = random_vocabulary(&state);
    limit_size(&state, &made.shape);
    made.options = choose_options(&state);
    made.shape.context = made.options.context;
    return made;
}

void shape_case_describe(const struct shape_case *made, char *text, size_t size)
{
    static const char *const kv_types[] = {
        [SALVO_KV_AUTO] = "auto", [SALVO_KV_F16] = "f16", [SALVO_KV_F32] = "f32", [SALVO_KV_Q8_0] = "q8_0"};
    const struct model_shape *shape = &made->shape;
    int used = snprintf(text, size, "%s %s, %u layers of %u, feed-forward %u, heads of %u, vocabulary %u",
        shape->architecture == LLAMA   ? shape->family
        : shape->architecture == RWKV7 ? "rwkv7"
                                       : "arwkv7",
        made->mix->name, shape->layers, shape->width, shape->feed_forward, shape->head_size,
        shape->vocabulary);
    if (shape->architecture == LLAMA) {
        used += snprintf(text + used, size - (size_t)used,
            ", %u:%u heads, rotated %u, window %u, caps %g %g%s%s%s%s", shape->heads, shape->kv_heads,
            shape->rope_dimensions, shape->window, (double)shape->attention_cap, (double)shape->output_cap,
            shape->tied ? ", tied" : "", shape->qkv_bias ? ", qkv bias" : "", shape->biases ? ", biases" : "",
            shape->fused_qkv ? ", fused qkv" : "");
    } else {
        used += snprintf(text + used, size - (size_t)used, ", ranks %u %u %u %u", shape->decay_rank,
            shape->iclr_rank, shape->value_rank, shape->gate_rank);
    }
    snprintf(text + used, size - (size_t)used, "; context %u, batch %u, %u sessions, %u threads, kv %s",
        made->options.context, made->options.batch, made->options.sessions, made->options.threads,
        kv_types[made->options.kv_type]);
}

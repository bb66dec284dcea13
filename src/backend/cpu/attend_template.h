/*
 * Attention over one page for one instruction set; included by attend_neon.c and the like, which define
 * ISA(name) and LANES_1 .. LANES_4, the lanes of a block for 1 to 4 queries.
 *
 * Scores have one key per lane and are summed over head_dim; outputs have one dimension per lane and are
 * summed over keys. No sum crosses lanes, so the bits depend neither on the size of a block nor on other
 * queries. Work is divided into tiles of SIDE x SIDE elements, which stay in the L1 cache while every group
 * of queries uses them. With many queries, or for q8_0, a tile is converted to floats once, for all queries.
 */
#include "backend/cpu/attend.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/rows_vec.h"
#include "quant/half.h"

enum {
    SIDE = 64,       /* elements of a tile's side; a multiple of the lanes of every block */
    STRIP = 16,      /* lanes of the smallest block */
    BATCH = 64,      /* queries that share a converted tile */
    QUERY_GROUP = 4, /* queries that share the loads of a block; so few read f16 and f32 in place */
};

struct query_group {
    struct attend_query *query[QUERY_GROUP];
    float *scores[QUERY_GROUP]; /* [256] */
    uint32_t count, begin, end;
};

/*
 * Queries that see at least one key. Here and in query_groups, `begin` and `end` enclose the ranges of all
 * queries.
 */
struct batch {
    struct query_group query_groups[BATCH / QUERY_GROUP];
    uint32_t count, begin, end;
};

/* Elements of type TYPE_F16 or TYPE_F32; rows are `stride` elements apart. */
struct tile {
    const void *at;
    size_t stride;
    enum tensor_type type;
};

INLINE uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

INLINE uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- sums[query][lane] += factors[query][i] * tile[i][lane], over i in order ---- */

/* One row of the tile; values are converted some vectors before their use. A macro, since compilers keep the
 * sums in registers only if they see the whole array. */
#define ACCUMULATE_ROW(factor)                                                                      \
    do {                                                                                            \
        UNROLL                                                                                      \
        for (int first = 0; first < vectors; first += part) {                                       \
            wide x[AT_ONCE];                                                                        \
            UNROLL                                                                                  \
            for (int v = 0; v < part; v++)                                                          \
                x[v] = type == TYPE_F16 ? wide_load_f16((const uint16_t *)row + (first + v) * WIDE) \
                                        : wide_load((const float *)row + (first + v) * WIDE);       \
            UNROLL                                                                                  \
            for (int v = 0; v < part; v++) {                                                        \
                UNROLL                                                                              \
                for (int q = 0; q < queries; q++)                                                   \
                    sum[q][first + v] = wide_fma(x[v], factor, sum[q][first + v]);                  \
            }                                                                                       \
        }                                                                                           \
    } while (0)

/* Computes scores and outputs: factors are queries or weights, lanes are keys or dimensions. */
INLINE void accumulate(enum tensor_type type, int queries, int lanes, struct tile tile,
    const float *const *factors, size_t count, float *const *sums)
{
    enum { GROUPED = 4, AT_ONCE = 4 };
    wide sum[QUERY_GROUP][SIDE / WIDE];
    const int vectors = lanes / WIDE, part = type == TYPE_F32 ? 1 : vectors < AT_ONCE ? vectors : AT_ONCE;
    UNROLL
    for (int q = 0; q < queries; q++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum[q][v] = wide_load(sums[q] + v * WIDE);
    }
    const void *row = tile.at;
    const size_t stride = tile.stride * (type == TYPE_F16 ? sizeof(uint16_t) : sizeof(float));
    size_t i = 0;
    for (; i + GROUPED <= count; i += GROUPED) {
        float_group group[QUERY_GROUP];
        UNROLL
        for (int q = 0; q < queries; q++)
            group[q] = float_group_load(factors[q] + i);
        UNROLL
        for (int f = 0; f < GROUPED; f++) {
            ACCUMULATE_ROW(group[q][f]);
            row = (const char *)row + stride;
        }
    }
    for (; i < count; i++) {
        ACCUMULATE_ROW(factors[q][i]);
        row = (const char *)row + stride;
    }
    UNROLL
    for (int q = 0; q < queries; q++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            wide_store(sum[q][v], sums[q] + v * WIDE);
    }
}

typedef void accumulate_function(
    struct tile tile, const float *const *factors, size_t count, float *const *sums);

#define DEFINE_BLOCK(name, queries, lanes)                                                            \
    static void name(struct tile tile, const float *const *factors, size_t count, float *const *sums) \
    {                                                                                                 \
        if (tile.type == TYPE_F16)                                                                    \
            accumulate(TYPE_F16, queries, lanes, tile, factors, count, sums);                         \
        else                                                                                          \
            accumulate(TYPE_F32, queries, lanes, tile, factors, count, sums);                         \
    }

DEFINE_BLOCK(block_1, 1, LANES_1)
DEFINE_BLOCK(block_2, 2, LANES_2)
DEFINE_BLOCK(block_3, 3, LANES_3)
DEFINE_BLOCK(block_4, 4, LANES_4)
DEFINE_BLOCK(strip_1, 1, STRIP)
DEFINE_BLOCK(strip_2, 2, STRIP)
DEFINE_BLOCK(strip_3, 3, STRIP)
DEFINE_BLOCK(strip_4, 4, STRIP)

static const struct {
    accumulate_function *block, *strip;
    uint32_t lanes;
} kernels[QUERY_GROUP + 1] = {{0}, {block_1, strip_1, LANES_1}, {block_2, strip_2, LANES_2},
    {block_3, strip_3, LANES_3}, {block_4, strip_4, LANES_4}};

/* `lanes` is a multiple of STRIP. */
static void accumulate_lanes(struct tile tile, uint32_t queries, const float *const *factors, size_t count,
    uint32_t lanes, float *const *sums)
{
    float *at[QUERY_GROUP];
    size_t size = tile.type == TYPE_F16 ? sizeof(uint16_t) : sizeof(float);
    memcpy(at, sums, queries * sizeof *at);
    while (lanes) {
        bool full = lanes >= kernels[queries].lanes;
        uint32_t step = full ? kernels[queries].lanes : STRIP;
        (full ? kernels[queries].block : kernels[queries].strip)(tile, factors, count, at);
        tile.at = (const char *)tile.at + step * size;
        for (uint32_t q = 0; q < queries; q++)
            at[q] += step;
        lanes -= step;
    }
}

/* ---- Tiles converted to floats ---- */

/* n is a multiple of 8. Less than a vector is copied with padding and then converted. */
INLINE void convert_f16(const uint16_t *from, uint32_t n, float *out)
{
    uint32_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        wide_store(wide_load_f16(from + i), out + i);
    if (i < n) {
        uint16_t padded[WIDE] = {0};
        float floats[WIDE];
        memcpy(padded, from + i, (n - i) * sizeof *padded);
        wide_store(wide_load_f16(padded), floats);
        memcpy(out + i, floats, (n - i) * sizeof *out);
    }
}

/* Converts n bytes, a multiple of 8, with a scale for each, or with one scale for all if `scales` is NULL. */
INLINE void convert_bytes(const int8_t *from, const float *scales, float scale, uint32_t n, float *out)
{
    const wide all = (wide){0} + scale;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        wide values[16 / WIDE];
        wide_load_bytes(from + i, values);
        UNROLL
        for (int v = 0; v < 16 / WIDE; v++)
            wide_store(values[v] * (scales ? wide_load(scales + i + v * WIDE) : all), out + i + v * WIDE);
    }
    for (; i < n; i++)
        out[i] = (float)from[i] * (scales ? scales[i] : scale);
}

/* Converts dimensions first .. first + count - 1 of keys begin .. end - 1, both multiples of STRIP, to
 * [count][SIDE]. */
static void convert_keys(
    const struct kv_page *page, uint32_t first, uint32_t count, uint32_t begin, uint32_t end, float *out)
{
    float scales[SIDE]; /* of the keys, for 32 dimensions */
    for (uint32_t d = first; d < first + count; d++, out += SIDE) {
        size_t at = (size_t)d * PAGE_POSITIONS + begin;
        if (page->type == TYPE_F32) {
            memcpy(out, (const float *)page->keys + at, (end - begin) * sizeof *out);
        } else if (page->type == TYPE_F16) {
            convert_f16((const uint16_t *)page->keys + at, end - begin, out);
        } else {
            if (d % GROUP == 0)
                convert_f16(
                    page->key_scales + (size_t)(d / GROUP) * PAGE_POSITIONS + begin, end - begin, scales);
            convert_bytes((const int8_t *)page->keys + at, scales, 0, end - begin, out);
        }
    }
}

/* Converts dimensions first .. first + count - 1 of values begin .. end - 1 to [end - begin][SIDE], with
 * zeros up to a multiple of STRIP. */
static void convert_values(
    const struct kv_page *page, uint32_t first, uint32_t count, uint32_t begin, uint32_t end, float *out)
{
    uint32_t groups = (page->head_dim + GROUP - 1) / GROUP;
    for (uint32_t j = begin; j < end; j++, out += SIDE) {
        size_t at = (size_t)j * page->head_dim + first;
        if (page->type == TYPE_F32) {
            memcpy(out, (const float *)page->values + at, count * sizeof *out);
        } else if (page->type == TYPE_F16) {
            convert_f16((const uint16_t *)page->values + at, count, out);
        } else {
            const int8_t *bytes = (const int8_t *)page->values + at;
            const uint16_t *scales = page->value_scales + (size_t)j * groups + first / GROUP;
            for (uint32_t d = 0; d < count; d += GROUP)
                convert_bytes(
                    bytes + d, NULL, f16_to_f32(scales[d / GROUP]), smaller(GROUP, count - d), out + d);
        }
        if (count % STRIP)
            memset(out + count, 0, (STRIP - count % STRIP) * sizeof *out);
    }
}

INLINE bool read_in_place(const struct kv_page *page, const struct batch *batch)
{
    return batch->count <= QUERY_GROUP && page->type != TYPE_Q8_0;
}

INLINE const void *element_at(const void *elements, enum tensor_type type, size_t index)
{
    return (const char *)elements + index * (type == TYPE_F16 ? sizeof(uint16_t) : sizeof(float));
}

/* ---- Scores ---- */

/* Scores of a tile of keys begin .. end - 1 (multiples of STRIP), for the queries that see any of them. Keys
 * that only another query sees get a score too, which is never read. */
static void score_tile(
    const struct batch *batch, struct tile tile, uint32_t first, uint32_t count, uint32_t begin, uint32_t end)
{
    for (uint32_t t = 0; t * QUERY_GROUP < batch->count; t++) {
        const struct query_group *query_group = &batch->query_groups[t];
        uint32_t from = larger(begin, query_group->begin / STRIP * STRIP);
        uint32_t to = smaller(end, (query_group->end + STRIP - 1) / STRIP * STRIP);
        if (from >= to)
            continue;
        const float *factors[QUERY_GROUP];
        float *sums[QUERY_GROUP];
        for (uint32_t q = 0; q < query_group->count; q++) {
            factors[q] = query_group->query[q]->query + first;
            sums[q] = query_group->scores[q] + from;
        }
        struct tile part = {element_at(tile.at, tile.type, from - begin), tile.stride, tile.type};
        accumulate_lanes(part, query_group->count, factors, count, to - from, sums);
    }
}

static void find_scores(const struct kv_page *page, const struct batch *batch, float *floats)
{
    for (uint32_t t = 0; t * QUERY_GROUP < batch->count; t++)
        for (uint32_t q = 0; q < batch->query_groups[t].count; q++)
            memset(batch->query_groups[t].scores[q], 0, PAGE_POSITIONS * sizeof(float));
    for (uint32_t d = 0; d < page->head_dim; d += SIDE) {
        uint32_t count = smaller(SIDE, page->head_dim - d);
        for (uint32_t j = batch->begin / STRIP * STRIP, next; j < batch->end; j = next) {
            next = smaller((j / SIDE + 1) * SIDE, (batch->end + STRIP - 1) / STRIP * STRIP);
            struct tile tile = {floats, SIDE, TYPE_F32};
            if (read_in_place(page, batch)) {
                tile = (struct tile){element_at(page->keys, page->type, (size_t)d * PAGE_POSITIONS + j),
                    PAGE_POSITIONS, page->type};
            } else {
                convert_keys(page, d, count, j, next, floats);
            }
            score_tile(batch, tile, d, count, j, next);
        }
    }
}

/* ---- Weights ---- */

/* Computes 8 weights in place. */
INLINE void weigh(float *x, float maximum, struct partial_sums *sums)
{
    UNROLL
    for (int part = 0; part < 8 / VEC; part++) {
        vec weights = vec_exp_negative(vec_load(x + part * VEC) - vec_all(maximum));
        vec_store(weights, x + part * VEC);
        sums->part[part] += weights;
    }
}

static void find_weights(struct attend_query *query, float *scores, float cap)
{
    float *x = scores + query->begin;
    uint32_t n = query->end - query->begin, i = 0;
    if (cap != 0)
        ISA(softcap)(cap, n, x);
    const float maximum = vec_maximum(x, n) + 0.0f; /* -0 becomes 0: the scalar code may find either first */
    struct partial_sums sums = {{{0}}};
    for (; i + 8 <= n; i += 8)
        weigh(x + i, maximum, &sums);
    if (i < n) {
        float padded[8]; /* padding weighs 0, which changes no sum */
        for (uint32_t j = 0; j < 8; j++)
            padded[j] = i + j < n ? x[i + j] : -INFINITY;
        weigh(padded, maximum, &sums);
        memcpy(x + i, padded, (n - i) * sizeof *x);
    }
    query->maximum = maximum;
    query->sum = row_sum(sums);
}

/* ---- Outputs ---- */

/* Adds `count` values to `lanes` dimensions from `first` on. The tile's first row is key `key` of the page.
 * `lanes` is a multiple of 8; the tile has zeros up to a multiple of STRIP. */
static void add_values(const struct query_group *query_group, uint32_t from, uint32_t to, struct tile tile,
    uint32_t key, uint32_t count, uint32_t first, uint32_t lanes)
{
    const float *factors[QUERY_GROUP];
    float *sums[QUERY_GROUP], padded[QUERY_GROUP][STRIP] = {{0}}, *padded_sums[QUERY_GROUP];
    uint32_t whole = lanes / STRIP * STRIP, rest = lanes - whole, queries = to - from;
    for (uint32_t q = 0; q < queries; q++) {
        factors[q] = query_group->scores[from + q] + key;
        sums[q] = query_group->query[from + q]->output + first;
    }
    accumulate_lanes(tile, queries, factors, count, whole, sums);
    if (!rest)
        return;
    for (uint32_t q = 0; q < queries; q++) {
        memcpy(padded[q], sums[q] + whole, rest * sizeof(float));
        padded_sums[q] = padded[q];
    }
    tile.at = element_at(tile.at, tile.type, whole);
    accumulate_lanes(tile, queries, factors, count, STRIP, padded_sums);
    for (uint32_t q = 0; q < queries; q++)
        memcpy(sums[q] + whole, padded[q], rest * sizeof(float));
}

/*
 * Adds values begin .. end - 1. Keys that all queries of a query_group see are added together, the keys
 * before and after one query at a time: a value that a query does not see must not be added to it, not even
 * times zero.
 */
static void value_tile(
    const struct batch *batch, struct tile tile, uint32_t first, uint32_t lanes, uint32_t begin, uint32_t end)
{
    for (uint32_t t = 0; t * QUERY_GROUP < batch->count; t++) {
        const struct query_group *query_group = &batch->query_groups[t];
        uint32_t from = begin, to = end;
        for (uint32_t q = 0; q < query_group->count; q++) {
            from = larger(from, query_group->query[q]->begin);
            to = smaller(to, query_group->query[q]->end);
        }
        struct {
            uint32_t from, to;
        } pieces[3] = {{begin, smaller(from, end)}, {from, to}, {larger(to, begin), end}};
        if (from >= to) { /* no key that all see */
            pieces[0].to = end;
            pieces[1].from = pieces[1].to = pieces[2].from = end;
        }
        for (int piece = 0; piece < 3; piece++) {
            bool together = piece == 1;
            for (uint32_t q = 0; q < (together ? 1 : query_group->count); q++) {
                uint32_t key = larger(pieces[piece].from, together ? 0 : query_group->query[q]->begin);
                uint32_t last = together ? to : smaller(pieces[piece].to, query_group->query[q]->end);
                if (key >= last || pieces[piece].from >= pieces[piece].to)
                    continue;
                struct tile part = {
                    element_at(tile.at, tile.type, (key - begin) * tile.stride), tile.stride, tile.type};
                add_values(query_group, together ? 0 : q, together ? query_group->count : q + 1, part, key,
                    last - key, first, lanes);
            }
        }
    }
}

static void find_outputs(const struct kv_page *page, const struct batch *batch, float *floats)
{
    for (uint32_t j = batch->begin, next; j < batch->end; j = next) {
        next = smaller(batch->end, (j / SIDE + 1) * SIDE);
        for (uint32_t d = 0; d < page->head_dim; d += SIDE) {
            uint32_t lanes = smaller(SIDE, page->head_dim - d);
            struct tile tile = {floats, SIDE, TYPE_F32};
            if (read_in_place(page, batch) && lanes % STRIP == 0) {
                tile = (struct tile){element_at(page->values, page->type, (size_t)j * page->head_dim + d),
                    page->head_dim, page->type};
            } else {
                convert_values(page, d, lanes, j, next, floats);
            }
            value_tile(batch, tile, d, lanes, j, next);
        }
    }
}

/* ---- Pages ---- */

static void batch_add(struct batch *batch, struct attend_query *query, float *scores)
{
    struct query_group *query_group = &batch->query_groups[batch->count / QUERY_GROUP];
    if (batch->count % QUERY_GROUP == 0)
        *query_group = (struct query_group){.begin = query->begin, .end = query->end};
    if (batch->count == 0) {
        batch->begin = query->begin;
        batch->end = query->end;
    }
    query_group->query[query_group->count] = query;
    query_group->scores[query_group->count++] = scores;
    query_group->begin = smaller(query_group->begin, query->begin);
    query_group->end = larger(query_group->end, query->end);
    batch->begin = smaller(batch->begin, query->begin);
    batch->end = larger(batch->end, query->end);
    batch->count++;
}

static void attend_batch(const struct kv_page *page, struct batch *batch, float cap)
{
    float floats[SIDE * SIDE];
    find_scores(page, batch, floats);
    for (uint32_t t = 0; t * QUERY_GROUP < batch->count; t++)
        for (uint32_t q = 0; q < batch->query_groups[t].count; q++)
            find_weights(batch->query_groups[t].query[q], batch->query_groups[t].scores[q], cap);
    find_outputs(page, batch, floats);
    batch->count = 0;
}

void ISA(attend_page)(
    const struct kv_page *page, struct attend_query *queries, size_t count, float cap, float *scores)
{
    struct batch batch = {.count = 0};
    for (size_t i = 0; i < count; i++) {
        memset(queries[i].output, 0, page->head_dim * sizeof(float));
        queries[i].maximum = -INFINITY;
        queries[i].sum = 0;
        if (queries[i].begin < queries[i].end)
            batch_add(&batch, &queries[i], scores + i * PAGE_POSITIONS);
        if (batch.count == BATCH)
            attend_batch(page, &batch, cap);
    }
    if (batch.count)
        attend_batch(page, &batch, cap);
}

void ISA(attend_merge)(struct attend_result from, size_t head_dim, struct attend_result *into)
{
    if (from.sum == 0)
        return;
    if (into->sum == 0) {
        into->maximum = from.maximum;
        into->sum = from.sum;
        memcpy(into->output, from.output, head_dim * sizeof *from.output);
        return;
    }
    float maximum = from.maximum > into->maximum ? from.maximum : into->maximum;
    float factors[VEC] = {into->maximum - maximum, from.maximum - maximum};
    vec_store(vec_exp_negative(vec_load(factors)), factors);
    into->maximum = maximum;
    into->sum = fmaf(into->sum, factors[0], from.sum * factors[1]);
    const vec left = vec_all(factors[0]), right = vec_all(factors[1]);
    for (size_t d = 0; d < head_dim; d += VEC) { /* head_dim is a multiple of 8 */
        vec addend = vec_load(from.output + d) * right;
        vec_store(vec_fma(vec_load(into->output + d), left, addend), into->output + d);
    }
}

void ISA(attend_finish)(struct attend_result result, size_t head_dim, float *out)
{
    if (result.sum == 0) {
        memset(out, 0, head_dim * sizeof *out);
        return;
    }
    vec factor = vec_all(1 / result.sum);
    for (size_t d = 0; d < head_dim; d += VEC)
        vec_store(vec_load(result.output + d) * factor, out + d);
}

/* ---- Appending ---- */

/* Rounds n elements, a multiple of 8, to int8; returns the scale. */
static uint16_t round_bytes(const float *x, uint32_t n, int8_t *out)
{
    uint32_t largest = 0; /* magnitudes are compared as integers; NaN is the largest */
    for (uint32_t i = 0; i < n; i++)
        largest = larger(largest, f32_bits(x[i]) & 0x7fffffff);
    uint16_t scale = f16_from_f32(f32_from_bits(largest) * (1.0f / 127));
    float value = f16_to_f32(scale);
    if (!(value > 0 && value < INFINITY)) {
        memset(out, 0, n);
        return value == 0 ? 0 : 0x7e00;
    }
    vec inverse = vec_all(1 / value);
    for (uint32_t i = 0; i < n; i += VEC)
        vec_store_bytes(vec_at_most(127, vec_at_least(-127, vec_load(x + i) * inverse)), out + i);
    return scale;
}

void ISA(kv_append)(const struct kv_room *room, uint32_t position, const float *key, const float *value)
{
    uint32_t head_dim = room->head_dim, groups = (head_dim + GROUP - 1) / GROUP;
    for (uint32_t d = 0; d < head_dim; d += GROUP) {
        uint32_t count = smaller(GROUP, head_dim - d);
        size_t column = (size_t)d * PAGE_POSITIONS + position, row = (size_t)position * head_dim + d;
        if (room->type == TYPE_F32) {
            for (uint32_t i = 0; i < count; i++)
                ((float *)room->keys)[column + (size_t)i * PAGE_POSITIONS] = key[d + i];
            memcpy((float *)room->values + row, value + d, count * sizeof *value);
        } else if (room->type == TYPE_F16) {
            uint16_t halves[GROUP];
            for (uint32_t i = 0; i < count; i += VEC) {
                vec_store_f16(vec_load(key + d + i), halves + i);
                vec_store_f16(vec_load(value + d + i), (uint16_t *)room->values + row + i);
            }
            for (uint32_t i = 0; i < count; i++)
                ((uint16_t *)room->keys)[column + (size_t)i * PAGE_POSITIONS] = halves[i];
        } else {
            int8_t bytes[GROUP];
            room->key_scales[(size_t)(d / GROUP) * PAGE_POSITIONS + position] =
                round_bytes(key + d, count, bytes);
            room->value_scales[(size_t)position * groups + d / GROUP] =
                round_bytes(value + d, count, (int8_t *)room->values + row);
            for (uint32_t i = 0; i < count; i++)
                ((int8_t *)room->keys)[column + (size_t)i * PAGE_POSITIONS] = bytes[i];
        }
    }
}

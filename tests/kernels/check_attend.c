/* Attention and the KV cache against the scalar functions, bit for bit, and against softmax in double. */
#include "check.h"

#include "quant/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_QUERIES = 70 };

static const enum tensor_type types[] = {TYPE_F16, TYPE_F32, TYPE_Q8_0};
static const char *const type_names[] = {"f16", "f32", "q8_0"};

static size_t element_size(enum tensor_type type)
{
    return type == TYPE_F32 ? 4 : type == TYPE_F16 ? 2 : 1;
}

/* ---- Pages ------------------------------------------------------------------------------------------- */

static size_t scales_count(uint32_t head_dim)
{
    return (size_t)(head_dim + 31) / 32 * PAGE_POSITIONS;
}

static struct kv_room room_new(enum tensor_type type, uint32_t head_dim)
{
    size_t bytes = (size_t)head_dim * PAGE_POSITIONS * element_size(type);
    size_t scale_bytes = type == TYPE_Q8_0 ? scales_count(head_dim) * sizeof(uint16_t) : 1;
    return (struct kv_room){guarded_new(bytes), guarded_new(bytes), guarded_new(scale_bytes),
        guarded_new(scale_bytes), type, head_dim};
}

static void room_free(struct kv_room room)
{
    guarded_free(room.keys);
    guarded_free(room.values);
    guarded_free(room.key_scales);
    guarded_free(room.value_scales);
}

static struct kv_page room_page(struct kv_room room)
{
    return (struct kv_page){
        room.keys, room.values, room.key_scales, room.value_scales, room.type, room.head_dim};
}

static void check_same_rooms(struct kv_room got, struct kv_room want)
{
    size_t bytes = (size_t)got.head_dim * PAGE_POSITIONS * element_size(got.type);
    check_same_bytes("keys", got.keys, want.keys, bytes);
    check_same_bytes("values", got.values, want.values, bytes);
    if (got.type == TYPE_Q8_0) {
        bytes = scales_count(got.head_dim) * sizeof(uint16_t);
        check_same_bytes("key scales", got.key_scales, want.key_scales, bytes);
        check_same_bytes("value scales", got.value_scales, want.value_scales, bytes);
    }
}

static float *random_floats(size_t n, bool extreme)
{
    float *floats = guarded_new(n * sizeof *floats);
    for (size_t i = 0; i < n; i++)
        floats[i] = extreme ? random_extreme() : random_float() * 2;
    return floats;
}

/* Positions first .. end - 1 get random keys and values; `wild` ones are NaN and the like. */
static void fill_room(
    const struct cpu_kernels *kernels, struct kv_room room, uint32_t first, uint32_t end, bool wild)
{
    for (uint32_t j = first; j < end; j++) {
        float *key = random_floats(room.head_dim, wild), *value = random_floats(room.head_dim, wild);
        kernels->kv_append(&room, j, key, value);
        guarded_free(value);
        guarded_free(key);
    }
}

/* Counts the bytes that are not 0xff any more: appending touches one column and one row. */
static size_t touched(const void *memory, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((const uint8_t *)memory)[i] != 0xff;
    return count;
}

static void check_append(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t type,
    uint32_t head_dim, bool extreme)
{
    check_begin(kernels, "kv_append %s head_dim %u%s", type_names[type], head_dim, extreme ? " extreme" : "");
    struct kv_room got = room_new(types[type], head_dim), want = room_new(types[type], head_dim);
    for (int round = 0; round < 5; round++) {
        uint32_t position = round == 0 ? PAGE_POSITIONS - 1 : (uint32_t)(random_bits() % PAGE_POSITIONS);
        float *key = random_floats(head_dim, extreme), *value = random_floats(head_dim, extreme);
        if (round == 1)
            memset(key, 0, head_dim * sizeof *key);
        if (round == 2) /* a scale below what f16 can hold well */
            for (uint32_t d = 0; d < head_dim; d++)
                key[d] *= 1e-6f;
        kernels->kv_append(&got, position, key, value);
        scalar->kv_append(&want, position, key, value);
        check_same_rooms(got, want);
        size_t size = element_size(types[type]), bytes = (size_t)head_dim * PAGE_POSITIONS * size;
        if (round == 0) {
            check_that(touched(got.keys, bytes) <= head_dim * size, "wrote another position's key");
            check_that(touched(got.values, bytes) <= head_dim * size, "wrote another position's value");
        }
        guarded_free(value);
        guarded_free(key);
    }
    room_free(want);
    room_free(got);
}

/* ---- One page ---------------------------------------------------------------------------------------- */

enum ranges { FULL, DECODE, DIAGONAL, WINDOW, RANDOM, RANGES_COUNT };
static const char *const range_names[] = {"full", "decode", "diagonal", "window", "random"};

static void set_range(enum ranges ranges, size_t index, uint32_t start, struct attend_query *query)
{
    uint32_t last = start + (uint32_t)index / 3;
    last = last < PAGE_POSITIONS ? last : PAGE_POSITIONS - 1;
    query->begin = 0;
    query->end = PAGE_POSITIONS;
    if (ranges == DECODE)
        query->end = start + 1;
    if (ranges == DIAGONAL || ranges == WINDOW)
        query->end = last + 1;
    if (ranges == WINDOW)
        query->begin = last > 37 ? last - 37 : 0;
    if (ranges == RANDOM) {
        query->begin = (uint32_t)(random_bits() % (PAGE_POSITIONS + 1));
        query->end = query->begin + (uint32_t)(random_bits() % (PAGE_POSITIONS + 1 - query->begin));
    }
}

struct queries {
    struct attend_query query[MOST_QUERIES];
    float *inputs, *outputs; /* [count][head_dim] */
    size_t count;
};

/* The same inputs and ranges as `like`, if given. */
static void queries_new(
    size_t count, uint32_t head_dim, enum ranges ranges, const struct queries *like, struct queries *out)
{
    uint32_t start = (uint32_t)(random_bits() % PAGE_POSITIONS);
    out->count = count;
    out->inputs = random_floats(count * head_dim, false);
    out->outputs = guarded_new(count * head_dim * sizeof(float));
    if (like)
        memcpy(out->inputs, like->inputs, count * head_dim * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        struct attend_query *query = &out->query[i];
        *query = (struct attend_query){out->inputs + i * head_dim, out->outputs + i * head_dim, NAN, NAN};
        set_range(ranges, i, start, query);
        if (like) {
            query->begin = like->query[i].begin;
            query->end = like->query[i].end;
        }
    }
}

static void queries_free(struct queries *queries)
{
    guarded_free(queries->outputs);
    guarded_free(queries->inputs);
}

static void check_page(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar,
    const struct kv_page *page, size_t count, enum ranges ranges, float cap)
{
    static struct queries got, want;
    queries_new(count, page->head_dim, ranges, NULL, &got);
    queries_new(count, page->head_dim, ranges, &got, &want);
    float *scores = guarded_new(count * PAGE_POSITIONS * sizeof *scores);
    kernels->attend_page(page, got.query, count, cap, scores);
    guarded_free(scores);
    for (size_t i = 0; i < count; i++) { /* one at a time: the bits do not depend on the other rows */
        float alone[PAGE_POSITIONS];
        scalar->attend_page(page, &want.query[i], 1, cap, alone);
        check_same_floats("maximum", &got.query[i].maximum, &want.query[i].maximum, 1);
        check_same_floats("sum", &got.query[i].sum, &want.query[i].sum, 1);
    }
    check_same_floats("outputs", got.outputs, want.outputs, count * page->head_dim);
    queries_free(&want);
    queries_free(&got);
}

static void check_pages(
    const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t type, uint32_t head_dim)
{
    static const size_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 24, 50, 64, 65, 70};
    struct kv_room room = room_new(types[type], head_dim);
    fill_room(kernels, room, 0, PAGE_POSITIONS, false);
    struct kv_page page = room_page(room);
    for (int wild = 0; wild < 2; wild++) {
        if (wild) { /* what some queries see and others do not */
            fill_room(kernels, room, 11, 12, true);
            fill_room(kernels, room, 100, 103, true);
            fill_room(kernels, room, 201, 256, true);
        }
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            /* The reference is slow: the large shapes get one kind of ranges each. */
            for (int ranges = 0; ranges < RANGES_COUNT; ranges++) {
                if (counts[c] > 9 && (size_t)ranges != (c + type + head_dim / 8) % RANGES_COUNT)
                    continue;
                float cap = (c + (size_t)ranges) % 3 == 0 ? 30 : 0;
                check_begin(kernels, "attend_page %s head_dim %u count %zu %s%s%s", type_names[type],
                    head_dim, counts[c], range_names[ranges], cap != 0 ? " capped" : "",
                    wild ? " with NaN" : "");
                check_page(kernels, scalar, &page, counts[c], (enum ranges)ranges, cap);
            }
        }
    }
    room_free(room);
}

/* Positions outside a query's range must not change its result. */
static void check_no_leak(const struct cpu_kernels *kernels, size_t type)
{
    enum { HEAD_DIM = 72 };
    check_begin(kernels, "attend_page %s: NaN outside the range", type_names[type]);
    struct kv_room room = room_new(types[type], HEAD_DIM);
    memset(room.keys, 0x7f, (size_t)HEAD_DIM * PAGE_POSITIONS * element_size(types[type]));
    memset(room.values, 0x7f, (size_t)HEAD_DIM * PAGE_POSITIONS * element_size(types[type]));
    fill_room(kernels, room, 77, 91, false);
    struct kv_page page = room_page(room);
    static struct queries queries;
    for (size_t count = 1; count <= 12; count++) {
        float scores[12 * PAGE_POSITIONS];
        queries_new(count, HEAD_DIM, FULL, NULL, &queries);
        for (size_t i = 0; i < count; i++) {
            queries.query[i].begin = 77 + (uint32_t)i % 3;
            queries.query[i].end = 91 - (uint32_t)i / 2;
        }
        kernels->attend_page(&page, queries.query, count, 0, scores);
        bool finite = true;
        for (size_t i = 0; i < count * HEAD_DIM; i++)
            finite &= isfinite(queries.outputs[i]) != 0;
        for (size_t i = 0; i < count; i++)
            finite &= isfinite(queries.query[i].sum) && isfinite(queries.query[i].maximum);
        check_that(finite, "leaked");
        queries_free(&queries);
    }
    room_free(room);
}

/* ---- Merging ----------------------------------------------------------------------------------------- */

/* A NaN is the worst. */
static double worse(double a, double b)
{
    return b <= a || isnan(a) ? a : b;
}

static float key_in_double(const struct kv_room *room, uint32_t d, uint32_t j)
{
    size_t at = (size_t)d * PAGE_POSITIONS + j;
    return room->type == TYPE_F32   ? ((const float *)room->keys)[at]
           : room->type == TYPE_F16 ? f16_to_f32(((const uint16_t *)room->keys)[at])
                                    : (float)((const int8_t *)room->keys)[at] *
                                          f16_to_f32(room->key_scales[(size_t)(d / 32) * PAGE_POSITIONS + j]);
}

static float value_in_double(const struct kv_room *room, uint32_t d, uint32_t j)
{
    size_t at = (size_t)j * room->head_dim + d, groups = (room->head_dim + 31) / 32;
    return room->type == TYPE_F32   ? ((const float *)room->values)[at]
           : room->type == TYPE_F16 ? f16_to_f32(((const uint16_t *)room->values)[at])
                                    : (float)((const int8_t *)room->values)[at] *
                                          f16_to_f32(room->value_scales[j * groups + d / 32]);
}

/* Three pages, merged and finished, against softmax over all of them in double. */
static void check_whole(const struct cpu_kernels *kernels, size_t type, float cap)
{
    enum { HEAD_DIM = 40, PAGES = 3 };
    check_begin(kernels, "attention over pages, %s%s", type_names[type], cap != 0 ? " capped" : "");
    struct kv_room rooms[PAGES];
    float *query = random_floats(HEAD_DIM, false), scores[PAGE_POSITIONS], page_output[HEAD_DIM] = {0},
          running[HEAD_DIM];
    struct attend_result result = {-INFINITY, 0, running};
    static double weights[PAGES * PAGE_POSITIONS];
    double maximum = -INFINITY, sum = 0, worst = 0;
    for (uint32_t p = 0; p < PAGES; p++) {
        rooms[p] = room_new(types[type], HEAD_DIM);
        fill_room(kernels, rooms[p], 0, PAGE_POSITIONS, false);
        struct kv_page page = room_page(rooms[p]);
        struct attend_query work = {query, page_output, 0, 0, 0, PAGE_POSITIONS - 5 * p};
        kernels->attend_page(&page, &work, 1, cap, scores);
        kernels->attend_merge((struct attend_result){work.maximum, work.sum, page_output}, HEAD_DIM, &result);
        for (uint32_t j = 0; j < PAGE_POSITIONS; j++) {
            double score = 0;
            for (uint32_t d = 0; d < HEAD_DIM; d++)
                score += (double)query[d] * key_in_double(&rooms[p], d, j);
            score = cap != 0 ? cap * tanh(score / cap) : score;
            weights[p * PAGE_POSITIONS + j] = j < work.end ? score : -INFINITY;
            maximum = worse(maximum, weights[p * PAGE_POSITIONS + j]);
        }
    }
    kernels->attend_finish(result, HEAD_DIM, running);
    for (uint32_t j = 0; j < PAGES * PAGE_POSITIONS; j++)
        sum += weights[j] = exp(weights[j] - maximum);
    for (uint32_t d = 0; d < HEAD_DIM; d++) {
        double want = 0;
        for (uint32_t j = 0; j < PAGES * PAGE_POSITIONS; j++)
            if (weights[j] > 0)
                want += weights[j] / sum * value_in_double(&rooms[j / PAGE_POSITIONS], d, j % PAGE_POSITIONS);
        worst = worse(worst, fabs(want - running[d]));
    }
    check_that(worst < 1e-5, "far from softmax in double");
    for (uint32_t p = 0; p < PAGES; p++)
        room_free(rooms[p]);
    guarded_free(query);
}

static void check_merge(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t head_dim)
{
    static const float maxima[] = {-INFINITY, -100, -1, 0, 2, 2, 88, 1e30f}, sums[] = {0, 1, 3.5f, 200, NAN};
    for (int round = 0; round < 200; round++) {
        check_begin(kernels, "attend_merge head_dim %zu", head_dim);
        float *left = random_floats(head_dim, round % 4 == 3),
              *right = random_floats(head_dim, round % 4 == 3);
        float *got = guarded_new(head_dim * sizeof *got), *want = guarded_new(head_dim * sizeof *want);
        float left_sum = sums[random_bits() % 5], right_sum = sums[random_bits() % 5];
        float left_maximum = left_sum == 0 ? -INFINITY : maxima[random_bits() % 8],
              right_maximum = right_sum == 0 ? -INFINITY : maxima[random_bits() % 8];
        memcpy(got, left, head_dim * sizeof *got);
        memcpy(want, left, head_dim * sizeof *want);
        struct attend_result from = {right_maximum, right_sum, right};
        struct attend_result into = {left_maximum, left_sum, got}, into_want = {left_maximum, left_sum, want};
        kernels->attend_merge(from, head_dim, &into);
        scalar->attend_merge(from, head_dim, &into_want);
        check_same_floats("maximum", &into.maximum, &into_want.maximum, 1);
        check_same_floats("sum", &into.sum, &into_want.sum, 1);
        check_same_floats("output", got, want, head_dim);
        if (right_sum == 0)
            check_same_bytes("left side", got, left, head_dim * sizeof *got);
        else if (left_sum == 0)
            check_same_bytes("right side", got, right, head_dim * sizeof *got);
        kernels->attend_finish(into, head_dim, got);
        scalar->attend_finish(into_want, head_dim, want);
        check_same_floats("finished", got, want, head_dim);
        guarded_free(want);
        guarded_free(got);
        guarded_free(right);
        guarded_free(left);
    }
}

void check_attend(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar)
{
    static const uint32_t head_dims[] = {8, 40, 64, 80, 96, 128, 136, 256};
    for (size_t type = 0; type < sizeof types / sizeof *types; type++) {
        for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++) {
            check_append(kernels, scalar, type, head_dims[i], false);
            check_append(kernels, scalar, type, head_dims[i], true);
            if (kernels != scalar)
                check_pages(kernels, scalar, type, head_dims[i]);
        }
        check_no_leak(kernels, type);
        check_whole(kernels, type, 0);
        check_whole(kernels, type, 20);
    }
    for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++)
        check_merge(kernels, scalar, head_dims[i]);
}

/* ---- Speed ------------------------------------------------------------------------------------------- */

struct attend_bench {
    const struct cpu_kernels *kernels;
    struct kv_room *rooms;
    size_t rooms_count, next;
    struct queries queries;
    float *scores;
};

static void bench_page(void *argument)
{
    struct attend_bench *work = argument;
    struct kv_page page = room_page(work->rooms[work->next]);
    work->next = (work->next + 1) % work->rooms_count;
    work->kernels->attend_page(&page, work->queries.query, work->queries.count, 0, work->scores);
}

/* One page stays in the processor's cache; many pages are read from memory. */
static void bench_attend_case(const struct cpu_kernels *kernels, size_t type, uint32_t head_dim, size_t count,
    size_t pages, bool diagonal)
{
    char name[64];
    snprintf(name, sizeof name, "attend/%s/%u/%zu%s%s", type_names[type], head_dim, count,
        pages > 1 ? "/cold" : "", diagonal ? "/diagonal" : "");
    if (!bench_wanted(name))
        return;
    static struct attend_bench work;
    work.kernels = kernels;
    work.rooms = malloc(pages * sizeof *work.rooms);
    work.rooms_count = pages;
    work.next = 0;
    work.scores = guarded_new(count * PAGE_POSITIONS * sizeof(float));
    if (!work.rooms)
        abort();
    for (size_t i = 0; i < pages; i++) {
        work.rooms[i] = room_new(types[type], head_dim);
        size_t bytes = (size_t)head_dim * PAGE_POSITIONS * element_size(types[type]);
        if (i == 0) {
            fill_room(kernels, work.rooms[i], 0, PAGE_POSITIONS, false);
        } else {
            memcpy(work.rooms[i].keys, work.rooms[0].keys, bytes);
            memcpy(work.rooms[i].values, work.rooms[0].values, bytes);
            memset(work.rooms[i].key_scales, 0, type == 2 ? scales_count(head_dim) * 2 : 1);
            memset(work.rooms[i].value_scales, 0, type == 2 ? scales_count(head_dim) * 2 : 1);
        }
    }
    queries_new(count, head_dim, FULL, NULL, &work.queries);
    double seen = 0;
    for (size_t i = 0; i < count; i++) {
        if (diagonal)
            work.queries.query[i].end = 200 + (uint32_t)i / 3;
        seen += work.queries.query[i].end;
    }
    double seconds = bench(bench_page, &work);
    double bytes = 2.0 * head_dim * PAGE_POSITIONS * (double)element_size(types[type]);
    if (count <= 8)
        bench_print(kernels, name, bytes, "GB/s", seconds);
    else
        bench_print(kernels, name, 2.0 * head_dim * seen, "GMAC/s", seconds);
    queries_free(&work.queries);
    for (size_t i = 0; i < pages; i++)
        room_free(work.rooms[i]);
    guarded_free(work.scores);
    free(work.rooms);
}

void bench_attend(const struct cpu_kernels *kernels)
{
    static const size_t counts[] = {1, 2, 3, 4, 8, 24, 48};
    for (size_t type = 0; type < 3; type++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            bench_attend_case(kernels, type, 64, counts[i], 1, false);
    bench_attend_case(kernels, 0, 64, 1, 1024, false);
    bench_attend_case(kernels, 0, 64, 3, 1024, false);
    bench_attend_case(kernels, 0, 64, 8, 1024, false);
    bench_attend_case(kernels, 0, 64, 48, 1, true);
    bench_attend_case(kernels, 0, 128, 4, 1, false);
    bench_attend_case(kernels, 0, 128, 48, 1, false);
    bench_attend_case(kernels, 0, 256, 4, 1, false);
}

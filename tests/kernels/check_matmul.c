/* Packing and the matmul kernels. */
#include "check.h"

#include "backend/cpu/packing.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>

/* ---- Matrices as files hold them
 * ------------------------------------------------------------------------------ */

/* The f16 fields of a block: where they begin and how many. */
static const struct {
    enum tensor_type type;
    size_t halves_at, halves;
} types[] = {
    {TYPE_F32, 0, 0},
    {TYPE_F16, 0, 1},
    {TYPE_BF16, 0, 0},
    {TYPE_Q4_0, offsetof(struct block_q4_0, scale), 1},
    {TYPE_Q4_1, offsetof(struct block_q4_1, scale), 2},
    {TYPE_Q5_0, offsetof(struct block_q5_0, scale), 1},
    {TYPE_Q5_1, offsetof(struct block_q5_1, scale), 2},
    {TYPE_Q8_0, offsetof(struct block_q8_0, scale), 1},
    {TYPE_Q2_K, offsetof(struct block_q2_k, scale), 2},
    {TYPE_Q3_K, offsetof(struct block_q3_k, scale), 1},
    {TYPE_Q4_K, offsetof(struct block_q4_k, scale), 2},
    {TYPE_Q5_K, offsetof(struct block_q5_k, scale), 2},
    {TYPE_Q6_K, offsetof(struct block_q6_k, scale), 1},
    {TYPE_IQ4_NL, offsetof(struct block_iq4_nl, scale), 1},
    {TYPE_IQ4_XS, offsetof(struct block_iq4_xs, scale), 1},
    {TYPE_MXFP4, 0, 0},
};

enum { TYPES = sizeof types / sizeof *types };

/* Fully random codes, and scales that are sane or extreme. */
static uint8_t *random_matrix(size_t index, size_t rows, size_t k, bool extreme)
{
    const struct tensor_type_info *info = tensor_type_info(types[index].type);
    size_t blocks = rows * k / info->block_elements;
    uint8_t *matrix = guarded_new(blocks * info->block_bytes);
    random_bytes(matrix, blocks * info->block_bytes);
    for (size_t i = 0; i < blocks; i++) {
        uint8_t *block = matrix + i * info->block_bytes;
        for (size_t j = 0; j < types[index].halves; j++) {
            uint16_t half = random_half(extreme);
            memcpy(block + types[index].halves_at + j * 2, &half, 2);
        }
        float value = extreme ? random_extreme() : random_float();
        if (types[index].type == TYPE_F32) {
            memcpy(block, &value, 4);
        } else if (types[index].type == TYPE_BF16) {
            uint16_t half = bf16_from_f32(value);
            memcpy(block, &half, 2);
        } else if (types[index].type == TYPE_MXFP4 && !extreme) {
            block[0] = (uint8_t)(120 + block[0] % 16);
        }
    }
    return matrix;
}

static uint8_t *pack(enum tensor_type type, const uint8_t *matrix, size_t rows, size_t k)
{
    size_t tile_bytes = packing_tile_bytes(type, k), tiles = (rows + 7) / 8;
    uint8_t *packed = guarded_new(tiles * tile_bytes);
    for (size_t i = 0; i < tiles; i++)
        packing_pack_tile(type, matrix, rows, k, i * 8, packed + i * tile_bytes);
    return packed;
}

void check_packing(void)
{
    for (size_t index = 0; index < TYPES; index++) {
        const enum tensor_type type = types[index].type;
        const struct tensor_type_info *info = tensor_type_info(type);
        static const size_t all_rows[] = {1, 7, 8, 9, 24, 29};
        for (size_t i = 0; i < 12; i++) {
            const size_t rows = all_rows[i % 6], k = info->block_elements * (i % 5 + 1);
            check_begin(NULL, "packing %s, %zu rows of %zu", info->name, rows, k);
            check_that(packing_supported(type, k), "not supported");
            check_that(!packing_supported(type, 0), "a row of nothing");
            check_that(info->block_elements == 1 || !packing_supported(type, k + 8), "part of a block");
            uint8_t *matrix = random_matrix(index, rows, k, i % 2), *packed = pack(type, matrix, rows, k);
            float *want = guarded_new(k * sizeof *want), *got = guarded_new(k * sizeof *got);
            for (size_t row = 0; row < (rows + 7) / 8 * 8; row++) {
                memset(want, 0, k * sizeof *want);
                packing_read_row(type, packed, k, row, got);
                if (row < rows)
                    dequantize(type, matrix + row * (k / info->block_elements) * info->block_bytes, k, want);
                for (size_t e = 0; e < k && row >= rows; e++)
                    got[e] += 0.0f; /* a weight of zero may be -0 */
                check_same_floats("row", got, want, k);
            }
            guarded_free(got);
            guarded_free(want);
            guarded_free(packed);
            guarded_free(matrix);
        }
    }
}

/* ---- Tiles
 * ------------------------------------------------------------------------------------------------------ */

static struct q8_tile q8_tile_new(size_t k, size_t width, unsigned terms)
{
    return (struct q8_tile){guarded_new(k * width * terms), guarded_new(k / 32 * width * 4),
        guarded_new(k / 32 * width * 4), guarded_new(k / 16 * width * 4), guarded_new(k / 32 * width * 4),
        guarded_new(k / 16 * width * 4), terms};
}

static void q8_tile_free(struct q8_tile q8)
{
    guarded_free(q8.values);
    guarded_free(q8.scales);
    guarded_free(q8.sums);
    guarded_free(q8.half_sums);
    guarded_free(q8.corrections);
    guarded_free(q8.half_corrections);
}

static struct unpacked_tiles unpacked_tiles_new(size_t k, size_t rows)
{
    return (struct unpacked_tiles){
        guarded_new(k * rows), guarded_new(k / 16 * rows * 4), guarded_new(k / 16 * rows * 4)};
}

static void unpacked_tiles_free(struct unpacked_tiles tiles)
{
    guarded_free(tiles.values);
    guarded_free(tiles.scales);
    guarded_free(tiles.offsets);
}

static float *random_rows(size_t rows, size_t k, bool extreme)
{
    float *x = guarded_new(rows * k * sizeof *x);
    for (size_t i = 0; i < rows * k; i++)
        x[i] = extreme && random_bits() % 16 == 0 ? random_extreme() : random_float();
    return x;
}

/* ---- Rounding activations
 * ------------------------------------------------------------------------------------------ */

/* Element i of token t of a tile, with both terms added. */
static int tile_value(struct q8_tile q8, size_t width, size_t t, size_t i)
{
    const int8_t *at = q8.values + (i / 8 * q8.terms * width + t) * 8 + i % 8;
    size_t term = width * 8;
    if (width == WIDE_TOKENS) { /* the 32 elements of a token are adjacent */
        at = q8.values + (i / 32 * width + t) * q8.terms * 32 + i % 32;
        term = 32;
    }
    return q8.terms == 2 ? at[0] * 128 + at[term] : at[0];
}

/* Every element differs by at most half a rounding step, for every kernel. */
static void check_error(const float *x, size_t k, struct q8_tile q8, size_t width, size_t t)
{
    float worst = 0;
    for (size_t i = 0; i < k; i++) {
        float scale = q8.scales[i / 32 * width + t];
        float error = fabsf(x[i] - scale * (float)tile_value(q8, width, t, i));
        worst = fmaxf(worst, scale > 0 ? error / scale : error);
    }
    check_that(worst < 0.51F, "an element is off by more than half a step");
}

/* A mixed tile has two terms, of which every second token uses one. */
static void check_round(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t k,
    size_t width, unsigned terms, bool mixed, int kind)
{
    check_begin(kernels, "round_q8, k %zu, width %zu, %u terms%s, kind %d", k, width, terms,
        mixed ? ", mixed" : "", kind);
    float *x = random_rows(width, k, kind == 1);
    for (size_t g = 0; g < width * k / 32 && kind == 2; g++) { /* groups of all sizes, some of them zero */
        float size = g % 5 == 0 ? 0 : ldexpf(1, (int)(random_bits() % 290) - 160);
        for (size_t i = 0; i < 32; i++)
            x[g * 32 + i] *= size;
    }
    struct q8_tile got = q8_tile_new(k, width, terms), want = q8_tile_new(k, width, terms);
    for (size_t t = 0; t < width; t++) {
        const unsigned own = mixed && t % 2 == 0 ? 1 : terms;
        kernels->round_q8(x + t * k, k, own, got, width, t);
        scalar->round_q8(x + t * k, k, own, want, width, t);
        if (kind == 0 && own == terms)
            check_error(x + t * k, k, want, width, t);
    }
    check_same_bytes("values", got.values, want.values, k * width * terms);
    check_same_floats("scales", got.scales, want.scales, k / 32 * width);
    check_same_floats("sums", got.sums, want.sums, k / 32 * width);
    check_same_floats("half_sums", got.half_sums, want.half_sums, k / 16 * width);
    check_same_bytes("corrections", got.corrections, want.corrections, k / 32 * width * 4);
    check_same_bytes("half_corrections", got.half_corrections, want.half_corrections, k / 16 * width * 4);
    q8_tile_free(got);
    q8_tile_free(want);
    guarded_free(x);
}

/* ---- Quantised weights
 * ------------------------------------------------------------------------------------------------ */

struct q8_case {
    enum tensor_type type;
    size_t k, tiles;
    const uint8_t *packed;
    const float *x; /* [tile_tokens][k] */
    unsigned terms;
    bool mixed; /* tokens with one term among tokens with two */
};

/* Weight tiles times an activation tile, in one piece or in two. */
static void multiply_tile(const struct cpu_kernels *kernels, const struct q8_case *c,
    struct unpacked_tiles tile, struct q8_tile x, size_t cut, size_t stride, float *out)
{
    const size_t rows = kernels->weight_tiles * TILE_ROWS, tokens = kernels->tile_tokens;
    bool offsets;
    const unsigned group = quant_group(c->type, &offsets);
    if (kernels->matmul_begin)
        kernels->matmul_begin(group);
    if (cut) {
        kernels->matmul_q8(tile, cut, group, offsets, x, true, stride, out);
        tile.values += cut * rows;
        tile.scales += cut / group * rows;
        tile.offsets += cut / group * rows;
        x = q8_tile_from(x, cut * tokens * x.terms, cut / 32 * tokens, cut / 16 * tokens);
    }
    kernels->matmul_q8(tile, c->k - cut, group, offsets, x, cut == 0, stride, out);
    if (kernels->matmul_end)
        kernels->matmul_end();
}

/* Compares tile `index` with the same tile unpacked by the scalar table. */
static void check_unpacked(const struct cpu_kernels *kernels, struct unpacked_tiles got,
    struct unpacked_tiles want, size_t index, const struct q8_case *c)
{
    bool offsets;
    const size_t group = quant_group(c->type, &offsets), rows = kernels->weight_tiles * TILE_ROWS;
    bool same = true;
    for (size_t i = 0; i < c->k * TILE_ROWS; i++) {
        const size_t octet = i / 64, row = i / 8 % 8, e = i % 8;
        const size_t at = kernels->weight_tiles == 1
                              ? i
                              : ((octet * 2 + e / 4) * rows + index * TILE_ROWS + row) * 4 + e % 4;
        same &= got.values[at] == want.values[i];
    }
    check_that(same, "unpacked codes differ");
    for (size_t i = 0; i < c->k / group; i++) {
        const size_t at = i * rows + index * TILE_ROWS;
        check_same_floats("unpacked scales", got.scales + at, want.scales + i * TILE_ROWS, TILE_ROWS);
        check_same_floats("unpacked offsets", got.offsets + at, want.offsets + i * TILE_ROWS, TILE_ROWS);
    }
}

/* If the last tile is missing, the first one is there twice. */
static void check_tiles(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar,
    const struct q8_case *c, struct q8_tile x, const float *want)
{
    const size_t tokens = kernels->tile_tokens, tiles = kernels->weight_tiles, rows = tiles * TILE_ROWS;
    const size_t all_rows = c->tiles * TILE_ROWS, tile_bytes = packing_tile_bytes(c->type, c->k);
    struct unpacked_tiles unpacked = unpacked_tiles_new(c->k, rows),
                          tile = unpacked_tiles_new(c->k, TILE_ROWS);
    for (size_t i = 0; i < c->tiles; i += tiles) {
        const size_t live = c->tiles - i < tiles ? c->tiles - i : tiles;
        for (size_t j = 0; j < tiles; j++) {
            const uint8_t *from = c->packed + (i + (j < live ? j : 0)) * tile_bytes;
            scalar->unpack_q8[c->type](from, c->k, tile, 0);
            kernels->unpack_q8[c->type](from, c->k, unpacked, (unsigned)j);
            check_unpacked(kernels, unpacked, tile, j, c);
        }
        for (size_t cut = 0; cut < c->k; cut += c->k >= 64 ? c->k / 64 * 32 : c->k) {
            const size_t stride = rows + i % 2 * TILE_ROWS; /* with and without a gap between rows */
            float *out = guarded_new(((tokens - 1) * stride + rows) * sizeof *out);
            multiply_tile(kernels, c, unpacked, x, cut, stride, out);
            for (size_t t = 0; t < tokens; t++)
                check_same_floats(cut ? "matmul in two parts" : "matmul", out + t * stride,
                    want + t * all_rows + i * TILE_ROWS, live * TILE_ROWS);
            guarded_free(out);
        }
    }
    unpacked_tiles_free(unpacked);
    unpacked_tiles_free(tile);
}

/* Two and four tokens times packed tiles. */
static void check_packed(
    const struct cpu_kernels *kernels, const struct q8_case *c, struct q8_tile x, const float *want)
{
    const size_t rows = c->tiles * TILE_ROWS;
    for (unsigned tokens = 2; kernels->matmul_packed[c->type] && tokens <= QUAD; tokens += 2) {
        float *out = guarded_new(tokens * rows * sizeof *out);
        kernels->matmul_packed[c->type](c->packed, c->tiles, c->k, x, tokens, out);
        check_same_floats("matmul of packed tiles", out, want, tokens * rows);
        guarded_free(out);
    }
}

static void check_q8(
    const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, const struct q8_case *c)
{
    const size_t k = c->k, rows = c->tiles * TILE_ROWS, tokens = kernels->tile_tokens;
    struct q8_tile single = q8_tile_new(k, 1, c->terms), x = q8_tile_new(k, tokens, c->terms);
    float *want = guarded_new(tokens * rows * sizeof *want), *got = guarded_new(rows * sizeof *got);
    for (size_t t = 0; t < tokens; t++) {
        const unsigned terms = c->mixed && t % 2 ? 1 : c->terms;
        single.terms = terms;
        scalar->round_q8(c->x + t * k, k, terms, single, 1, 0);
        scalar->round_q8(c->x + t * k, k, terms, x, tokens, t);
        scalar->matvec_q8[c->type](c->packed, c->tiles, k, single, want + t * rows);
        kernels->matvec_q8[c->type](c->packed, c->tiles, k, single, got);
        check_same_floats("matvec", got, want + t * rows, rows);
    }
    check_tiles(kernels, scalar, c, x, want);
    check_packed(kernels, c, x, want);
    q8_tile_free(single);
    q8_tile_free(x);
    guarded_free(want);
    guarded_free(got);
}

/* ---- Float weights
 * ----------------------------------------------------------------------------------------------------- */

static void check_float(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar,
    enum tensor_type type, const uint8_t *packed, size_t tiles, size_t k, const float *x)
{
    const size_t rows = tiles * TILE_ROWS;
    float *want = guarded_new(OCTET * rows * 4), *got = guarded_new(rows * 4);
    float *octet = guarded_new(OCTET * k * 4), *tile = guarded_new(TILE_ROWS * k * 4),
          *want_tile = guarded_new(TILE_ROWS * k * 4);
    for (size_t t = 0; t < OCTET; t++) {
        scalar->matvec_float[type](packed, tiles, k, x + t * k, want + t * rows);
        kernels->matvec_float[type](packed, tiles, k, x + t * k, got);
        check_same_floats("matvec", got, want + t * rows, rows);
        for (size_t i = 0; i < k; i++)
            octet[i * OCTET + t] = type == TYPE_F16 ? f16_rounded(x[t * k + i]) : x[t * k + i];
    }
    for (size_t i = 0; i < tiles; i++) {
        scalar->unpack_float[type](packed + i * packing_tile_bytes(type, k), k, want_tile);
        kernels->unpack_float[type](packed + i * packing_tile_bytes(type, k), k, tile);
        check_same_floats("unpacked", tile, want_tile, k * TILE_ROWS);
        for (size_t cut = 0; cut < k; cut += k >= 64 ? k / 64 * 32 : k) { /* whole groups */
            float *out = guarded_new(OCTET * TILE_ROWS * sizeof *out);
            if (cut)
                kernels->matmul_float(tile, cut, octet, true, out);
            kernels->matmul_float(tile + cut * TILE_ROWS, k - cut, octet + cut * OCTET, cut == 0, out);
            for (size_t t = 0; t < OCTET; t++)
                check_same_floats(cut ? "matmul in two parts" : "matmul", out + t * TILE_ROWS,
                    want + t * rows + i * TILE_ROWS, TILE_ROWS);
            guarded_free(out);
        }
    }
    guarded_free(want);
    guarded_free(got);
    guarded_free(octet);
    guarded_free(tile);
    guarded_free(want_tile);
}

/* ---- All of them
 * ---------------------------------------------------------------------------------------------------------
 */

static void check_shape(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t index,
    size_t tiles, size_t k, bool extreme)
{
    const enum tensor_type type = types[index].type;
    check_begin(kernels, "%s, %zu tiles, k %zu%s", tensor_type_info(type)->name, tiles, k,
        extreme ? ", extreme" : "");
    size_t rows = tiles * TILE_ROWS - random_bits() % TILE_ROWS;
    uint8_t *matrix = random_matrix(index, rows, k, extreme), *packed = pack(type, matrix, rows, k);
    float *x = random_rows(WIDE_TOKENS, k, extreme);
    for (unsigned terms = 1; kernels->matvec_q8[type] && terms <= 2; terms++)
        check_q8(
            kernels, scalar, &(struct q8_case){type, k, tiles, packed, x, terms, terms == 2 && !extreme});
    if (!kernels->matvec_q8[type])
        check_float(kernels, scalar, type, packed, tiles, k, x);
    guarded_free(x);
    guarded_free(packed);
    guarded_free(matrix);
}

void check_matmul(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar)
{
    for (size_t k = 32; k <= 320; k += 96) {
        for (int kind = 0; kind < 3; kind++) {
            for (int way = 0; way < 3; way++) { /* one term, two terms, both */
                const bool mixed = way == 2;
                const unsigned terms = way ? 2 : 1;
                check_round(kernels, scalar, k, 1, terms, mixed, kind);
                check_round(kernels, scalar, k, kernels->tile_tokens, terms, mixed, kind);
            }
        }
    }
    static const size_t widths[] = {1, 8, 32, 40, 64, 65, 96, 256, 512, 576, 1536};
    for (size_t index = 0; index < TYPES; index++) {
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            if (!packing_supported(types[index].type, widths[i]))
                continue;
            for (size_t tiles = 1; tiles <= (widths[i] < 100 ? 5 : 2); tiles++) {
                check_shape(kernels, scalar, index, tiles, widths[i], false);
                check_shape(kernels, scalar, index, tiles, widths[i], true);
            }
        }
    }
}

/* ---- Times
 * -----------------------------------------------------------------------------------------------------------------
 */

enum { BENCH_K = 1536, BENCH_ROWS = 64, STREAM_TILES = 96 * 1024 / TILE_ROWS };

struct bench_case {
    const struct cpu_kernels *kernels;
    enum tensor_type type;
    size_t tiles;
    unsigned tokens; /* of matmul_packed */
    const uint8_t *matrix;
    uint8_t *packed;
    const float *x;
    struct q8_tile single, q8; /* the first terms of two are good for one */
    struct unpacked_tiles tile;
    float *out, *floats;
};

static void call_matvec(void *argument)
{
    struct bench_case *b = argument;
    if (b->kernels->matvec_q8[b->type])
        b->kernels->matvec_q8[b->type](b->packed, b->tiles, BENCH_K, b->single, b->out);
    else
        b->kernels->matvec_float[b->type](b->packed, b->tiles, BENCH_K, b->x, b->out);
}

static void call_pack(void *argument)
{
    struct bench_case *b = argument;
    for (size_t i = 0; i < BENCH_ROWS; i += TILE_ROWS)
        packing_pack_tile(b->type, b->matrix, BENCH_ROWS, BENCH_K, i,
            b->packed + i / TILE_ROWS * packing_tile_bytes(b->type, BENCH_K));
}

static void call_unpack(void *argument)
{
    struct bench_case *b = argument;
    if (b->kernels->matvec_q8[b->type])
        b->kernels->unpack_q8[b->type](b->packed, BENCH_K, b->tile, 0);
    else
        b->kernels->unpack_float[b->type](b->packed, BENCH_K, b->floats);
}

static void call_matmul(void *argument)
{
    struct bench_case *b = argument;
    bool offsets;
    unsigned group = quant_group(b->type, &offsets);
    const size_t stride = (size_t)b->kernels->weight_tiles * TILE_ROWS;
    if (group) {
        if (b->kernels->matmul_begin)
            b->kernels->matmul_begin(group);
        b->kernels->matmul_q8(b->tile, BENCH_K, group, offsets, b->q8, true, stride, b->out);
        if (b->kernels->matmul_end)
            b->kernels->matmul_end();
    } else
        b->kernels->matmul_float(b->floats, BENCH_K, b->x, true, b->out);
}

static void call_packed(void *argument)
{
    struct bench_case *b = argument;
    b->kernels->matmul_packed[b->type](b->packed, b->tiles, BENCH_K, b->q8, b->tokens, b->out);
}

static void call_round(void *argument)
{
    struct bench_case *b = argument;
    b->kernels->round_q8(b->x, BENCH_K, b->single.terms, b->single, 1, 0);
}

static void bench_one(
    const char *name, void (*call)(void *), struct bench_case *b, double amount, const char *unit)
{
    char full[40];
    snprintf(full, sizeof full, "%s %s%s", name, tensor_type_info(b->type)->name,
        b->single.terms == 2 ? " q15" : "");
    if (bench_wanted(full))
        bench_print(b->kernels, full, amount, unit, bench(call, b));
}

/* matvec: from the cache, and as a stream from memory; the rest from the cache. */
void bench_matmul(const struct cpu_kernels *kernels)
{
    const size_t tokens = kernels->tile_tokens, rows = kernels->weight_tiles * TILE_ROWS;
    struct bench_case b = {.kernels = kernels,
        .x = random_rows(WIDE_TOKENS, BENCH_K, false),
        .single = q8_tile_new(BENCH_K, 1, 2),
        .q8 = q8_tile_new(BENCH_K, tokens, 2),
        .tile = unpacked_tiles_new(BENCH_K, rows),
        .out = guarded_new(STREAM_TILES * TILE_ROWS * sizeof(float)),
        .floats = guarded_new(BENCH_K * TILE_ROWS * sizeof(float))};
    kernels->round_q8(b.x, BENCH_K, 2, b.single, 1, 0);
    for (size_t t = 0; t < tokens; t++)
        kernels->round_q8(b.x + t * BENCH_K, BENCH_K, 2, b.q8, tokens, t);
    if (bench_wanted("round_q8"))
        bench_print(kernels, "round_q8", BENCH_K, "G elements/s", bench(call_round, &b));
    for (size_t index = 0; index < TYPES; index++) {
        b.type = types[index].type;
        const size_t tile_bytes = packing_tile_bytes(b.type, BENCH_K),
                     stream = ((size_t)128 << 20) / tile_bytes;
        uint8_t *matrix = random_matrix(index, BENCH_ROWS, BENCH_K, false);
        b.matrix = matrix;
        b.packed = guarded_new(stream * tile_bytes);
        call_pack(&b);
        for (size_t i = BENCH_ROWS / TILE_ROWS; i < stream; i++)
            memcpy(
                b.packed + i * tile_bytes, b.packed + i % (BENCH_ROWS / TILE_ROWS) * tile_bytes, tile_bytes);
        if (strcmp(kernels->name, "scalar") == 0)
            bench_one("pack", call_pack, &b, (double)BENCH_K * BENCH_ROWS, "G elements/s");
        bench_one("unpack", call_unpack, &b, (double)BENCH_K * TILE_ROWS, "G elements/s");
        call_unpack(&b);
        for (unsigned terms = 1; terms <= (kernels->matvec_q8[b.type] ? 2 : 1); terms++) {
            b.single.terms = b.q8.terms = terms;
            b.tiles = ((size_t)256 << 10) / tile_bytes;
            bench_one("matvec", call_matvec, &b, (double)(b.tiles * tile_bytes), "GB/s");
            for (b.tokens = 2; kernels->matmul_packed[b.type] && b.tokens <= QUAD; b.tokens += 2)
                bench_one(b.tokens == 2 ? "matmul-packed-2" : "matmul-packed-4", call_packed, &b,
                    (double)(b.tokens * b.tiles * TILE_ROWS * BENCH_K), "GMAC/s");
            b.tiles = stream < STREAM_TILES ? stream : STREAM_TILES;
            bench_one("matvec-stream", call_matvec, &b, (double)(b.tiles * tile_bytes), "GB/s");
            bench_one("matmul", call_matmul, &b,
                (double)BENCH_K * (double)(kernels->matvec_q8[b.type] ? tokens * rows : OCTET * TILE_ROWS),
                "GMAC/s");
        }
        b.single.terms = b.q8.terms = 1;
        guarded_free(b.packed);
        guarded_free(matrix);
    }
}

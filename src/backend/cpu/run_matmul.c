/*
 * Matmul groups. Four or eight rows are multiplied together with a tile that is unpacked once. Rows that do
 * not fill such a tile are multiplied one by one with packed tiles, which costs less than computing the
 * missing rows. In steps with few rows, matmul_packed multiplies two or four at once with packed tiles,
 * which are unpacked in registers. All add in the same order, so the results of a row do not depend on the
 * rows beside it.
 */
#include "backend/cpu/executor.h"

#include "backend/cpu/packing.h"

#include <math.h>
#include <string.h>

/* Bytes of rounded activations that are multiplied with one tile: they should stay in the L2 cache. */
static const size_t activation_bytes = 512 * 1024;
static const size_t tile_cache_bytes = 64 * 1024;

static uint32_t tiles_of(const struct executor *executor, const struct op *op)
{
    return (uint32_t)((executor->program->buffers[op->inputs[0]].rows + TILE_ROWS - 1) / TILE_ROWS);
}

static const struct op *matmul_of(const struct executor *executor, const struct group *group, uint32_t index)
{
    return &executor->program->ops[group->first_op + group->ops_before + index];
}

/* The tiles of all matmuls; with a glu, gate and up are computed together and counted once. */
static uint32_t count_tiles(const struct executor *executor, const struct group *group)
{
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < (group->glu ? 1 : group->matmuls); i++)
        tiles += tiles_of(executor, matmul_of(executor, group, i));
    return tiles;
}

/*
 * The tasks of a group. Few rows: a few tasks per thread, of adjacent tiles, balance the load when a thread
 * is descheduled; more tasks cost more than they gain.
 *
 * Many rows in wide tiles: a task is a unit, some weight tiles for all rows. Units that do not fill a round
 * of all threads are divided by rows, so that no thread waits for the others long.
 */
struct division {
    uint32_t tiles;
    uint32_t unit;   /* tiles */
    uint32_t rounds; /* tasks of each thread; 0: there are few rows */
    uint32_t whole;  /* units that are not divided */
    uint32_t parts;  /* of each of the others */
    uint32_t rows;   /* of a part */
};

enum { TASKS_PER_THREAD = 4, LEAST_PART_ROWS = 64 };

static uint32_t divided_up(uint32_t count, uint32_t by)
{
    return (count + by - 1) / by;
}

static bool has_many_rows(const struct executor *executor, const struct group *group)
{
    return group->rounding == ROUNDING_Q8 && executor->kernels->weight_tiles > 1 &&
           executor->live[group->rows] >= LEAST_PART_ROWS;
}

/* The number of parts that `units` are divided into for the shortest time. Each part unpacks its tiles, which
 * takes a twentieth of the time of a unit with 512 rows. */
static uint32_t best_parts(uint32_t units, uint32_t threads, uint32_t rows)
{
    enum { PRODUCTS = 20, UNPACKING = 1 };
    uint32_t best = 1, least = UINT32_MAX;
    for (uint32_t parts = 1; parts == 1 || parts <= rows / LEAST_PART_ROWS; parts *= 2) {
        const uint32_t time = divided_up(units * parts, threads) * (PRODUCTS / parts + UNPACKING);
        best = time < least ? parts : best;
        least = time < least ? time : least;
    }
    return best;
}

static struct division divide(const struct executor *executor, const struct group *group)
{
    const uint32_t threads = team_threads(executor->team), live = executor->live[group->rows];
    struct division division = {.tiles = count_tiles(executor, group)};
    if (!has_many_rows(executor, group))
        return division;
    const uint32_t step = executor->kernels->weight_tiles, steps = divided_up(division.tiles, step),
                   wanted = threads == 1 ? steps : steps / (threads * TASKS_PER_THREAD);
    division.unit = (wanted ? wanted : 1) * step;
    const uint32_t units = divided_up(division.tiles, division.unit), rest = units % threads;
    division.whole = units - rest;
    division.parts = best_parts(rest, threads, live);
    division.rows = divided_up(divided_up(live, division.parts), WIDE_TOKENS) * WIDE_TOKENS;
    division.rounds = division.whole / threads + divided_up(rest * division.parts, threads);
    return division;
}

static uint32_t tasks_of_few_rows(uint32_t tiles, uint32_t threads)
{
    const uint32_t most = threads == 1 ? 1 : threads * TASKS_PER_THREAD, tasks = tiles < most ? tiles : most;
    return tasks ? tasks : 1; /* never 0; clang-tidy does not know that there are tiles */
}

/* The tiles and rows of a task; there may be none. */
struct piece {
    uint32_t begin, end, first_row, end_row;
};

static struct piece piece_of(const struct executor *executor, const struct group *group, uint32_t task)
{
    const struct division division = divide(executor, group);
    const uint32_t threads = team_threads(executor->team), live = executor->live[group->rows];
    struct piece piece = {.end_row = live};
    if (!division.rounds) {
        const uint64_t tiles = division.tiles, tasks = tasks_of_few_rows(division.tiles, threads);
        piece.begin = (uint32_t)(tiles * task / tasks);
        piece.end = (uint32_t)(tiles * (task + 1) / tasks);
        return piece;
    }
    const uint32_t number = task % division.rounds * threads + task / division.rounds;
    uint32_t unit = number;
    if (number >= division.whole) {
        const uint32_t part = (number - division.whole) % division.parts;
        unit = division.whole + (number - division.whole) / division.parts;
        piece.first_row = part * division.rows;
        piece.end_row = piece.first_row + division.rows < live ? piece.first_row + division.rows : live;
    }
    piece.begin = unit * division.unit;
    piece.end = piece.begin + division.unit < division.tiles ? piece.begin + division.unit : division.tiles;
    return piece;
}

uint32_t matmul_tasks(const struct executor *executor, const struct group *group)
{
    const struct division division = divide(executor, group);
    const uint32_t threads = team_threads(executor->team);
    if (!executor->live[group->rows])
        return 0;
    return division.rounds ? division.rounds * threads : tasks_of_few_rows(division.tiles, threads);
}

/* Runs the ops that each thread repeats for itself, and rounds their results. */
void matmul_enter(struct executor *executor, const struct group *group, uint32_t thread)
{
    if (executor->plan->capacity[ROWS_TOKENS] != 1)
        return; /* the row group before has done it */
    for (uint32_t i = 0; i < group->ops_before; i++)
        rows_run_op(executor, &executor->program->ops[group->first_op + i], 0, thread);
    for (uint32_t i = 0; i < group->rounded_count; i++) {
        buffer_id source = group->rounded_inputs[i];
        struct q8_tile *q8 = &executor->scratch[thread].x[i];
        q8->terms = row_terms(executor, group->fine_inputs >> i & 1, group->rows, 0);
        executor->kernels->round_q8(row_of(executor, source, 0, thread),
            executor->program->buffers[source].columns, q8->terms, *q8, 1, 0);
    }
}

/* The rounded row that a matmul reads. */
static struct q8_tile tile_of(const struct executor *executor, const struct group *group, const struct op *op,
    uint32_t row, uint32_t thread)
{
    uint32_t i = 0;
    if (executor->plan->capacity[ROWS_TOKENS] != 1)
        return row_tile(
            executor, op->matmul.fine, group->rows, row, executor->program->buffers[op->inputs[0]].columns);
    while (group->rounded_inputs[i] != op->inputs[1])
        i++;
    return executor->scratch[thread].x[i];
}

static void multiply_one_row(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t count, uint32_t row, uint32_t thread, float *sums)
{
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct weight *packed = &executor->weights[op->inputs[0]];
    const uint8_t *tiles = packed->tiles + tile * packed->tile_bytes;
    const bool single = executor->plan->capacity[ROWS_TOKENS] == 1;
    if (op->matmul.rounding == ROUNDING_Q8) {
        executor->kernels->matvec_q8[weight->type](
            tiles, count, weight->columns, tile_of(executor, group, op, row, thread), sums);
    } else {
        executor->kernels->matvec_float[weight->type](tiles, count, weight->columns,
            single ? row_of(executor, op->inputs[1], 0, thread) : executor->float_x + row * weight->columns,
            sums);
    }
}

static void add_bias(
    const struct executor *executor, const struct op *op, size_t column, size_t columns, float *sums)
{
    if (op->inputs[2] == NO_BUFFER)
        return;
    const float *bias = executor->weights[op->inputs[2]].vector + column;
    for (size_t i = 0; i < columns; i++)
        sums[i] += bias[i];
}

static void activate(const struct executor *executor, const struct op *op, size_t columns, float *sums)
{
    switch (op->matmul.activation) {
    case ACTIVATION_TANH:
        executor->kernels->tanh_f32(columns, sums);
        break;
    case ACTIVATION_SIGMOID:
        executor->kernels->sigmoid(columns, sums);
        break;
    case ACTIVATION_RELU_SQUARED:
        executor->kernels->relu_squared(columns, sums);
        break;
    case ACTIVATION_DECAY:
        executor->kernels->decay(columns, sums);
        break;
    default:
        break;
    }
}

/*
 * Turns the sums of some tiles for rows first .. end-1, [row][width], into columns of the output: adds
 * the bias, accumulates, or applies the glu.
 */
static void finish_tiles(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t tiles, float *const sums[2], size_t width, uint32_t first, uint32_t end,
    uint32_t thread)
{
    const struct op *glu = group->glu ? matmul_of(executor, group, 2) : NULL;
    const buffer_id target = glu ? glu->out : op->out;
    const size_t stride = executor->program->buffers[target].columns, column = (size_t)tile * TILE_ROWS;
    const size_t wanted = (size_t)tiles * TILE_ROWS,
                 columns = stride - column < wanted ? stride - column : wanted;
    float *out = row_of(executor, target, first, thread) + column;
    for (size_t i = 0; i < end - first; i++, out += stride) {
        add_bias(executor, op, column, columns, sums[0] + i * width);
        activate(executor, op, columns, sums[0] + i * width);
        if (glu) {
            add_bias(executor, matmul_of(executor, group, 1), column, columns, sums[1] + i * width);
            (glu->glu.activation == ACTIVATION_GELU
                    ? executor->kernels->glu_gelu
                    : executor->kernels->glu_silu)(sums[0] + i * width, sums[1] + i * width, columns, out);
        } else if (op->matmul.accumulate) {
            executor->kernels->add(sums[0] + i * width, columns, out);
        } else if (columns % TILE_ROWS == 0 &&
                   columns <= 2 * TILE_ROWS) { /* memcpy of a constant size is inlined */
            for (size_t j = 0; j < columns; j += TILE_ROWS)
                memcpy(out + j, sums[0] + i * width + j, TILE_ROWS * sizeof *out);
        } else {
            memcpy(out, sums[0] + i * width, columns * sizeof *out);
        }
    }
}

enum { TILES_AT_ONCE = 64 };

/* At most TILES_AT_ONCE tiles. */
static void work_on_one_row(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t count, uint32_t row, uint32_t thread)
{
    float gate[TILES_AT_ONCE * TILE_ROWS], up[TILES_AT_ONCE * TILE_ROWS];
    multiply_one_row(executor, group, op, tile, count, row, thread, gate);
    if (group->glu)
        multiply_one_row(executor, group, matmul_of(executor, group, 1), tile, count, row, thread, up);
    finish_tiles(executor, group, op, tile, count, (float *const[]){gate, up}, (size_t)count * TILE_ROWS, row,
        row + 1, thread);
}

/* The unpacked tiles from number `tile` on, a multiple of weight_tiles. */
static struct unpacked_tiles tiles_from(struct unpacked_tiles tiles, uint32_t tile, size_t k, unsigned group)
{
    const size_t elements = (size_t)tile * TILE_ROWS * k;
    tiles.values += elements;
    tiles.scales += elements / group;
    tiles.offsets += elements / group;
    return tiles;
}

/* Weight tiles times rows first .. end-1 into sums [row - first][stride], in parts of K. */
static void multiply_rows_q8(struct executor *executor, const struct op *op, uint32_t tile, uint32_t tiles,
    uint32_t first, uint32_t end, struct unpacked_tiles unpacked, size_t stride, float *sums)
{
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct weight *packed = &executor->weights[op->inputs[0]];
    const struct cpu_kernels *kernels = executor->kernels;
    const size_t k = weight->columns;
    const uint32_t step = kernels->weight_tiles;
    bool offsets;
    const unsigned group = quant_group(weight->type, &offsets);
    if (kernels->matmul_begin)
        kernels->matmul_begin(group);
    for (size_t part = 0; part < k; part += K_PART) {
        size_t now = k - part < K_PART ? k - part : K_PART;
        const uint8_t *at =
            packed->tiles + tile * packed->tile_bytes + packing_tile_bytes(weight->type, part);
        for (uint32_t i = 0; i < stride / TILE_ROWS; i++) /* if one is missing, another is there twice */
            kernels->unpack_q8[weight->type](at + (i < tiles ? i : 0) * packed->tile_bytes, now,
                tiles_from(unpacked, i / step * step, now, group), i % step);
        for (uint32_t row = first; row < end; row += kernels->tile_tokens) {
            const struct q8_tile x = tokens_tile(executor, op->matmul.fine, op->rows, row, k, part);
            float *out = sums + (row - first) * stride;
            for (uint32_t i = 0; i < tiles; i += step)
                kernels->matmul_q8(tiles_from(unpacked, i, now, group), now, group, offsets, x, part == 0,
                    stride, out + (size_t)i * TILE_ROWS);
        }
    }
    if (kernels->matmul_end)
        kernels->matmul_end();
}

static void multiply_rows_float(struct executor *executor, const struct op *op, uint32_t tile, uint32_t first,
    uint32_t end, float *unpacked, float *sums)
{
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct weight *packed = &executor->weights[op->inputs[0]];
    const size_t k = weight->columns;
    for (size_t part = 0; part < k; part += K_PART) {
        size_t now = k - part < K_PART ? k - part : K_PART;
        executor->kernels->unpack_float[weight->type](
            packed->tiles + tile * packed->tile_bytes + packing_tile_bytes(weight->type, part), now,
            unpacked);
        for (uint32_t row = first; row < end; row += OCTET)
            executor->kernels->matmul_float(unpacked, now, executor->float_x + row * k + part * OCTET,
                part == 0, sums + (size_t)(row - first) * TILE_ROWS);
    }
}

/* The activation tile of row `first`, a multiple of QUAD, from that row on. */
static struct q8_tile tokens_from(const struct executor *executor, const struct op *op, uint32_t first)
{
    const uint32_t width = executor->kernels->tile_tokens, skipped = first % width;
    const struct q8_tile x = tokens_tile(executor, op->matmul.fine, op->rows, first - skipped,
        executor->program->buffers[op->inputs[0]].columns, 0);
    return q8_tile_from(x, skipped * q8_steps(x.terms, width).token, skipped, skipped);
}

/* At most QUAD rows of one activation tile, and at most TILES_AT_ONCE tiles. */
static void work_on_packed_tiles(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t count, uint32_t first, uint32_t end, uint32_t thread)
{
    float gate[QUAD * TILES_AT_ONCE * TILE_ROWS], up[QUAD * TILES_AT_ONCE * TILE_ROWS];
    float *const sums[] = {gate, up};
    for (uint32_t i = 0; i < (group->glu ? 2 : 1); i++) {
        const struct op *matrix = group->glu ? matmul_of(executor, group, i) : op;
        const struct program_buffer *weight = &executor->program->buffers[matrix->inputs[0]];
        const struct weight *packed = &executor->weights[matrix->inputs[0]];
        executor->kernels->matmul_packed[weight->type](packed->tiles + tile * packed->tile_bytes, count,
            weight->columns, tokens_from(executor, matrix, first), end - first > 2 ? QUAD : 2, sums[i]);
    }
    finish_tiles(executor, group, op, tile, count, sums, (size_t)count * TILE_ROWS, first, end, thread);
}

static void work_on_tiles(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t tiles, uint32_t first, uint32_t end, uint32_t thread)
{
    struct scratch *scratch = &executor->scratch[thread];
    const uint32_t step = group->rounding == ROUNDING_Q8 ? executor->kernels->weight_tiles : 1;
    const size_t width = (size_t)(tiles + step - 1) / step * step * TILE_ROWS;
    for (uint32_t i = 0; i < (group->glu ? 2 : 1); i++) {
        const struct op *matrix = group->glu ? matmul_of(executor, group, i) : op;
        if (group->rounding == ROUNDING_Q8) {
            multiply_rows_q8(
                executor, matrix, tile, tiles, first, end, scratch->tiles[i], width, scratch->sums[i]);
        } else {
            multiply_rows_float(
                executor, matrix, tile, first, end, scratch->float_tiles[i], scratch->sums[i]);
        }
    }
    finish_tiles(executor, group, op, tile, tiles, scratch->sums, width, first, end, thread);
}

/* The number of tiles for work_on_tiles. */
static uint32_t tiles_together(const struct executor *executor, const struct op *op)
{
    const size_t columns = executor->program->buffers[op->inputs[0]].columns,
                 k = columns < K_PART ? columns : K_PART, tiles = NARROW_ELEMENTS / TILE_ROWS / k;
    if (executor->kernels->wide_together)
        return executor->kernels->wide_together;
    return tiles < TILES_TOGETHER ? (uint32_t)tiles : TILES_TOGETHER;
}

/* Tiles that several rows read one after the other: they should stay in the first-level cache. Wide tables
 * multiply two tiles together, and would multiply the last of an odd number twice. */
static uint32_t tiles_in_cache(const struct executor *executor, const struct op *op)
{
    const size_t tiles = tile_cache_bytes / executor->weights[op->inputs[0]].tile_bytes;
    return tiles < 4 ? 4 : tiles < TILES_AT_ONCE ? (uint32_t)tiles / 2 * 2 : TILES_AT_ONCE;
}

/* Whether the rows in tiles of several tokens are multiplied with packed weight tiles. */
static bool uses_packed(
    const struct executor *executor, const struct group *group, const struct op *op, uint32_t tiled_end)
{
    const enum tensor_type type = executor->program->buffers[op->inputs[0]].type;
    return group->rounding == ROUNDING_Q8 && tiled_end <= (tensor_type_info(type)->block_elements > GROUP
                                                                  ? executor->kernels->packed_large_tokens
                                                                  : executor->kernels->packed_tokens);
}

static void work_on_rows(struct executor *executor, const struct group *group, const struct op *op,
    struct piece piece, uint32_t thread)
{
    const uint32_t tile = piece.begin, count = piece.end - piece.begin;
    const uint32_t live = executor->live[group->rows],
                   tiled_end = tiled_rows(executor, live, group->rounding);
    const bool integers = group->rounding == ROUNDING_Q8;
    const uint32_t unpacked_end = uses_packed(executor, group, op, tiled_end) ? 0 : tiled_end;
    const uint32_t together = integers ? tiles_together(executor, op) : 1;
    const size_t row_bytes =
        executor->program->buffers[op->inputs[1]].columns * (integers ? 1 : sizeof(float));
    const uint32_t at_once = live == 1 ? TILES_AT_ONCE : tiles_in_cache(executor, op);
    uint32_t block = (uint32_t)(activation_bytes / row_bytes) / WIDE_TOKENS * WIDE_TOKENS;
    block = block < WIDE_TOKENS ? WIDE_TOKENS : block;
    for (uint32_t first = piece.first_row; first < piece.end_row; first += block) {
        const uint32_t end = first + block < piece.end_row ? first + block : piece.end_row;
        for (uint32_t begin = tile; begin < tile + count; begin += at_once) {
            const uint32_t tiles = tile + count - begin < at_once ? tile + count - begin : at_once;
            for (uint32_t i = begin; first < unpacked_end && i < begin + tiles; i += together) {
                work_on_tiles(executor, group, op, i,
                    begin + tiles - i < together ? begin + tiles - i : together, first,
                    end < unpacked_end ? end : unpacked_end, thread);
            }
            for (uint32_t row = first < unpacked_end ? unpacked_end : first; row < end && row < tiled_end;
                 row += QUAD) {
                const uint32_t last = end < tiled_end ? end : tiled_end;
                work_on_packed_tiles(
                    executor, group, op, begin, tiles, row, row + QUAD < last ? row + QUAD : last, thread);
            }
            for (uint32_t row = first < tiled_end ? tiled_end : first; row < end; row++)
                work_on_one_row(executor, group, op, begin, tiles, row, thread);
        }
    }
}

void matmul_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    const struct piece piece = piece_of(executor, group, task);
    uint32_t first = 0; /* first tile of this matmul */
    for (uint32_t i = 0; task == 0 && i < group->ops_before; i++) {
        const struct op *op = &executor->program->ops[group->first_op + i];
        if (op->kind == OP_TOKEN_SHIFT) /* every thread has the row, one stores it */
            recurrent_store_row(executor, op, 0, thread);
    }
    for (uint32_t i = 0; i < (group->glu ? 1 : group->matmuls); i++) {
        const struct op *op = matmul_of(executor, group, i);
        const uint32_t last = first + tiles_of(executor, op);
        struct piece own = piece; /* the tiles of this matmul */
        own.begin = (piece.begin > first ? piece.begin : first) - first;
        own.end = piece.end < last ? piece.end : last;
        own.end = own.end > first ? own.end - first : 0;
        if (own.begin < own.end)
            work_on_rows(executor, group, op, own, thread);
        first = last;
    }
}

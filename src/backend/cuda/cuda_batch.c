#include "backend/cuda/cuda_batch.h"

#include "backend/cuda/weight_tiles.h"
#include "base/tensor_type.h"
#include "program/op.h"

/* ---- Packed inputs ---- */

static size_t round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

struct packed_input_layout {
    size_t scales, sums, seconds, bytes;
};

static struct packed_input_layout layout_of(uint32_t rounding, size_t columns, size_t capacity)
{
    const size_t element = rounding == ROUNDING_F32 ? 4 : rounding == ROUNDING_F16 ? 2 : 1;
    const size_t values = round_up(capacity * columns * element, 256);
    struct packed_input_layout layout = {values, values, values, values};
    if (rounding == ROUNDING_Q8) {
        layout.sums = layout.scales + round_up(capacity * columns / 32 * sizeof(float), 256);
        layout.seconds = layout.sums + round_up(capacity * columns / 16 * sizeof(float), 256);
        layout.bytes = layout.seconds + values;
    }
    return layout;
}

size_t cuda_packed_input_bytes(uint32_t rounding, uint32_t columns, uint32_t capacity)
{
    return layout_of(rounding, round_up(columns, CUDA_TILE_COLUMNS), round_up(capacity, 8)).bytes;
}

struct cuda_packed_input cuda_packed_input_at(
    uint32_t rounding, uint32_t columns, uint32_t capacity, uint64_t base)
{
    const size_t padded = round_up(columns, CUDA_TILE_COLUMNS);
    const struct packed_input_layout layout = layout_of(rounding, padded, capacity);
    return (struct cuda_packed_input){.values = base,
        .scales = base + layout.scales,
        .sums = base + layout.sums,
        .seconds = base + layout.seconds,
        .rounding = rounding,
        .columns = (uint32_t)padded,
        .stride = (uint32_t)padded};
}

/* ---- Launches ---- */

static uint32_t divide_up(uint32_t value, uint32_t by)
{
    return value / by + (value % by != 0);
}

struct cuda_launch cuda_begin_launch(void)
{
    return (struct cuda_launch){"salvo_begin", 1, 1, BEGIN_THREADS, 0};
}

struct cuda_launch cuda_angles_launch(uint32_t capacity)
{
    return (struct cuda_launch){"salvo_angles", capacity, 1, ANGLES_THREADS, 0};
}

struct cuda_launch cuda_end_launch(void)
{
    return (struct cuda_launch){"salvo_end", 1, 1, END_THREADS, 0};
}

struct cuda_launch cuda_rows_launch(uint32_t capacity, uint32_t table_size, uint32_t places)
{
    const bool few = capacity <= FEW_ROWS;
    return (struct cuda_launch){few ? "salvo_few_rows" : "salvo_rows", capacity, 1,
        few ? FEW_ROWS_THREADS : ROWS_THREADS,
        (uint32_t)(round_up(table_size, 16) + round_up(places * sizeof(float), 16))};
}

struct cuda_launch cuda_norm_launch(uint32_t capacity, uint32_t columns)
{
    return (struct cuda_launch){"salvo_norm", capacity, divide_up(columns, NORM_COLUMNS), NORM_THREADS, 0};
}

struct cuda_launch cuda_rotate_launch(uint32_t capacity)
{
    return (struct cuda_launch){"salvo_rotate", capacity, 1, ROTATE_THREADS, 0};
}

struct cuda_launch cuda_mix_launch(struct cuda_mix *mix, uint32_t capacity)
{
    mix->blocks = capacity <= FEW_ROWS && mix->count > 1 ? mix->count : 1;
    return (struct cuda_launch){"salvo_rwkv7_mix", capacity, mix->blocks,
        divide_up(mix->columns, CUDA_TILE_COLUMNS) * (CUDA_TILE_COLUMNS / 4), 0};
}

bool cuda_has_head_rows(uint32_t head_dim)
{
    return head_dim >= 8 && head_dim <= 128 && (head_dim & (head_dim - 1)) == 0;
}

struct cuda_launch cuda_wkv7_inputs_launch(const struct cuda_wkv7_inputs *inputs, uint32_t capacity)
{
    return (struct cuda_launch){
        "salvo_rwkv7_inputs", capacity, divide_up(inputs->columns, 4 * HEADS_THREADS), HEADS_THREADS, 0};
}

struct cuda_launch cuda_wkv7_results_launch(const struct cuda_wkv7_results *results, uint32_t capacity)
{
    return (struct cuda_launch){
        "salvo_rwkv7_results", capacity, divide_up(results->columns, 4 * HEADS_THREADS), HEADS_THREADS, 0};
}

static uint32_t largest(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Bytes of the scales of an unpacked block, and of the inputs of a token: weights may have scales for groups
 * of 16 or 32 columns, and offsets. */
struct weight_format {
    uint32_t scale_bytes, token_bytes;
};

static struct weight_format format_of(uint32_t type)
{
#define FORMAT(name, p16, p8, p4, row_scale, lane_scale, group, offsets, top, unit)      \
    [TYPE_##name] = {(1 + (offsets)) * ((group) == 16 ? 2 : 1) * 4 * 16 * sizeof(float), \
        GEMM_Q8_TOKEN_BYTES + (offsets)*8 * sizeof(float)},
    static const struct weight_format formats[] = {CUDA_TILE_FORMATS(FORMAT)};
#undef FORMAT
    return formats[type];
}

/* As gemm_q8.cu divides it: each warp has the inputs and weight tiles of a part, and the unpacked weights; in
 * the end the sums of all warps lie there. */
static uint32_t gemm_q8_bytes(const struct cuda_gemm *gemm, uint32_t tokens, uint32_t warps)
{
    uint32_t bytes = warps * tokens * (GEMM_ROWS + 4) * (uint32_t)sizeof(float);
    for (uint32_t i = 0; i < gemm->count; i++) {
        const struct cuda_matrix *matrix = &gemm->matmuls[i].matrix;
        const struct weight_format format = format_of(matrix->type);
        const uint32_t inputs = tokens * format.token_bytes,
                       tiles = GEMM_ROWS / CUDA_TILE_ROWS * matrix->tile_bytes,
                       unpacked = GEMM_ROWS / 16 * (GEMM_UNPACKED_BYTES + format.scale_bytes);
        bytes = largest(bytes, warps * (inputs + tiles + unpacked));
    }
    return bytes;
}

/* As gemm_float.cu divides it: each pair has inputs of a part, each of its warps weight tiles. */
static uint32_t gemm_float_bytes(const struct cuda_gemm *gemm, uint32_t tokens, uint32_t warps)
{
    const uint32_t matrices = gemm->glu != ACTIVATION_NONE ? 2 : 1;
    const uint32_t inputs =
        tokens * (gemm->inputs[0].rounding == ROUNDING_F32 ? GEMM_F32_TOKEN_BYTES : GEMM_F16_TOKEN_BYTES);
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < gemm->count; i++)
        tiles = largest(tiles, matrices * 2 * gemm->matmuls[i].matrix.tile_bytes);
    const uint32_t sums = matrices * tokens * (GEMM_ROWS + 4) * (uint32_t)sizeof(float);
    return warps / 2 * largest(inputs + 2 * tiles, sums);
}

static uint32_t gemm_bytes(const struct cuda_gemm *gemm, uint32_t tokens, uint32_t warps)
{
    return gemm->inputs[0].rounding == ROUNDING_Q8 ? gemm_q8_bytes(gemm, tokens, warps)
                                                   : gemm_float_bytes(gemm, tokens, warps);
}

/* A stage of gemm_halves.cu: weights and inputs of one part. The sums at the end need less memory. */
static uint32_t gemm_halves_stage(const struct cuda_gemm *gemm, uint32_t tokens)
{
    uint32_t tile_bytes = 0;
    for (uint32_t i = 0; i < gemm->count; i++)
        tile_bytes = largest(tile_bytes, gemm->matmuls[i].matrix.tile_bytes);
    return GEMM_HALVES_ROWS / CUDA_TILE_ROWS * tile_bytes + tokens / 8 * CUDA_INPUT_GROUP_BYTES;
}

/* A division of the work among blocks, and its time in units of 0.1 us. */
struct gemm_division {
    uint32_t size, splits, stages, bytes, cost;
};

/* Clusters that run at once. All blocks of a cluster run in one processor group of the device; groups are
 * taken to have 16 multiprocessors, and one to have fewer. */
static uint32_t clusters_at_once(uint32_t blocks, uint32_t at_once, uint32_t multiprocessors)
{
    const uint32_t group = 16, all = multiprocessors * at_once / blocks,
                   groups = multiprocessors / group * (group * at_once / blocks),
                   clusters = blocks > 2 && groups > 1 ? groups - 1 : all;
    return largest(clusters, 1);
}

static struct gemm_division divide_gemm(const struct cuda_gemm *gemm, uint32_t blocks, uint32_t capacity,
    uint32_t size, const struct cuda_room *room)
{
    /* Measured on an H200: a part, a part if two blocks share a multiprocessor, and the rest of a block.
     */
    static const struct {
        uint32_t part, shared_part, ends;
    } times[] = {{8, 12, 21}, {9, 14, 28}, {10, 17, 42}, {10, 10, 55}};
    const uint32_t driver_bytes = 1024, exchange = 10; /* of a block; of a cluster's sums */
    const uint32_t tokens = GEMM_FEW_TOKENS << size, clusters = blocks * divide_up(capacity, tokens),
                   parts = gemm->matmuls[0].matrix.parts, stage = gemm_halves_stage(gemm, tokens),
                   half = room->shared_bytes / 2 - driver_bytes - GEMM_HALVES_BARRIERS,
                   at_once = tokens < 128 && half / stage > GEMM_HALVES_LEAST_STAGES ? 2 : 1,
                   fitting = (at_once == 2 ? half : room->shared_bytes - GEMM_HALVES_BARRIERS) / stage;
    struct gemm_division best = {.size = size, .cost = UINT32_MAX};
    best.stages = fitting > GEMM_HALVES_MOST_STAGES ? GEMM_HALVES_MOST_STAGES : fitting;
    best.bytes = GEMM_HALVES_BARRIERS + best.stages * stage;
    for (uint32_t splits = 1; splits <= GEMM_HALVES_MOST_BLOCKS && splits <= parts; splits++) {
        const uint32_t each = divide_up(parts, splits),
                       at_a_time = clusters_at_once(splits, at_once, room->multiprocessors),
                       waves = divide_up(clusters, at_a_time),
                       part = clusters * splits > room->multiprocessors && at_once == 2
                                  ? times[size].shared_part
                                  : times[size].part,
                       cost = waves * (each * part + times[size].ends + (splits > 1 ? exchange : 0));
        if ((splits - 1) * each < parts && cost < best.cost) { /* each block of a cluster has parts */
            best.cost = cost;
            best.splits = splits;
        }
    }
    return best;
}

/* Blocks of `rows` rows of a matrix, for some tokens. The second matrix of a glu has those of the first. */
static uint32_t gemm_blocks(const struct cuda_gemm *gemm, uint32_t rows)
{
    uint32_t blocks = divide_up(gemm->matmuls[0].matrix.rows, rows);
    for (uint32_t i = 1; i < gemm->count && gemm->glu == ACTIVATION_NONE; i++)
        blocks += divide_up(gemm->matmuls[i].matrix.rows, rows);
    return blocks;
}

/* The best division for gemm_halves.cu. `size` of the result: a block has GEMM_FEW_TOKENS << size tokens. */
static struct gemm_division divide_gemm_halves(
    const struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room)
{
    const bool glu = gemm->glu != ACTIVATION_NONE;
    const uint32_t blocks = gemm_blocks(gemm, glu ? GEMM_HALVES_ROWS / 2 : GEMM_HALVES_ROWS);
    struct gemm_division best = {.cost = UINT32_MAX};
    for (uint32_t size = 0; size < GEMM_HALVES_SIZES; size++) {
        const struct gemm_division division = divide_gemm(gemm, blocks, capacity, size, room);
        if (division.cost < best.cost)
            best = division;
        if ((uint32_t)GEMM_FEW_TOKENS << size >= capacity)
            break;
    }
    return best;
}

struct cuda_launch cuda_gemm_halves_launch(
    struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room)
{
    static const char *const names[GEMM_HALVES_SIZES][2] = {
        {"salvo_gemm_halves_16", "salvo_gemm_halves_16_glu"},
        {"salvo_gemm_halves_32", "salvo_gemm_halves_32_glu"},
        {"salvo_gemm_halves_64", "salvo_gemm_halves_64_glu"},
        {"salvo_gemm_halves_128", "salvo_gemm_halves_128_glu"},
    };
    const bool glu = gemm->glu != ACTIVATION_NONE;
    const struct gemm_division division = divide_gemm_halves(gemm, capacity, room);
    gemm->splits = division.splits;
    gemm->stages = division.stages;
    return (struct cuda_launch){names[division.size][glu],
        divide_up(capacity, (uint32_t)GEMM_FEW_TOKENS << division.size) * division.splits,
        gemm_blocks(gemm, glu ? GEMM_HALVES_ROWS / 2 : GEMM_HALVES_ROWS), GEMM_HALVES_THREADS,
        division.bytes};
}

/* The grid of gemm_thin.cu, and its time in units of 0.1 us. */
struct thin_division {
    uint32_t rows, blocks, token_blocks, warps, cost;
};

/* Blocks of 32 rows read the inputs half as often as those of 16, where there are blocks enough. A
 * multiprocessor has room for GEMM_THIN_WARPS warps, and only for whole blocks: fewer warps with more parts
 * each may need fewer waves of blocks. */
static struct thin_division divide_gemm_thin(
    const struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room)
{
    const bool glu = gemm->glu != ACTIVATION_NONE;
    const uint32_t token_blocks = divide_up(capacity, GEMM_FEW_TOKENS), parts = gemm->matmuls[0].matrix.parts,
                   multiprocessors = room->multiprocessors;
    const bool wide = !glu && gemm_blocks(gemm, 16) * token_blocks > GEMM_THIN_WARPS / 2 * multiprocessors;
    struct thin_division best = {.rows = wide ? 32 : 16, .token_blocks = token_blocks, .cost = UINT32_MAX};
    best.blocks = gemm_blocks(gemm, best.rows);
    /* Measured on an H200: the beginning and the end of a block, and its parts, among those of the blocks
     * beside it, in units of 0.01 us. */
    const uint32_t ends = glu ? 280 : 220, part = glu ? 20 : wide ? 18 : 9, all = best.blocks * token_blocks;
    for (uint32_t most = GEMM_THIN_WARPS; most >= GEMM_THIN_WARPS / 4; most--) {
        const uint32_t each = divide_up(parts, most), warps = divide_up(parts, each),
                       at_once = GEMM_THIN_WARPS / warps, waves = divide_up(all, at_once * multiprocessors),
                       beside = waves > 1 ? at_once : divide_up(all, multiprocessors),
                       cost = waves * (ends + 10 * each + part * beside * parts) / 10;
        if (cost < best.cost) {
            best.cost = cost;
            best.warps = warps;
        }
    }
    return best;
}

struct cuda_launch cuda_gemm_thin_launch(
    const struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room)
{
    const bool glu = gemm->glu != ACTIVATION_NONE;
    const struct thin_division division = divide_gemm_thin(gemm, capacity, room);
    return (struct cuda_launch){
        .kernel = glu                   ? "salvo_gemm_thin_16_glu"
                  : division.rows == 32 ? "salvo_gemm_thin_32"
                                        : "salvo_gemm_thin_16",
        .grid_x = division.blocks,
        .grid_y = division.token_blocks,
        .threads = division.warps * 32,
        .shared_bytes =
            division.warps * (glu ? 2 : 1) * GEMM_FEW_TOKENS * (division.rows + 4) * (uint32_t)sizeof(float),
    };
}

/* Whether gemm_thin.cu computes a matmul of grouped halves. Each block of tokens unpacks the weights again,
 * which takes longest with K-quants. Weights in F16 take more registers than it has for two parts: it gets
 * them for one block of tokens only, and no gate and up, which gemm_halves.cu reads as fast. */
static bool is_thin(const struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room)
{
    const uint32_t type = gemm->matmuls[0].matrix.type;
    const bool few = capacity <= GEMM_FEW_TOKENS,
               is_k_quant = tensor_type_info((enum tensor_type)type)->block_elements == 256;
    if (type == TYPE_F16)
        return few && gemm->glu == ACTIVATION_NONE;
    if (is_k_quant && capacity > GEMM_MANY_TOKENS)
        return false;
    return few || divide_gemm_thin(gemm, capacity, room).cost < divide_gemm_halves(gemm, capacity, room).cost;
}

struct cuda_launch cuda_gemm_launch(struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room)
{
    if (gemm->inputs[0].grouped)
        return is_thin(gemm, capacity, room) ? cuda_gemm_thin_launch(gemm, capacity, room)
                                             : cuda_gemm_halves_launch(gemm, capacity, room);
#define SIZES(kind)                                                       \
    {                                                                     \
        {"salvo_gemm_" kind "_few", "salvo_gemm_" kind "_few_glu"},       \
            {"salvo_gemm_" kind "_some", "salvo_gemm_" kind "_some_glu"}, \
        {                                                                 \
            "salvo_gemm_" kind "_many", "salvo_gemm_" kind "_many_glu"    \
        }                                                                 \
    }
    static const char *const names[3][3][2] = {
        [ROUNDING_F32] = SIZES("f32"), [ROUNDING_F16] = SIZES("f16"), [ROUNDING_Q8] = SIZES("q8")};
#undef SIZES
    static const uint32_t tokens[] = {GEMM_FEW_TOKENS, GEMM_SOME_TOKENS, GEMM_MANY_TOKENS};
    const bool glu = gemm->glu != ACTIVATION_NONE, quantised = gemm->inputs[0].rounding == ROUNDING_Q8;
    /* A block has as many tokens as leave no multiprocessor idle. */
    const uint32_t blocks = gemm_blocks(gemm, GEMM_ROWS);
    uint32_t size = capacity < GEMM_MANY_CAPACITY ? 1 : 2;
    while (size > 0 && (capacity <= tokens[size - 1] ||
                           blocks * divide_up(capacity, tokens[size]) < room->multiprocessors))
        size--;
    uint32_t parts = 1;
    for (uint32_t i = 0; i < gemm->count; i++)
        parts = largest(parts, gemm->matmuls[i].matrix.parts);
    /* As few passes as possible, then as few warps as possible. */
    const uint32_t each = quantised && !glu ? 1 : 2,
                   most = quantised && size == 2 ? GEMM_WARPS / 2 : GEMM_WARPS / each,
                   passes = divide_up(parts, most);
    uint32_t warps = divide_up(parts, passes) * each;
    while (warps > each && gemm_bytes(gemm, tokens[size], warps) > room->shared_bytes)
        warps -= each;
    return (struct cuda_launch){
        .kernel = names[gemm->inputs[0].rounding][size][glu],
        .grid_x = blocks,
        .grid_y = divide_up(capacity, tokens[size]),
        .threads = warps * 32,
        .shared_bytes = gemm_bytes(gemm, tokens[size], warps),
    };
}

/* Blocks of many queries read keys and values less often, if they are enough for all multiprocessors. */
static bool is_wide_attention(
    const struct cuda_attend *attend, uint32_t capacity, const struct cuda_room *room)
{
    const uint64_t queries = (uint64_t)capacity * attend->heads;
    return room->warpgroups && attend->kv_type == TYPE_F16 &&
           (attend->head_dim == 64 || attend->head_dim == 128) &&
           queries / FLASH_WIDE_QUERIES * 4 >= (uint64_t)room->multiprocessors * 3;
}

static struct cuda_launch wide_flash_launch(
    const struct cuda_attend *attend, uint32_t capacity, uint32_t slots)
{
    const uint32_t each = attend->heads / attend->kv_heads;
    return (struct cuda_launch){
        .kernel = attend->head_dim == 64 ? "salvo_flash_halves_64" : "salvo_flash_halves_128",
        .grid_x = (uint32_t)((uint64_t)capacity * each / FLASH_WIDE_QUERIES) + slots,
        .grid_y = attend->kv_heads,
        .threads = FLASH_WIDE_THREADS,
        .shared_bytes = FLASH_WIDE_SHARED,
    };
}

static uint32_t flash_padded(const struct cuda_attend *attend)
{
    return attend->head_dim <= 64 ? 64 : 128;
}

/* Attention over a cache of halves: two slots for each warp if all blocks run at once with them, or else one.
 */
static void flash_halves_shared(
    struct cuda_flash *flash, const struct cuda_room *room, struct cuda_launch *launch)
{
    const uint32_t padded = flash_padded(&flash->attend),
                   slot_bytes = launch->threads / 32 * FLASH_KEYS * padded * 2 * 2,
                   queries = flash->attend.appends ? FLASH_SHARED_QUERIES(padded) : 0,
                   at_once = room->shared_bytes / (queries + 2 * slot_bytes) * room->multiprocessors;
    const bool one = flash->attend.appends && launch->grid_x * launch->grid_y > at_once;
    flash->slots = one ? 1 : 2;
    launch->shared_bytes = queries + flash->slots * slot_bytes;
}

/* flash->splits becomes the largest power of two with which all blocks run at once. */
bool cuda_flash_split(struct cuda_flash *flash, struct cuda_launch *launch, const struct cuda_room *room)
{
    const uint32_t each =
                       flash_padded(&flash->attend) == 64 ? FLASH_APPEND_BLOCKS_64 : FLASH_APPEND_BLOCKS_128,
                   blocks = launch->grid_x * launch->grid_y;
    if (!flash->attend.appends || !room->warpgroups)
        return false;
    while (flash->splits < FLASH_MOST_SPLITS && 2 * flash->splits * blocks <= each * room->multiprocessors)
        flash->splits *= 2;
    launch->grid_x *= flash->splits;
    flash_halves_shared(flash, room, launch);
    return flash->splits > 1;
}

/* The most blocks of the queries of a KV head, of which `each` share it: a run needs one more than its
 * queries fill, if they leave a rest. */
static uint32_t query_blocks(uint32_t capacity, uint32_t slots, uint32_t each)
{
    const uint32_t runs = capacity < slots ? capacity : slots;
    return (uint32_t)(((uint64_t)capacity * each + (uint64_t)runs * (FLASH_QUERIES - 1)) / FLASH_QUERIES);
}

bool cuda_flash_can_append(const struct cuda_attend *attend)
{
    return attend->kv_type == TYPE_F16 && (attend->head_dim == 64 || attend->head_dim == 128);
}

struct cuda_launch cuda_flash_launch(
    struct cuda_flash *flash, uint32_t capacity, uint32_t slots, const struct cuda_room *room)
{
    const struct cuda_attend *attend = &flash->attend;
    flash->splits = 1;
    flash->ones = attend->appends && capacity > FLASH_ONE_ROWS;
    if (!attend->appends && is_wide_attention(attend, capacity, room))
        return wide_flash_launch(attend, capacity, slots);
    const uint32_t each = attend->heads / attend->kv_heads;
    const bool halves = attend->kv_type == TYPE_F16 && attend->head_dim <= 128;
    const uint32_t padded = flash_padded(attend);
    struct cuda_launch launch = {
        .grid_x = query_blocks(capacity, slots, each),
        .grid_y = attend->kv_heads,
        .threads = FLASH_WARPS * 32,
    };
    if (attend->appends) {
        launch.kernel = padded == 64 ? "salvo_flash_append_64" : "salvo_flash_append_128";
        flash_halves_shared(flash, room, &launch);
    } else if (halves) {
        const bool few = padded == 128 && FLASH_WARPS * FLASH_KEYS * padded * 2 * 2 * 2 > room->shared_bytes;
        launch.kernel = padded == 64 ? "salvo_flash_f16_64"
                        : few        ? "salvo_flash_f16_128_few"
                                     : "salvo_flash_f16_128";
        launch.threads = (few ? FLASH_FEW_WARPS : FLASH_WARPS) * 32;
        flash_halves_shared(flash, room, &launch);
    } else {
        launch.kernel = "salvo_flash_any";
        launch.shared_bytes = (uint32_t)sizeof(float) * (2 * FLASH_QUERIES * attend->head_dim +
                                                            2 * FLASH_ANY_KEYS * (attend->head_dim + 1));
    }
    return launch;
}

struct cuda_launch cuda_wkv7_launch(const struct cuda_wkv7_many *wkv7, uint32_t slots)
{
    const uint32_t padded = wkv7->head_dim <= 64 ? 64 : wkv7->head_dim <= 128 ? 128 : 256;
    const uint32_t values = WKV7_WARPS * 4;
    return (struct cuda_launch){
        .kernel = padded == 64    ? "salvo_wkv7_64"
                  : padded == 128 ? "salvo_wkv7_128"
                                  : "salvo_wkv7_256",
        .grid_x = wkv7->heads * divide_up(wkv7->head_dim, values),
        .grid_y = slots,
        .threads = WKV7_WARPS * 32,
        .shared_bytes = (uint32_t)sizeof(float) * 2 * WKV7_TOKENS * (5 * padded + values),
    };
}

/* All chunks of a run but the last are complete. */
static uint32_t most_chunks(uint32_t capacity, uint32_t slots)
{
    return capacity / WKV7_TOKENS + (slots < capacity ? slots : capacity);
}

uint64_t cuda_wkv7_chunk_bytes(const struct cuda_wkv7_many *wkv7, uint32_t capacity, uint32_t slots)
{
    return wkv7->head_dim == WKV7_CHUNK_DIM && capacity > 1
               ? (uint64_t)most_chunks(capacity, slots) * wkv7->heads * WKV7_CHUNK_BYTES
               : 0;
}

struct cuda_launch cuda_wkv7_prepare_launch(
    const struct cuda_wkv7_many *wkv7, uint32_t capacity, uint32_t slots)
{
    return (struct cuda_launch){
        "salvo_wkv7_prepare", wkv7->heads, most_chunks(capacity, slots), 2 * WKV7_CHUNK_DIM, 0};
}

struct cuda_launch cuda_wkv7_chunks_launch(const struct cuda_wkv7_many *wkv7, uint32_t slots)
{
    return (struct cuda_launch){"salvo_wkv7_chunks", wkv7->heads * (WKV7_CHUNK_DIM / WKV7_CHUNK_VALUES),
        slots < WKV7_CHUNK_RUNS ? slots : WKV7_CHUNK_RUNS, WKV7_CHUNK_THREADS, WKV7_CHUNKS_SHARED};
}

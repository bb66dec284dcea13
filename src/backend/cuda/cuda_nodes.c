/* The groups of a plan for many tokens become launches, one after the other. */
#include "backend/cuda/cuda_phase.h"
#include "backend/cuda/cuda_weight_tiles.h"
#include "backend/cuda/sample_plan.h"
#include "base/memory.h"

#include <assert.h>
#include <string.h>

enum { SAMPLE_THREADS = 512 };

static enum salvo_status add_node(
    struct phase_builder *builder, const struct cuda_node *node, struct cuda_launch launch)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    TRY(GROW(&tables->nodes, tables->node_count, &tables->node_capacity));
    struct cuda_node *added = &tables->nodes[tables->node_count];
    *added = *node;
    added->launch = launch;
    if (launch.shared_bytes > (uint32_t)builder->executor->device->shared_bytes) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED,
            "the shared memory of %s, %d bytes a block, is too small: %s needs %u",
            builder->executor->context.name, builder->executor->device->shared_bytes, launch.kernel,
            launch.shared_bytes));
    }
    TRY(cuda_function_find(builder->executor, launch.kernel, &added->function));
    tables->node_count++;
cleanup:
    return status;
}

static uint32_t capacity_of(const struct phase_builder *builder, enum row_kind rows)
{
    return builder->plan->plan.capacity[rows];
}

/* The rows of the step: run, slot and position of each token. */
static cuda_address token_rows(const struct phase_builder *builder)
{
    return builder->executor->machine.step + builder->executor->machine.rows_at;
}

/* ---- Rows ---- */

/* A launch of the row table that was built. */
static enum salvo_status launch_table(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_node node = {.kind = CUDA_NODE_ROWS};
    TRY(phase_add_table(builder, &node.row_table));
    TRY(add_node(builder, &node,
        cuda_rows_launch(capacity_of(builder, (enum row_kind)builder->table.rows), builder->table.size,
            (uint32_t)builder->places)));
cleanup:
    return status;
}

/* Ropes of queries and keys and the append of those keys, if the group has no other op and struct cuda_rotate
 * can describe it. */
static bool find_rotate(
    const struct phase_builder *builder, uint32_t first, uint32_t end, struct cuda_rotate *out)
{
    const struct op *q = &builder->program->ops[first], *k = q + 1, *append = q + 2;
    const struct rope *ropes = builder->program->ropes;
    if (end - first != 3 || q->kind != OP_ROPE || k->kind != OP_ROPE || append->kind != OP_KV_APPEND ||
        builder->executor->options.kv_type != TYPE_F16 || append->inputs[0] != k->out ||
        q->out != q->inputs[0] || k->out != k->inputs[0] || value_is_read(builder->program, k->out, end))
        return false;
    const struct rope *rope = &ropes[q->rope.rope], *other = &ropes[k->rope.rope];
    if (rope->dimensions != q->rope.head_dim || other->dimensions != q->rope.head_dim ||
        q->rope.head_dim != k->rope.head_dim || rope->halves != other->halves)
        return false;
    *out = (struct cuda_rotate){
        .q = phase_address(builder, q->out),
        .k = phase_address(builder, k->out),
        .v = phase_address(builder, append->inputs[1]),
        .keys = builder->executor->kv_addresses[append->kv_append.key_state],
        .values = builder->executor->kv_addresses[append->kv_append.value_state],
        .heads = q->rope.heads,
        .kv_heads = k->rope.heads,
        .head_dim = q->rope.head_dim,
        .rope_q = q->rope.rope,
        .rope_k = k->rope.rope,
        .halves = rope->halves,
    };
    return true;
}

static enum salvo_status lower_plain_rows(struct phase_builder *builder, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_node node = {.kind = CUDA_NODE_ROTATE};
    if (find_rotate(builder, first, end, &node.rotate))
        return add_node(builder, &node, cuda_rotate_launch(capacity_of(builder, ROWS_TOKENS)));
    while (first < end) {
        TRY(phase_begin_rows(builder, first, end, &first));
        TRY(launch_table(builder));
    }
cleanup:
    return status;
}

/* Bytes of a packed input; its place is a multiple of 256. */
static uint64_t packed_bytes(const struct phase_builder *builder, const struct group *group, uint32_t input)
{
    const struct program_buffer *rounded = &builder->program->buffers[group->rounded_inputs[input]];
    if (phase_is_read_in_place(builder, group->rounding, group->rounded_inputs[input]))
        return 0;
    return (cuda_packed_input_bytes(
                group->rounding, (uint32_t)rounded->columns, capacity_of(builder, rounded->row_kind)) +
               255) /
           256 * 256;
}

/* Bytes of the packed inputs of one group, at most. */
static uint64_t largest_packed_inputs(const struct phase_builder *builder)
{
    const struct plan *plan = &builder->plan->plan;
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->group_count; i++) {
        uint64_t bytes = 0;
        for (uint32_t j = 0; plan->groups[i].kind == GROUP_ROWS && j < plan->groups[i].rounded_count; j++)
            bytes += packed_bytes(builder, &plan->groups[i], j);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Two places for the packed inputs of a group, which chunks of a wkv7 use, too. */
static uint64_t packed_input_memory(const struct phase_builder *builder)
{
    const struct plan *plan = &builder->plan->plan;
    uint64_t bytes = 2 * largest_packed_inputs(builder);
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct op *op = &builder->program->ops[plan->groups[i].first_op];
        if (plan->groups[i].kind != GROUP_WKV7)
            continue;
        const struct cuda_wkv7_many wkv7 = {.heads = op->wkv7.heads, .head_dim = op->wkv7.head_dim};
        const uint64_t chunks =
            cuda_wkv7_chunk_bytes(&wkv7, capacity_of(builder, ROWS_TOKENS), capacity_of(builder, ROWS_RUNS));
        bytes = chunks > bytes ? chunks : bytes;
    }
    return (bytes + 511) / 512 * 512;
}

static struct cuda_packed_input packed_input_of(
    const struct phase_builder *builder, const struct group *group, uint32_t input, cuda_address address)
{
    const struct program_buffer *rounded = &builder->program->buffers[group->rounded_inputs[input]];
    const uint32_t columns = (uint32_t)rounded->columns, rows = capacity_of(builder, rounded->row_kind);
    struct cuda_packed_input packed_input = cuda_packed_input_at(group->rounding, columns, rows, address);
    if (phase_is_read_in_place(builder, group->rounding, group->rounded_inputs[input])) {
        packed_input.values = phase_address(builder, group->rounded_inputs[input]);
        packed_input.stride = columns;
    }
    if (builder->executor->halves && group->rounding == ROUNDING_F16)
        packed_input.grouped = (rows + 7) / 8 * 8;
    packed_input.fine = group->fine || phase_is_finer(builder, group->first_op);
    return packed_input;
}

/* The rounded rows that the matmuls after a group of rows read: two places that alternate, since one may be
 * written while the one before it is read. */
static enum salvo_status add_packed_inputs(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    const uint64_t place = tables->packed_groups++ % 2 ? tables->packed_input_memory / 2 : 0;
    cuda_address address = builder->plan->scratch.packed_inputs + place;
    for (uint32_t i = 0; i < group->rounded_count; i++) {
        TRY(GROW(&tables->packed_inputs, tables->packed_input_count, &tables->packed_input_capacity));
        tables->packed_inputs[tables->packed_input_count++] = packed_input_of(builder, group, i, address);
        address += packed_bytes(builder, group, i);
    }
cleanup:
    return status;
}

/* The first packed input of `group`, the last one that has any; NULL if its matmuls round nothing. */
static struct cuda_packed_input *last_packed_inputs(
    const struct phase_builder *builder, const struct group *group)
{
    const struct cuda_tables *tables = &builder->plan->tables;
    if (group->rounded_count == 0)
        return NULL;
    return &tables->packed_inputs[tables->packed_input_count - group->rounded_count];
}

/* The op from which on the rounded rows of a group are read in memory: the matmuls behind it read packed
 * inputs. The debug path shows all rows. */
static uint32_t packed_readers_end(const struct phase_builder *builder, const struct group *group)
{
    const struct group *readers = builder->plan == &builder->executor->debug ? group : group + 1;
    return readers->first_op + readers->op_count;
}

/* A phase with ops from `first` on that rounds inputs first_input .. end_input - 1. */
static void add_rounding_phase(struct phase_builder *builder, const struct group *group, uint32_t first,
    uint32_t first_input, uint32_t end_input)
{
    const uint32_t end = group->first_op + group->op_count,
                   index = builder->plan->tables.packed_input_count - group->rounded_count;
    phase_begin(builder, group->rows);
    builder->packed_readers_end = packed_readers_end(builder, group);
    for (uint32_t i = first; i < end; i++)
        phase_add_op(builder, &builder->program->ops[i], false);
    for (uint32_t i = first_input; i < end_input; i++) {
        if (phase_is_read_in_place(builder, group->rounding, group->rounded_inputs[i]))
            continue;
        const uint32_t round = phase_round(builder, group->rounded_inputs[i], group->rounding,
            group->fine || phase_is_finer(builder, group->first_op));
        builder->rounds[round].packed_input = index + i;
    }
    if (first < end)
        phase_store_outputs(builder, first, end);
    builder->packed_input_bytes = 0;
}

/* A group that only rounds rows, or their RMS norm. */
static bool find_norm(
    const struct phase_builder *builder, const struct group *group, struct cuda_norm_rows *out)
{
    const struct program *program = builder->program;
    const struct op *norm = group->op_count ? &program->ops[group->first_op] : NULL;
    const buffer_id rounded = group->rounded_inputs[0];
    const uint32_t columns = (uint32_t)program->buffers[rounded].columns;
    if (group->rounded_count != 1 || columns % 4 != 0 ||
        (columns > NORM_COLUMNS && (norm || builder->executor->fit == CUDA_FIT_ROOMY)))
        return false;
    if (norm && (group->op_count > 1 || norm->kind != OP_RMS_NORM || !is_whole_norm(program, norm) ||
                    norm->out != rounded))
        return false;
    const bool is_read = norm && value_is_read(program, norm->out, packed_readers_end(builder, group));
    *out = (struct cuda_norm_rows){
        .token_rows = token_rows(builder),
        .x = phase_address(builder, norm ? norm->inputs[0] : rounded),
        .weight = norm ? phase_vector(builder, norm->inputs[1]) : 0,
        .out = is_read ? phase_address(builder, norm->out) : 0,
        .packed_input = *last_packed_inputs(builder, group),
        .rows = group->rows,
        .columns = columns,
        .epsilon = norm ? norm->rms_norm.epsilon : 0,
    };
    return true;
}

static bool all_are_read_in_place(const struct phase_builder *builder, const struct group *group)
{
    for (uint32_t i = 0; i < group->rounded_count; i++) {
        if (!phase_is_read_in_place(builder, group->rounding, group->rounded_inputs[i]))
            return false;
    }
    return true;
}

/* The packed inputs of a group, which were added last, as results of its ops. */
static struct packed_rows packed_rows_of(const struct phase_builder *builder, const struct group *group)
{
    return (struct packed_rows){group->rounded_inputs, last_packed_inputs(builder, group),
        group->rounded_count, packed_readers_end(builder, group)};
}

/* Row ops of RWKV-7 from op `first` to the end of the group, with their rounding: one launch, which has the
 * kind of `node`. */
static bool find_rwkv7(
    struct phase_builder *builder, uint32_t first, const struct group *group, struct cuda_node *node)
{
    const uint32_t end = group->first_op + group->op_count, capacity = capacity_of(builder, group->rows);
    const struct packed_rows packed = packed_rows_of(builder, group);
    if (cuda_find_mix(builder, first, end, &packed, &node->mix)) {
        node->kind = CUDA_NODE_MIX;
        node->launch = cuda_mix_launch(&node->mix, capacity);
    } else if (cuda_find_wkv7_results(builder, first, end, &packed, &node->results)) {
        node->kind = CUDA_NODE_WKV7_RESULTS;
        node->launch = cuda_wkv7_results_launch(&node->results, capacity);
    } else if (group->rounded_count == 0 && cuda_find_wkv7_inputs(builder, first, end, &node->inputs)) {
        node->kind = CUDA_NODE_WKV7_INPUTS;
        node->launch = cuda_wkv7_inputs_launch(&node->inputs, capacity);
    } else {
        return false;
    }
    return true;
}

/* Rows and the rounding of all inputs in one launch if they fit; otherwise one launch for each input. */
static enum salvo_status lower_rounding_rows(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t first = group->first_op, end = first + group->op_count;
    struct cuda_node node = {.kind = CUDA_NODE_NORM};
    TRY(add_packed_inputs(builder, group));
    if (find_rwkv7(builder, first, group, &node))
        return add_node(builder, &node, node.launch);
    if (all_are_read_in_place(builder, group))
        return lower_plain_rows(builder, first, end);
    if (find_norm(builder, group, &node.norm))
        return add_node(
            builder, &node, cuda_norm_launch(capacity_of(builder, group->rows), node.norm.columns));
    add_rounding_phase(builder, group, first, 0, group->rounded_count);
    if (phase_fits(builder))
        return launch_table(builder);
    TRY(lower_plain_rows(builder, first, end));
    for (uint32_t i = 0; i < group->rounded_count; i++) {
        if (phase_is_read_in_place(builder, group->rounding, group->rounded_inputs[i]))
            continue;
        add_rounding_phase(builder, group, end, i, i + 1);
        TRY(launch_table(builder));
    }
cleanup:
    return status;
}

/* Whether this group is a norm alone, whose rows the next group mixes with the rows before them: each block
 * computes the norm of both. The debug path shows the rows of each group. */
static bool mixes_next(const struct phase_builder *builder, const struct group *group)
{
    const struct plan *plan = &builder->plan->plan;
    const struct group *next = group + 1;
    struct cuda_packed_input inputs[MAX_ROUNDED];
    struct cuda_mix mix;
    if (builder->plan == &builder->executor->debug || next == plan->groups + plan->group_count ||
        next->kind != GROUP_ROWS || group->op_count != 1 || group->rounded_count || !next->rounded_count)
        return false;
    for (uint32_t i = 0; i < next->rounded_count; i++)
        inputs[i] = packed_input_of(builder, next, i, 0);
    const struct packed_rows packed = {
        next->rounded_inputs, inputs, next->rounded_count, packed_readers_end(builder, next)};
    return cuda_find_mix(builder, group->first_op, next->first_op + next->op_count, &packed, &mix) &&
           mix.count;
}

static enum salvo_status lower_rows(
    struct phase_builder *builder, const struct group *group, bool *out_included)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_node node = {0};
    *out_included = mixes_next(builder, group);
    if (*out_included)
        TRY(add_packed_inputs(builder, group + 1));
    else if (group->rounded_count)
        return lower_rounding_rows(builder, group);
    if (find_rwkv7(builder, group->first_op, *out_included ? group + 1 : group, &node))
        return add_node(builder, &node, node.launch);
    return lower_plain_rows(builder, group->first_op, group->first_op + group->op_count);
cleanup:
    return status;
}

/* ---- Matmuls ---- */

static const struct cuda_packed_input *packed_input_of_matmul(
    const struct phase_builder *builder, const struct group *group, const struct op *matmul)
{
    const struct cuda_packed_input *packed_input = last_packed_inputs(builder, group);
    for (uint32_t i = 0; group->rounded_inputs[i] != matmul->inputs[1]; i++)
        packed_input++;
    return packed_input;
}

static struct cuda_node gemm_of(const struct phase_builder *builder, const struct group *group,
    const struct op *ops, uint32_t count, bool glu)
{
    struct cuda_node node = {.kind = CUDA_NODE_GEMM};
    node.gemm.token_rows = token_rows(builder);
    node.gemm.count = count;
    node.gemm.glu = glu ? ops[2].glu.activation : ACTIVATION_NONE;
    node.gemm.rows = group->rows;
    for (uint32_t i = 0; i < count; i++) {
        node.gemm.inputs[i] = *packed_input_of_matmul(builder, group, &ops[i]);
        node.gemm.matmuls[i] = cuda_matmul_of(builder, group, &ops[i],
            &builder->executor->weights[ops[i].inputs[0]].matrix, phase_address(builder, ops[i].out));
    }
    if (glu)
        node.gemm.matmuls[0].out = phase_address(builder, ops[2].out);
    const struct cuda_room room = cuda_room_of(builder->executor);
    node.launch = cuda_gemm_launch(&node.gemm, capacity_of(builder, group->rows), &room);
    return node;
}

/* The glu is applied to the results of its matmuls if these have the same input and type, and both fit into
 * shared memory. */
static bool has_glu_inside(
    const struct phase_builder *builder, const struct group *group, const struct op *ops)
{
    const struct program_buffer *buffers = builder->program->buffers;
    if (!group->glu || ops[0].inputs[1] != ops[1].inputs[1] ||
        buffers[ops[0].inputs[0]].type != buffers[ops[1].inputs[0]].type)
        return false;
    return gemm_of(builder, group, ops, 2, true).launch.shared_bytes <=
           (uint32_t)builder->executor->device->shared_bytes;
}

/* Whether the next group only rounds, to bytes or halves, the result of an op of this group: then this group
 * does it. Not on the debug path. */
static bool rounds_next(const struct phase_builder *builder, const struct group *group, buffer_id out)
{
    const struct plan *plan = &builder->plan->plan;
    const struct group *next = group + 1;
    return builder->plan != &builder->executor->debug && next < plan->groups + plan->group_count &&
           next->kind == GROUP_ROWS && next->op_count == 0 && next->rounded_count == 1 &&
           next->rounded_inputs[0] == out && next->rounding != ROUNDING_F32 && next->rows == group->rows;
}

/* Whether a result that this group rounds for the next one is read in memory, too. */
static bool is_read_unrounded(const struct phase_builder *builder, const struct group *group, buffer_id out)
{
    return value_is_read(builder->program, out, packed_readers_end(builder, group + 1));
}

static bool gemm_rounds_next(const struct phase_builder *builder, const struct group *group, bool glu)
{
    const struct op *op = &builder->program->ops[group->first_op + (glu ? 2 : 0)];
    return (glu || (group->matmuls == 1 && !group->glu)) && rounds_next(builder, group, op->out) &&
           builder->program->buffers[op->out].columns % CUDA_TILE_COLUMNS == 0;
}

/* The number of matmuls from ops[0] on that one launch does, of `count`: float kernels alone take rows of
 * different lengths. */
static uint32_t matmuls_of_launch(
    const struct phase_builder *builder, const struct group *group, const struct op *ops, uint32_t count)
{
    const struct program_buffer *buffers = builder->program->buffers;
    const bool lengths_differ =
        group->rounding == ROUNDING_F32 || (group->rounding == ROUNDING_F16 && !builder->executor->halves);
    uint32_t taken = 1;
    while (taken < count && taken < GEMM_MATMULS &&
           (lengths_differ || buffers[ops[taken].inputs[1]].columns == buffers[ops[0].inputs[1]].columns))
        taken++;
    return taken;
}

static enum salvo_status lower_gemms(
    struct phase_builder *builder, const struct group *group, bool *out_rounded)
{
    enum salvo_status status = SALVO_OK;
    const struct op *ops = &builder->program->ops[group->first_op];
    const bool glu = has_glu_inside(builder, group, ops);
    *out_rounded = gemm_rounds_next(builder, group, glu);
    for (uint32_t i = 0, count; i < group->matmuls; i += count) {
        count = matmuls_of_launch(builder, group, ops + i, group->matmuls - i);
        struct cuda_node node = gemm_of(builder, group, ops + i, count, glu);
        if (*out_rounded) {
            TRY(add_packed_inputs(builder, &group[1]));
            node.gemm.rounded = *last_packed_inputs(builder, &group[1]);
            if (!node.gemm.matmuls[0].accumulate && !is_read_unrounded(builder, group, ops[glu ? 2 : 0].out))
                node.gemm.matmuls[0].out = 0;
            /* Blocks of gemm_thin.cu are too narrow to round to bytes. */
            assert(!node.gemm.inputs[0].grouped || node.gemm.rounded.rounding == ROUNDING_F16);
        }
        TRY(add_node(builder, &node, node.launch));
    }
    if (group->glu && !glu)
        TRY(lower_plain_rows(builder, group->first_op + 2, group->first_op + 3));
cleanup:
    return status;
}

/* ---- The others ---- */

/* Ropes and kv_append before attention, inside its kernel if that can. */
static enum salvo_status lower_append(
    struct phase_builder *builder, const struct group *group, struct cuda_attend *attend)
{
    struct cuda_rotate rotate;
    const uint32_t end = group->first_op + group->ops_before;
    attend->appends = find_rotate(builder, group->first_op, end, &rotate) && cuda_flash_can_append(attend);
    if (!attend->appends)
        return lower_plain_rows(builder, group->first_op, end);
    attend->k = rotate.k;
    attend->v = rotate.v;
    attend->rope_q = rotate.rope_q;
    attend->rope_k = rotate.rope_k;
    attend->halves = rotate.halves;
    return SALVO_OK;
}

static enum salvo_status lower_flash(
    struct phase_builder *builder, const struct group *group, bool *out_rounded)
{
    enum salvo_status status = SALVO_OK;
    const struct op *op = group_op(builder->program, group);
    struct cuda_node node = {.kind = CUDA_NODE_ATTEND};
    node.flash.attend = cuda_attend_of(builder, op);
    if (group->ops_before)
        TRY(lower_append(builder, group, &node.flash.attend));
    *out_rounded = rounds_next(builder, group, op->out) && op->attend.head_dim % 32 == 0;
    if (*out_rounded) {
        TRY(add_packed_inputs(builder, &group[1]));
        node.flash.rounded = *last_packed_inputs(builder, &group[1]);
        if (!is_read_unrounded(builder, group, op->out))
            node.flash.attend.out = 0;
    }
    const struct cuda_room room = cuda_room_of(builder->executor);
    const struct cuda_launch launch = cuda_flash_launch(
        &node.flash, capacity_of(builder, group->rows), capacity_of(builder, ROWS_RUNS), &room);
    TRY(add_node(builder, &node, launch));
cleanup:
    return status;
}

static struct cuda_wkv7_many wkv7_of(const struct phase_builder *builder, const struct op *op)
{
    struct cuda_wkv7_many wkv7 = {
        .out = phase_address(builder, op->out),
        .state = builder->executor->state.recurrent_offsets[op->wkv7.state],
        .chunks = builder->plan->scratch.packed_inputs, /* between packed inputs: nothing is rounded yet */
        .heads = op->wkv7.heads,
        .head_dim = op->wkv7.head_dim,
    };
    for (int i = 0; i < 6; i++)
        wkv7.in[i] = phase_address(builder, op->inputs[i]);
    return wkv7;
}

static enum salvo_status lower_wkv7(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t tokens = capacity_of(builder, ROWS_TOKENS), slots = capacity_of(builder, ROWS_RUNS);
    const struct cuda_node node = {
        .kind = CUDA_NODE_WKV7, .wkv7 = wkv7_of(builder, &builder->program->ops[group->first_op])};
    if (cuda_wkv7_chunk_bytes(&node.wkv7, tokens, slots)) {
        TRY(add_node(builder, &node, cuda_wkv7_prepare_launch(&node.wkv7, tokens, slots)));
        TRY(add_node(builder, &node, cuda_wkv7_chunks_launch(&node.wkv7, slots)));
    } else {
        TRY(add_node(builder, &node, cuda_wkv7_launch(&node.wkv7, slots)));
    }
cleanup:
    return status;
}

static enum salvo_status lower_sample(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_launch launch = {"salvo_sample", builder->executor->blocks, 1, SAMPLE_THREADS, 0};
    for (uint32_t stage = 0; stage < CUDA_SAMPLE_STAGES; stage++)
        TRY(add_node(builder, &(struct cuda_node){.kind = CUDA_NODE_SAMPLE, .stage = stage}, launch));
cleanup:
    return status;
}

/* `out_rounded`: the next group is included. */
static enum salvo_status lower_group(
    struct phase_builder *builder, const struct group *group, bool *out_rounded)
{
    *out_rounded = false;
    switch (group->kind) {
    case GROUP_ROWS:
        return lower_rows(builder, group, out_rounded);
    case GROUP_MATMUL:
        return lower_gemms(builder, group, out_rounded);
    case GROUP_ATTEND:
        return lower_flash(builder, group, out_rounded);
    case GROUP_WKV7:
        return lower_wkv7(builder, group);
    case GROUP_PROJECT_ATTEND: /* not asked for */
    case GROUP_SAMPLE:
        break;
    }
    return lower_sample(builder);
}

enum salvo_status cuda_nodes_build(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    const struct plan *plan = &builder->plan->plan;
    const struct cuda_node plain = {.kind = CUDA_NODE_PLAIN};
    TRY(add_node(builder, &plain, cuda_begin_launch()));
    if (builder->program->rope_count)
        TRY(add_node(builder, &plain, cuda_angles_launch(capacity_of(builder, ROWS_TOKENS))));
    bool rounded = false; /* by the group before */
    tables->packed_input_memory = packed_input_memory(builder);
    for (uint32_t i = 0; i < plan->group_count; i++) {
        tables->first_phase[i] = tables->node_count;
        if (rounded)
            rounded = false;
        else
            TRY(lower_group(builder, &plan->groups[i], &rounded));
    }
    tables->first_phase[plan->group_count] = tables->node_count;
    TRY(add_node(builder, &plain, cuda_end_launch()));
cleanup:
    return status;
}

/*
 * Matmuls of a single token. Matrices of one width in one buffer are one dispatch; each of its workgroups
 * computes the norm before them and the lerps with the previous row.
 */
#include "backend/common/fusion.h"
#include "backend/vulkan/vulkan_executor.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct matvec_arguments) <= MAX_ARGUMENT_BYTES, "every device takes as many bytes");

enum { BLOCKS_AHEAD = 4, MANY_ROWS = 8192 };

/* The first matmul stores the row for the next token's shift, so its input must be a lerp. */
static bool find_inputs(const struct executor *executor, const struct group *group, struct matmul_inputs *out)
{
    return group_matmul_inputs(executor->program, group, out) &&
           (!out->shift || group_op(executor->program, group)->inputs[1] == out->lerps->out);
}

/* The slices of one dispatch. */
struct bundle {
    const struct group *group;
    const struct matmul_inputs *inputs;
    const struct op *glu;
    uint32_t index; /* index of the group */
    struct matrix matrices[MATVEC_ENTRIES];
    uint32_t matrix_count, columns;
    uint32_t slice_count; /* of the whole group */
    bool is_normed;       /* the norm applies to these slices */
    uint64_t types;
    uint32_t buffer;
    bool is_kept; /* a dispatch already stores the row for the shift */
};

/* In large workgroups each invocation needs few registers, so that a multiprocessor can run all of them.
 * Without subgroups the sums go through shared memory, which has room for fewer invocations. */
static uint32_t threads_for(const struct executor *executor)
{
    const struct vulkan_physical *physical = executor->device.physical;
    const bool is_large = physical->features.subgroup && physical->subgroup_size >= 32 &&
                          physical->limits.maxComputeWorkGroupInvocations >= 512;
    return executor->device.physical->features.processor ? 128 : is_large ? 512 : 256;
}

static bool is_float(uint32_t type)
{
    return tensor_type_info((enum tensor_type)type)->block_elements == 1;
}

/*
 * The number of invocations that share a row, as a power of two. Few rows: as many as have a block each, for
 * the lowest latency. Many rows: as few as can load the whole row ahead. On a processor, invocations are
 * lanes of one thread, and one invocation per row is fastest.
 */
static uint32_t lanes_shift_for(const struct executor *executor, const struct bundle *bundle, bool of_floats)
{
    const uint32_t units = of_floats ? bundle->columns / 4 : bundle->columns / 32;
    uint32_t shift = 0, each = 1, rows = 0;
    for (uint32_t i = 0; i < bundle->matrix_count; i++)
        rows += bundle->matrices[i].rows;
    if (!of_floats && rows > MANY_ROWS)
        each = BLOCKS_AHEAD;
    while (!executor->device.physical->features.processor && shift < 5 && each << shift < units)
        shift++;
    return shift;
}

/* Whether the matrices fit into push constants. */
static bool is_simple(const struct bundle *bundle)
{
    bool result = bundle->matrix_count <= MATVEC_MATRICES;
    for (uint32_t i = 1; i < bundle->matrix_count && result; i++) {
        const struct matrix *a = &bundle->matrices[0], *b = &bundle->matrices[i];
        result = a->type == b->type && a->x == b->x && a->lerp == b->lerp;
    }
    return result;
}

static void describe_norm(
    const struct compiling *compiling, const struct bundle *bundle, struct matvec_arguments *out)
{
    const struct op *norm = bundle->is_normed ? bundle->inputs->norm : NULL;
    out->norm = out->norm_bias = NO_OPERAND;
    if (!norm)
        return;
    out->norm = vulkan_vector_at(compiling, norm->inputs[1]);
    if (norm->kind == OP_LAYER_NORM)
        out->norm_bias = vulkan_vector_at(compiling, norm->inputs[2]);
    out->epsilon = norm->layer_norm.epsilon;
}

/* Binds the parts of the arena that the dispatch reads and writes. */
static void bind_arena(struct compiling *compiling, struct bundle *bundle, struct dispatch *dispatch)
{
    uint64_t read = UINT64_MAX, read_end = 0, written = UINT64_MAX, written_end = 0;
    if (bundle->matrix_count == bundle->slice_count) { /* the whole group: the next one waits in any case */
        vulkan_bind(dispatch, BIND_ROUNDED, compiling->arena, false);
        vulkan_bind(dispatch, BIND_ARENA, compiling->arena, true);
        return;
    }
    /* From the first to the last float, so that dispatches of one group need no barrier between them. */
    for (uint32_t i = 0; i < bundle->matrix_count; i++) {
        const struct matrix *matrix = &bundle->matrices[i];
        const uint64_t x_end = (uint64_t)matrix->x + bundle->columns,
                       to_end = (uint64_t)matrix->to + matrix->rows;
        read = matrix->x < read ? matrix->x : read;
        read_end = x_end > read_end ? x_end : read_end;
        written = matrix->to < written ? matrix->to : written;
        written_end = to_end > written_end ? to_end : written_end;
    }
    read -= vulkan_bind_floats(compiling, dispatch, BIND_ROUNDED, read, read_end - read, false);
    written -= vulkan_bind_floats(compiling, dispatch, BIND_ARENA, written, written_end - written, true);
    for (uint32_t i = 0; i < bundle->matrix_count; i++) {
        bundle->matrices[i].x -= (uint32_t)read;
        bundle->matrices[i].to -= (uint32_t)written;
    }
}

static enum salvo_status fill_arguments(
    struct compiling *compiling, const struct bundle *bundle, struct matvec_arguments *out)
{
    enum salvo_status status = SALVO_OK;
    const struct matrix *matrices = bundle->matrices;
    const uint32_t most = is_simple(bundle) ? MATVEC_MATRICES : MATVEC_ENTRIES;
    out->x = matrices[0].x;
    out->lerp = matrices[0].lerp;
    out->first_matrix = compiling->plan->matrix_count;
    for (uint32_t i = 1; i < most; i++)
        out->words[i - 1] = i < bundle->matrix_count ? matrices[i].first_group : UINT32_MAX;
    for (uint32_t i = 0; i < bundle->matrix_count; i++) {
        if (!is_simple(bundle)) {
            TRY(vulkan_add_matrix(compiling->plan, matrices[i]));
            continue;
        }
        const struct matvec_matrix own = {
            .rows = matrices[i].rows,
            .codes = matrices[i].codes,
            .high = matrices[i].high,
            .scales = matrices[i].scales,
            .to = matrices[i].to,
            .bias = matrices[i].bias,
            .kind = matrices[i].activation | (matrices[i].flags & MATRIX_ACCUMULATE ? MATVEC_ACCUMULATES : 0),
        };
        static_assert(sizeof own == MATVEC_MATRIX_WORDS * sizeof(uint32_t), "as the shader finds it");
        memcpy(&out->words[MATVEC_MATRICES - 1 + (size_t)i * MATVEC_MATRIX_WORDS], &own, sizeof own);
    }
cleanup:
    return status;
}

/* Assigns rows to workgroups. */
static uint32_t assign_rows(
    const struct executor *executor, struct bundle *bundle, uint32_t lanes_shift, uint32_t float_shift)
{
    /* With more workgroups, each would only repeat the preparation of the input. */
    const uint32_t most_groups = executor->device.physical->features.processor ? 32 : 2048;
    const uint32_t last = bundle->glu ? 1 : bundle->matrix_count; /* gate and up are processed together */
    const uint32_t threads = threads_for(executor);
    uint32_t groups = 0;
    for (uint32_t i = 0; i < last; i++) {
        struct matrix *matrix = &bundle->matrices[i];
        const uint32_t at_once = threads >> (is_float(matrix->type) ? float_shift : lanes_shift);
        matrix->rows_per_group = at_once * ((matrix->rows / at_once + most_groups) / most_groups);
        matrix->first_group = groups;
        groups += (matrix->rows + matrix->rows_per_group - 1) / matrix->rows_per_group;
    }
    return groups;
}

/* The flags that the pipeline is specialised on. */
static uint32_t matvec_flags(
    const struct bundle *bundle, uint32_t threads, uint32_t lanes_shift, uint32_t float_shift)
{
    const struct op *norm = bundle->is_normed ? bundle->inputs->norm : NULL;
    uint32_t activation = bundle->matrices[0].activation;
    uint32_t result = lanes_shift << 8 | float_shift << 12;
    if (bundle->glu)
        result |= MATVEC_GLU;
    if (bundle->matrix_count == 1)
        result |= MATVEC_ONE_MATRIX;
    if (!is_simple(bundle))
        result |= MATVEC_TABLE;
    if (norm)
        result |= norm->kind == OP_LAYER_NORM ? MATVEC_NORM | MATVEC_LAYER_NORM : MATVEC_NORM;
    for (uint32_t i = 0; i < bundle->matrix_count; i++) {
        const struct matrix *matrix = &bundle->matrices[i];
        const uint32_t at_once = threads >> (is_float(matrix->type) ? float_shift : lanes_shift);
        if (matrix->lerp != NO_OPERAND)
            result |= MATVEC_LERP;
        if (matrix->rows_per_group > at_once)
            result |= MATVEC_LOOPS;
        if (matrix->activation != activation)
            activation = MATVEC_ANY;
    }
    return result | activation << 16;
}

static enum salvo_status finish_bundle(struct compiling *compiling, struct bundle *bundle)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const uint32_t lanes_shift = lanes_shift_for(executor, bundle, false),
                   float_shift = lanes_shift_for(executor, bundle, true);
    const struct op *shift = bundle->is_normed ? bundle->inputs->shift : NULL;
    const uint32_t groups = assign_rows(executor, bundle, lanes_shift, float_shift);
    const struct pipeline_constants constants = {
        .threads = threads_for(executor),
        .types = bundle->types,
        .extra = matvec_flags(bundle, threads_for(executor), lanes_shift, float_shift),
        .columns = bundle->columns,
    };
    struct matvec_arguments arguments = {
        .flags = bundle->group->rows,
        .shift = shift ? (uint32_t)executor->state.recurrent_offsets[shift->token_shift.state] : NO_OPERAND,
        .recurrent_elements = (uint32_t)executor->state.recurrent_elements,
    };
    struct dispatch *dispatch;
    uint32_t pipeline;
    /* The first workgroup stores the row, if its input is a lerp. */
    const bool keeps = shift && !bundle->is_kept && bundle->matrices[0].lerp != NO_OPERAND;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_MATVEC, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, bundle->index, pipeline, &arguments, sizeof arguments, &dispatch));
    dispatch->groups[0] = groups;
    for (uint32_t i = 0; i < BIND_COUNT; i++) {
        if (dispatch->bindings[i].memory == compiling->arena)
            vulkan_bind(dispatch, i, &executor->vectors, false);
    }
    bind_arena(compiling, bundle, dispatch);
    dispatch->bindings[BIND_RECURRENT] = dispatch->bindings[BIND_ARENA];
    if (shift)
        vulkan_bind(dispatch, BIND_RECURRENT, &executor->recurrent, true);
    vulkan_bind(dispatch, BIND_TABLE, &compiling->plan->matrix_table, false);
    vulkan_bind(dispatch, BIND_WEIGHTS, &executor->weight_buffers[bundle->buffer], false);
    arguments.flags |= (keeps ? MATVEC_STORES_ROW : 0) | bundle->matrices[0].rows_per_group << 8;
    describe_norm(compiling, bundle, &arguments);
    TRY(fill_arguments(compiling, bundle, &arguments));
    memcpy(dispatch->arguments, &arguments, sizeof arguments);
    bundle->is_kept |= keeps;
    bundle->matrix_count = 0;
    bundle->types = 0;
cleanup:
    return status;
}

static enum salvo_status add_slice(
    struct compiling *compiling, struct bundle *bundle, const struct op *op, const struct weight_slice *slice)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct matmul_inputs *inputs = bundle->inputs;
    const struct op *lerp = matmul_inputs_lerp(inputs, op->inputs[1]);
    const bool is_normed = lerp || (inputs->normed != NO_BUFFER && op->inputs[1] == inputs->normed);
    if (bundle->matrix_count && (bundle->matrix_count == MATVEC_ENTRIES || bundle->is_normed != is_normed ||
                                    bundle->columns != weight->columns || bundle->buffer != slice->buffer))
        TRY(finish_bundle(compiling, bundle));
    if (bundle->matrix_count == 0) {
        bundle->is_normed = is_normed;
        bundle->columns = (uint32_t)weight->columns;
        bundle->buffer = slice->buffer;
    }
    struct matrix matrix = vulkan_matrix(compiling, op, slice);
    matrix.to += slice->first_row;
    if (matrix.bias != NO_OPERAND)
        matrix.bias += slice->first_row;
    if (is_normed)
        matrix.x = vulkan_arena_at(compiling, inputs->x);
    if (bundle->glu) {
        matrix.to = vulkan_arena_at(compiling, bundle->glu->out);
        matrix.activation = bundle->glu->glu.activation;
    }
    matrix.lerp = lerp ? vulkan_vector_at(compiling, lerp->inputs[2]) : NO_OPERAND;
    bundle->types |= UINT64_C(1) << weight->type;
    bundle->matrices[bundle->matrix_count++] = matrix;
cleanup:
    return status;
}

enum salvo_status vulkan_compile_matvec(struct compiling *compiling, uint32_t index)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    const struct op *ops = group_op(executor->program, group);
    const bool fuses_gate = group->glu && vulkan_gate_fits(executor, ops);
    struct matmul_inputs inputs;
    struct bundle bundle = {
        .group = group, .inputs = &inputs, .glu = fuses_gate ? &ops[2] : NULL, .index = index};
    if (!find_inputs(executor, group, &inputs)) {
        TRY(vulkan_compile_rows(compiling, index, group->first_op, group->ops_before, NO_BUFFER));
        inputs = (struct matmul_inputs){.x = NO_BUFFER, .normed = NO_BUFFER};
    }
    for (uint32_t i = 0; i < group->matmuls; i++)
        bundle.slice_count += executor->weights[ops[i].inputs[0]].slice_count;
    for (uint32_t i = 0; i < group->matmuls; i++) {
        const struct vulkan_weight *weight = &executor->weights[ops[i].inputs[0]];
        for (uint32_t j = 0; j < weight->slice_count; j++)
            TRY(add_slice(compiling, &bundle, &ops[i], &weight->slices[j]));
    }
    TRY(finish_bundle(compiling, &bundle));
    if (group->glu && !fuses_gate)
        TRY(vulkan_compile_rows(
            compiling, index, group->first_op + group->ops_before + group->matmuls, 1, NO_BUFFER));
cleanup:
    return status;
}

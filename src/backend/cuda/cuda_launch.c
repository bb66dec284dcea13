/* Launches: of phases for one token, of nodes for many, and of the graphs that are made of them when a model
 * is opened. */
#include "backend/cuda/cuda_executor.h"

static enum salvo_status launch_decode(struct executor *executor, const struct cuda_plan *plan,
    uint32_t first, uint32_t end, uint32_t flags, uint32_t blocks)
{
    cuda_address machine = plan->tables.machine;
    flags |= executor->flags;
    void *arguments[] = {&machine, &first, &end, &flags};
    /* Blocks that wait for each other must all be resident. Blocks of one phase of a graph overlap with
     * blocks of the next phase. */
    const struct cuda_launch_attribute attribute =
        flags & CUDA_PROGRAMMATIC
            ? (struct cuda_launch_attribute){.kind = CUDA_LAUNCH_PROGRAMMATIC, .value.on = 1}
            : (struct cuda_launch_attribute){.kind = CUDA_LAUNCH_COOPERATIVE, .value.on = 1};
    struct cuda_launch_config config = {
        .grid = {blocks, 1, 1},
        .block = {CUDA_THREADS, 1, 1},
        .shared_bytes = plan->tables.shared_bytes,
        .queue = executor->queue,
        .attributes = &attribute,
        .attribute_count = flags & CUDA_PROGRAMMATIC ? executor->programmatic : executor->resident,
    };
    return CUDA_CALL(&executor->context, launch, (&config, executor->decode, arguments, NULL));
}

/* Without waits between blocks: one launch per phase, and a launch of a single block at the beginning of a
 * step and at the end of a token, in place of grid barriers. */
static enum salvo_status launch_phases_alone(
    struct executor *executor, const struct cuda_plan *plan, uint32_t first, uint32_t end, uint32_t flags)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t count = plan->tables.phase_count;
    if (flags & CUDA_TAKE_STEP)
        TRY(launch_decode(executor, plan, 0, 0, CUDA_TAKE_STEP, 1));
    for (uint32_t i = first; i < end; i++)
        TRY(launch_decode(executor, plan, i, i + 1, CUDA_PROGRAMMATIC, executor->blocks));
    if (flags & CUDA_FINISH_TOKEN)
        TRY(launch_decode(executor, plan, count, count, CUDA_FINISH_TOKEN, 1));
cleanup:
    return status;
}

enum salvo_status cuda_launch_phases(
    struct executor *executor, const struct cuda_plan *plan, uint32_t first, uint32_t end, uint32_t flags)
{
    return executor->resident ? launch_decode(executor, plan, first, end, flags, executor->blocks)
                              : launch_phases_alone(executor, plan, first, end, flags);
}

/* A tagged word has only the last bits of its token's tag, which repeat: a word that was not written for some
 * tokens could seem to belong to the new one. */
enum salvo_status cuda_tagged_words_clear(struct executor *executor)
{
    const struct cuda_plan *single = &executor->single;
    return CUDA_CALL(&executor->context, fill,
        (single->scratch.tagged_words, 0, single->tables.tagged_words, executor->queue));
}

struct cuda_room cuda_room_of(const struct executor *executor)
{
    return (struct cuda_room){
        .shared_bytes = (uint32_t)executor->device->shared_bytes,
        .multiprocessors = (uint32_t)executor->device->multiprocessors,
        .warpgroups = executor->halves,
    };
}

/* Changes a launch of attention to one for long contexts. */
static bool split_attention(const struct executor *executor, struct cuda_node *node)
{
    const struct cuda_room room = cuda_room_of(executor);
    return cuda_flash_split(&node->flash, &node->launch, &room);
}

/* is_long: attention is for long contexts. */
static enum salvo_status launch_node(
    struct executor *executor, const struct cuda_plan *plan, const struct cuda_node *node, bool is_long)
{
    cuda_address machine = plan->tables.machine, packed_inputs = plan->tables.packed_inputs_at;
    cuda_address row_table =
        plan->tables.row_tables_at + (uint64_t)node->row_table * plan->tables.row_table_bytes;
    uint32_t stage = node->stage;
    struct cuda_node copy = *node; /* the driver takes arguments that it could change */
    uint32_t cluster = 1;
    void *arguments[3] = {&machine};
    switch (node->kind) {
    case CUDA_NODE_PLAIN:
        break;
    case CUDA_NODE_ROWS:
        arguments[1] = &row_table;
        arguments[2] = &packed_inputs;
        break;
    case CUDA_NODE_NORM:
        arguments[1] = &copy.norm;
        break;
    case CUDA_NODE_ROTATE:
        arguments[1] = &copy.rotate;
        break;
    case CUDA_NODE_MIX:
        arguments[1] = &copy.mix;
        break;
    case CUDA_NODE_WKV7_INPUTS:
        arguments[1] = &copy.inputs;
        break;
    case CUDA_NODE_WKV7_RESULTS:
        arguments[1] = &copy.results;
        break;
    case CUDA_NODE_GEMM:
        cluster = copy.gemm.splits;
        arguments[1] = &copy.gemm;
        break;
    case CUDA_NODE_ATTEND:
        if (is_long)
            (void)split_attention(executor, &copy);
        cluster = copy.flash.splits;
        arguments[1] = &copy.flash;
        break;
    case CUDA_NODE_WKV7:
        arguments[1] = &copy.wkv7;
        break;
    case CUDA_NODE_SAMPLE:
        arguments[1] = &stage;
        break;
    }
    struct cuda_launch_attribute attributes[2];
    uint32_t attribute_count = 0;
    if (executor->programmatic)
        attributes[attribute_count++] =
            (struct cuda_launch_attribute){.kind = CUDA_LAUNCH_PROGRAMMATIC, .value.on = 1};
    if (cluster > 1)
        attributes[attribute_count++] =
            (struct cuda_launch_attribute){.kind = CUDA_LAUNCH_CLUSTER, .value.cluster = {cluster, 1, 1}};
    const struct cuda_launch_config config = {
        .grid = {copy.launch.grid_x, copy.launch.grid_y, 1},
        .block = {copy.launch.threads, 1, 1},
        .shared_bytes = copy.launch.shared_bytes,
        .queue = executor->queue,
        .attributes = attributes,
        .attribute_count = attribute_count,
    };
    return CUDA_CALL(&executor->context, launch, (&config, node->function, arguments, NULL));
}

enum salvo_status cuda_launch_node(
    struct executor *executor, const struct cuda_plan *plan, uint32_t index, bool is_long)
{
    return launch_node(executor, plan, &plan->tables.nodes[index], is_long);
}

/* The plan for one token has no nodes; the nodes of any plan for many tokens are equivalent. */
enum salvo_status cuda_launch_sampling(struct executor *executor, const struct cuda_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_tables *tables = &executor->many[0].tables;
    TRY(launch_node(executor, plan, &tables->nodes[0], false));
    for (uint32_t i = 1; i < tables->node_count; i++) {
        if (tables->nodes[i].kind == CUDA_NODE_SAMPLE)
            TRY(launch_node(executor, plan, &tables->nodes[i], false));
    }
    TRY(launch_node(executor, plan, &tables->nodes[tables->node_count - 1], false));
cleanup:
    return status;
}

/* ---- Graphs ---- */

/* Launches between these calls become a graph. */
static enum salvo_status end_capture(
    struct executor *executor, enum salvo_status launched, cuda_graph_exec *out)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    cuda_graph graph = NULL;
    status = CUDA_CALL(context, capture_end, (executor->queue, &graph));
    if (launched != SALVO_OK)
        TRY(launched);
    TRY(status);
    TRY(CUDA_CALL(context, graph_instantiate, (out, graph, 0)));
    context->creations++;
    TRY(CUDA_CALL(context, graph_upload, (*out, executor->queue)));
cleanup:
    if (graph)
        (void)context->driver->graph_free(graph);
    return status;
}

static enum salvo_status launch_nodes(struct executor *executor, const struct cuda_plan *plan, bool is_long)
{
    enum salvo_status status = SALVO_OK;
    for (uint32_t i = 0; i < plan->tables.node_count; i++)
        TRY(launch_node(executor, plan, &plan->tables.nodes[i], is_long));
cleanup:
    return status;
}

static enum salvo_status capture_nodes(
    struct executor *executor, const struct cuda_plan *plan, bool is_long, cuda_graph_exec *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(CUDA_CALL(&executor->context, capture_begin, (executor->queue, CUDA_CAPTURE_RELAXED)));
    TRY(end_capture(executor, launch_nodes(executor, plan, is_long), out));
cleanup:
    return status;
}

/* Whether steps of the plan can be long, and a launch of attention then differs. */
static bool splits_attention(const struct executor *executor, const struct cuda_plan *plan)
{
    if (executor->options.context <= FLASH_LONG_CONTEXT)
        return false;
    for (uint32_t i = 0; i < plan->tables.node_count; i++) {
        struct cuda_node node = plan->tables.nodes[i];
        if (node.kind == CUDA_NODE_ATTEND && split_attention(executor, &node))
            return true;
    }
    return false;
}

/* All phases of a token. */
static enum salvo_status launch_token(struct executor *executor, const struct cuda_plan *plan)
{
    return cuda_launch_phases(
        executor, plan, 0, plan->tables.phase_count, CUDA_TAKE_STEP | CUDA_FINISH_TOKEN);
}

enum salvo_status cuda_graphs_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    executor->programmatic = executor->device->major >= 9;
    for (uint32_t i = 0; i < executor->many_count; i++) {
        struct cuda_plan *plan = &executor->many[i];
        TRY(capture_nodes(executor, plan, false, &plan->graph));
        if (splits_attention(executor, plan))
            TRY(capture_nodes(executor, plan, true, &plan->long_graph));
    }
    if (!executor->resident) {
        TRY(CUDA_CALL(context, capture_begin, (executor->queue, CUDA_CAPTURE_RELAXED)));
        TRY(end_capture(executor, launch_token(executor, &executor->single), &executor->single.graph));
    }
    TRY(cuda_queue_wait(executor));
cleanup:
    return status;
}

/* ---- One submission ---- */

const struct cuda_plan *cuda_plan_for(const struct executor *executor, uint32_t tokens)
{
    uint32_t i = 0;
    if (tokens == 1)
        return &executor->single;
    while (i + 1 < executor->many_count && executor->many[i].plan.capacity[ROWS_TOKENS] < tokens)
        i++;
    return &executor->many[i];
}

enum salvo_status cuda_launch_plan(struct executor *executor, const struct cuda_plan *plan, bool is_long)
{
    cuda_graph_exec graph = plan->graph;
    if (plan->long_graph && is_long)
        graph = plan->long_graph;
    if (graph)
        return CUDA_CALL(&executor->context, graph_launch, (graph, executor->queue));
    return launch_token(executor, plan);
}

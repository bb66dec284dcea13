/* The parameters of attention, for one token and for many. */
#include "backend/cuda/cuda_phase.h"

static bool is_tiled(const struct executor *executor, const struct op *op)
{
    return executor->options.kv_type == TYPE_F16 && (op->attend.head_dim == 64 || op->attend.head_dim == 128);
}

static uint32_t splits_for(const struct executor *executor, const struct op *op)
{
    const uint32_t each = op->attend.heads / op->attend.kv_heads;
    const uint32_t heads = is_tiled(executor, op) ? CUDA_TILE_HEADS : CUDA_LANES_HEADS;
    const uint32_t tasks = op->attend.kv_heads * ((each + heads - 1) / heads);
    uint32_t splits = executor->blocks / tasks;
    splits = splits < 1 || !executor->resident ? 1 : splits; /* splits wait for each other */
    return splits > CUDA_MOST_SPLITS ? CUDA_MOST_SPLITS : splits;
}

struct cuda_attend cuda_attend_of(struct phase_builder *builder, const struct op *op)
{
    const struct executor *executor = builder->executor;
    return (struct cuda_attend){
        .q = phase_address(builder, op->inputs[0]),
        .out = phase_writes(builder, op->out),
        .keys = executor->kv_addresses[op->attend.key_state],
        .values = executor->kv_addresses[op->attend.value_state],
        .heads = op->attend.heads,
        .kv_heads = op->attend.kv_heads,
        .head_dim = op->attend.head_dim,
        .window = op->attend.window,
        .kv_type = executor->options.kv_type,
        .rope_q = CUDA_NONE,
        .rope_k = CUDA_NONE,
        .splits = splits_for(executor, op),
        .tiled = is_tiled(executor, op),
        .scale = op->attend.scale,
        .cap = op->attend.cap,
    };
}

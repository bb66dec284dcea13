/*
 * Row ops of RWKV-7 for many tokens, without row tables.
 *
 *   salvo_rwkv7_mix(machine, mix)           mix.blocks blocks for each row: norm, token shift and lerps
 *   salvo_rwkv7_inputs(machine, inputs)     blocks of HEADS_THREADS for each row: before the recurrence
 *   salvo_rwkv7_results(machine, results)   the same: after it
 *
 * Four columns a thread, in registers. With few rows the time is that of one load after another, so that
 * everything that does not depend on the launch before is loaded before the wait.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"

KERNEL_INLINE float sum_of_four(float4 x)
{
    return (x.x + x.y) + (x.z + x.w);
}

KERNEL_INLINE float square_of_four(float4 x)
{
    return fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.y, x.y, x.x * x.x)));
}

KERNEL_INLINE float4 less(float4 x, float y)
{
    return make_float4(x.x - y, x.y - y, x.z - y, x.w - y);
}

/* (x * scale) * weight + bias */
KERNEL_INLINE float4 scale_four(float4 x, float scale, float4 weight, float4 bias)
{
    return make_float4(fmaf(x.x * scale, weight.x, bias.x), fmaf(x.y * scale, weight.y, bias.y),
        fmaf(x.z * scale, weight.z, bias.z), fmaf(x.w * scale, weight.w, bias.w));
}

KERNEL_INLINE float4 multiply_four(float4 x, float4 y)
{
    return make_float4(x.x * y.x, x.y * y.y, x.z * y.z, x.w * y.w);
}

KERNEL_INLINE float4 mix_four(float4 x, float4 y, float4 share)
{
    return make_float4(fmaf(y.x - x.x, share.x, x.x), fmaf(y.y - x.y, share.y, x.y),
        fmaf(y.z - x.z, share.z, x.z), fmaf(y.w - x.w, share.w, x.w));
}

/* ---- Norm, token shift and lerps ---- */

/* Two sums over a block, for all of its threads; `place` is for one call alone. */
KERNEL_INLINE float2 sum_pairs(float2 value, float2 *place)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2) {
        value.x += __shfl_xor_sync(~0u, value.x, distance);
        value.y += __shfl_xor_sync(~0u, value.y, distance);
    }
    if (threadIdx.x % 32 == 0)
        place[threadIdx.x / 32] = value;
    __syncthreads();
    float2 sum = place[0];
#pragma unroll 4
    for (uint32_t i = 1; i < blockDim.x / 32; i++) {
        sum.x += place[i].x;
        sum.y += place[i].y;
    }
    return sum;
}

/* The norm of a row and of the row before it, whose first columns the thread has. */
KERNEL_INLINE void normalise_pair(const cuda_mix &mix, bool on, float4 weight, float4 bias,
    float2 (*places)[MIX_THREADS / 32], float4 &x, float4 &y)
{
    const float columns = (float)mix.columns;
    if (mix.bias) {
        const float2 sums = sum_pairs(make_float2(sum_of_four(x), sum_of_four(y)), places[0]);
        if (on) {
            x = less(x, sums.x / columns);
            y = less(y, sums.y / columns);
        }
    }
    const float2 squares = sum_pairs(make_float2(square_of_four(x), square_of_four(y)), places[1]);
    x = scale_four(x, 1 / sqrtf(squares.x / columns + mix.epsilon), weight, bias);
    y = scale_four(y, 1 / sqrtf(squares.y / columns + mix.epsilon), weight, bias);
}

/* A row and its neighbour in the run. */
struct mix_place {
    bool is_live, follows; /* follows: the previous row is one of the step */
    bool is_early;
    const float *before; /* the state that the step reads; NULL: there is none, or the row does not need it */
    float *after;        /* where the row becomes the new state, or NULL */

    KERNEL_INLINE mix_place(const cuda_machine *machine, uint64_t state, uint32_t row)
        : is_live(false), follows(false), is_early(false), before(nullptr), after(nullptr)
    {
        const uint64_t step = __ldg(&machine->step), elements = __ldg(&machine->recurrent_elements),
                       recurrent = __ldg(&machine->recurrent), slots = __ldg(&machine->slot_states);
        const cuda_run *runs = (const cuda_run *)(step + __ldg(&machine->runs_at));
        /* Run, slot and position. The table has room for all rows, live or not. */
        const uint4 place = __ldcg((const uint4 *)(step + __ldg(&machine->rows_at)) + row);
        if (row >= __ldcg(&((const cuda_step *)step)->token_count))
            return;
        const cuda_run *run = runs + place.x;
        const uint32_t first_row = __ldcg(&run->first_row), count = __ldcg(&run->count),
                       first = __ldcg(&run->first),
                       version = __ldcg(&((const cuda_slot *)slots)[place.y].version);
        float *states = (float *)recurrent + (uint64_t)place.y * 2 * elements + state;
        is_live = count != 0;
        follows = row > first_row;
        is_early = place.z < EARLY_POSITIONS;
        if (!follows && first != 0)
            before = states + version * elements;
        if (row + 1 == first_row + count)
            after = states + (1 - version) * elements;
    }
};

extern "C" __global__ void __launch_bounds__(MIX_THREADS)
    salvo_rwkv7_mix(const cuda_machine *machine, const __grid_constant__ cuda_mix mix)
{
    __shared__ float2 sums[2][MIX_THREADS / 32];
    const float4 zeros = make_float4(0, 0, 0, 0);
    const uint32_t row = blockIdx.x, column = threadIdx.x * 4, columns = mix.columns, count = mix.count,
                   blocks = mix.blocks;
    const bool on = column < columns, is_first = on && blockIdx.y == 0;
    const uint64_t at = (uint64_t)row * columns + column;
    uint32_t index = blockIdx.y;
    float4 weight = zeros, bias = zeros, share = zeros, before = zeros;
    invite_next_launch();
    if (mix.weight)
        weight = load_four((const float *)mix.weight, column, columns);
    if (mix.bias)
        bias = load_four((const float *)mix.bias, column, columns);
    if (index < count)
        share = load_four((const float *)mix.lerps[index].weight, column, columns);
    const mix_place place(machine, mix.state, row);
    const bool follows = place.follows && count;
    if (place.is_live && place.before && count)
        before = load_four(place.before, column, columns);
    wait_for_last_launch();
    if (!place.is_live)
        return;

    const float *x = (const float *)mix.x + (uint64_t)row * columns;
    float4 own = load_four(x, column, columns), last = zeros;
    if (follows)
        last = load_four(x - columns, column, columns);
    if (mix.weight)
        normalise_pair(mix, on, weight, bias, sums, own, last);
    if (follows)
        before = last;
    if (is_first) {
        if (mix.out)
            __stcg((float4 *)((float *)mix.out + at), own);
        if (mix.before)
            __stcg((float4 *)((float *)mix.before + at), before);
        if (count && place.after)
            __stcg((float4 *)(place.after + column), own);
    }
#pragma unroll 1
    for (; index < count; index += blocks) {
        const cuda_mix_lerp &lerp = mix.lerps[index];
        const float4 mixed = mix_four(own, before, share);
        if (index + blocks < count)
            share = load_four((const float *)mix.lerps[index + blocks].weight, column, columns);
        if (lerp.out && on)
            __stcg((float4 *)((float *)lerp.out + at), mixed);
        if (lerp.packed.values)
            round_to_packed_input(lerp.packed, row, column, mixed, lerp.packed.fine || place.is_early);
    }
}

/* ---- Around the recurrence ---- */

/* A sum over the `lanes` threads of a head, a power of two. */
KERNEL_INLINE float sum_of_head(float value, uint32_t lanes)
{
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        if (distance < lanes)
            value += __shfl_xor_sync(~0u, value, (int)distance);
    }
    return value;
}

KERNEL_INLINE float4 load_row(uint64_t rows, uint64_t at, bool on)
{
    return on ? __ldcg((const float4 *)((const float *)rows + at)) : make_float4(0, 0, 0, 0);
}

extern "C" __global__ void __launch_bounds__(HEADS_THREADS)
    salvo_rwkv7_inputs(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_inputs inputs)
{
    const uint32_t row = blockIdx.x, column = (blockIdx.y * HEADS_THREADS + threadIdx.x) * 4,
                   columns = inputs.columns;
    const bool on = column < columns;
    const uint64_t at = (uint64_t)row * columns + column;
    invite_next_launch();
    const float4 to_direction = load_row(inputs.direction_weight, column, on),
                 to_key = load_row(inputs.key_weight, column, on);
    const uint32_t live = live_rows((const cuda_step *)__ldg(&machine->step), ROWS_TOKENS, row, 1);
    wait_for_last_launch();
    if (live == 0)
        return;
    const float4 k = load_row(inputs.k, at, on), a = load_row(inputs.a, at, on);
    float4 v = make_float4(0, 0, 0, 0), first = v, share = v;
    if (inputs.v) {
        v = load_row(inputs.v, at, on);
        first = load_row(inputs.first, at, on);
        share = load_row(inputs.share, at, on);
    }
    const float length =
                    sqrtf(sum_of_head(square_of_four(multiply_four(k, to_direction)), inputs.head_dim / 4)),
                scale = 1 / (length < inputs.epsilon ? inputs.epsilon : length);
    if (!on)
        return;
    __stcg((float4 *)((float *)inputs.kk + at),
        make_float4(k.x * scale * to_direction.x, k.y * scale * to_direction.y, k.z * scale * to_direction.z,
            k.w * scale * to_direction.w));
    __stcg((float4 *)((float *)inputs.key + at),
        make_float4(k.x * fmaf(a.x - 1, to_key.x, 1), k.y * fmaf(a.y - 1, to_key.y, 1),
            k.z * fmaf(a.z - 1, to_key.z, 1), k.w * fmaf(a.w - 1, to_key.w, 1)));
    if (inputs.v)
        __stcg((float4 *)((float *)inputs.value + at), mix_four(v, first, share));
}

extern "C" __global__ void __launch_bounds__(HEADS_THREADS)
    salvo_rwkv7_results(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_results results)
{
    const uint32_t row = blockIdx.x, column = (blockIdx.y * HEADS_THREADS + threadIdx.x) * 4,
                   columns = results.columns, lanes = results.head_dim / 4;
    const bool on = column < columns, has_norm = results.weight;
    const uint64_t at = (uint64_t)row * columns + column;
    const float4 zeros = make_float4(0, 0, 0, 0);
    invite_next_launch();
    const float4 to_bonus = load_row(results.bonus_weight, column, on),
                 weight = load_row(results.weight, column, on && has_norm),
                 bias = load_row(results.bias, column, on && has_norm);
    const uint32_t live = live_rows((const cuda_step *)__ldg(&machine->step), ROWS_TOKENS, row, 1);
    const bool fine = results.packed.fine || is_early_row(results.token_rows, row);
    wait_for_last_launch();
    if (live == 0)
        return;
    float4 y = load_row(results.y, at, on);
    const float4 r = load_row(results.r, at, on), key = load_row(results.key, at, on),
                 value = load_row(results.value, at, on);
    float4 gate = make_float4(1, 1, 1, 1);
    if (results.gate)
        gate = load_row(results.gate, at, on);
    const float4 product = multiply_four(r, key);
    const float bonus =
        sum_of_head(fmaf(product.w, to_bonus.w,
                        fmaf(product.z, to_bonus.z, fmaf(product.y, to_bonus.y, product.x * to_bonus.x))),
            lanes);
    if (has_norm) {
        const float count = (float)results.head_dim;
        y = less(y, sum_of_head(sum_of_four(y), lanes) / count);
        const float squares = sum_of_head(square_of_four(y), lanes);
        y = scale_four(y, 1 / sqrtf(squares / count + results.epsilon), weight, bias);
    }
    y = make_float4(fmaf(bonus, value.x, y.x), fmaf(bonus, value.y, y.y), fmaf(bonus, value.z, y.z),
        fmaf(bonus, value.w, y.w));
    y = on ? multiply_four(y, gate) : zeros;
    if (results.out && on)
        __stcg((float4 *)((float *)results.out + at), y);
    /* Whole warps: a packed input has a multiple of 128 columns. */
    if (results.packed.values && column < results.packed.columns)
        round_to_packed_input(results.packed, row, column, y, fine);
}

/*
 * Row ops on vectors in shared memory, by THREADS of a block together. Ops that work column by column leave
 * each column with the thread that had it before (columns thread, thread + THREADS, ...), so that chains of
 * them need no barrier; the others wait before and after.
 */
#ifndef CUDA_ROWS_CUH
#define CUDA_ROWS_CUH

#include "backend/cuda/kernels/common/kv_cache.cuh"
#include "program/step.h"

/* A row of a step, and the work of a block on it. */
struct row_context {
    uint32_t row, slot, position;
    uint32_t run_first_row, run_count, run_first; /* of its run: first row, rows, first position */
    uint32_t version;                             /* of the recurrent states that the step reads */
    int32_t id;                                   /* its token */
    const uint32_t *pages;
    const float *cosines, *sines; /* of its position, [ropes][rope_pairs] */
    bool keeps;                   /* this block writes new states */
    uint32_t first, count;        /* columns to work on; count 0: all of an op's */
};

/* A quarter of a lane's elements of a weight tile: elements 8 * piece .. of its 32. */
template <int TYPE>
KERNEL_INLINE void look_up_eight(const uint8_t *tile, uint32_t lane, uint32_t piece, float (&values)[8])
{
    const lane_codes<TYPE> codes = load_codes<TYPE>(tile, (int)lane);
    if constexpr (tile_format<TYPE>::group == 0) {
        unpack_floats<TYPE>(codes, (int)piece, values);
    } else {
        uint32_t words[8];
        unpack_codes<TYPE>(codes, words);
        const lane_scales scales = unpack_scales<TYPE>(codes);
        const uint32_t low = piece & 1   ? piece & 2 ? words[6] : words[2]
                               : piece & 2 ? words[4]
                                         : words[0],
                       high = piece & 1   ? piece & 2 ? words[7] : words[3]
                                : piece & 2 ? words[5]
                                          : words[1];
        for (int j = 0; j < 8; j++) {
            const float code = (float)(int8_t)((j < 4 ? low : high) >> (8 * (j % 4)));
            const float product = __fmul_rn(piece & 2 ? scales.scale[1] : scales.scale[0], code);
            values[j] = tile_format<TYPE>::offsets
                            ? __fadd_rn(product, piece & 2 ? scales.offset[1] : scales.offset[0])
                            : product;
        }
    }
}

template <int THREADS> struct row_worker {
    const cuda_machine &machine;
    float *vectors; /* shared memory */
    float *scratch; /* shared memory: 2 * THREADS / 32 floats */
    uint32_t calls;
    const row_context &row;

    KERNEL_INLINE uint32_t columns_of(const cuda_row_op &op) const
    {
        return row.count ? row.count : op.columns;
    }

    KERNEL_INLINE const float *weight_of(uint64_t address) const
    {
        return address ? (const float *)address + row.first : nullptr;
    }

    KERNEL_INLINE float *recurrent(uint32_t version, uint64_t state) const
    {
        return (float *)machine.recurrent + ((uint64_t)row.slot * 2 + version) * machine.recurrent_elements +
               state;
    }

    /* ---- embed ---- */

    template <int TYPE> KERNEL_INLINE void embed(const cuda_matrix &matrix, float scale, float *out) const
    {
        const uint32_t tile = (uint32_t)row.id / CUDA_TILE_ROWS, lane_row = (uint32_t)row.id % CUDA_TILE_ROWS;
        for (uint32_t i = threadIdx.x; i < (matrix.columns + 7) / 8; i += THREADS) {
            const uint32_t block = i / 4;
            float values[8];
            look_up_eight<TYPE>((const uint8_t *)tile_address(matrix, tile, block / 4),
                lane_row * 4 + block % 4, i % 4, values);
            for (uint32_t j = 0; j < 8 && i * 8 + j < matrix.columns; j++)
                out[i * 8 + j] = scale == 1 ? values[j] : values[j] * scale;
        }
    }

    KERNEL_INLINE void embed_any(const cuda_row_op &op) const
    {
        const cuda_matrix &matrix = ((const cuda_matrix *)machine.matrices)[op.matrix];
        float *out = vectors + op.out;
#define EMBED(type, ...)                           \
    case TYPE_##type:                              \
        embed<TYPE_##type>(matrix, op.value, out); \
        break;
        CUDA_WITH_TYPE(matrix.type, EMBED)
#undef EMBED
    }

    /* ---- Norms ---- */

    /* One group by a warp, or all columns by the block. */
    template <bool WHOLE> KERNEL_INLINE float sum_of(float value)
    {
        return WHOLE ? block_sum<THREADS>(value, scratch, calls) : warp_sum(value);
    }

    template <bool WHOLE>
    KERNEL_INLINE void normalise_group(const cuda_row_op &op, const float *x, const float *weight,
        const float *bias, uint32_t group, float *out)
    {
        const uint32_t first = WHOLE ? threadIdx.x : threadIdx.x % 32, step = WHOLE ? THREADS : 32;
        float mean = 0, squares = 0, scale;
        if (op.kind == OP_LAYER_NORM) {
            float sum = 0;
            for (uint32_t i = first; i < group; i += step)
                sum += x[i];
            mean = sum_of<WHOLE>(sum) / (float)group;
        }
        const bool weighted_first = op.kind == OP_L2_NORM && weight;
        for (uint32_t i = first; i < group; i += step) {
            const float y = weighted_first ? x[i] * weight[i] : x[i] - mean;
            squares = fmaf(y, y, squares);
        }
        squares = sum_of<WHOLE>(squares);
        if (op.kind == OP_L2_NORM) {
            const float length = sqrtf(squares);
            scale = 1 / (length < op.value ? op.value : length);
        } else {
            scale = 1 / sqrtf(squares / (float)group + op.value);
        }
        for (uint32_t i = first; i < group; i += step) {
            const float y = (x[i] - mean) * scale;
            out[i] = bias ? fmaf(y, weight[i], bias[i]) : weight ? y * weight[i] : y;
        }
    }

    /* RMS norms have one weight for every group, other norms one for each column. */
    KERNEL_INLINE void normalise(const cuda_row_op &op)
    {
        const uint32_t columns = columns_of(op), group = op.group;
        const float *x = vectors + op.in[0];
        float *out = vectors + op.out;
        const bool rms = op.kind == OP_RMS_NORM;
        const float *weight = rms && group < op.columns ? (const float *)op.weight : weight_of(op.weight);
        const float *bias = weight_of(op.bias);
        if (group == columns && columns > 64) {
            normalise_group<true>(op, x, weight, bias, group, out);
            return;
        }
        sync_threads<THREADS>();
        for (uint32_t i = threadIdx.x / 32 * group; i < columns; i += THREADS / 32 * group)
            normalise_group<false>(
                op, x + i, weight && !rms ? weight + i : weight, bias ? bias + i : nullptr, group, out + i);
        sync_threads<THREADS>();
    }

    /* ---- The others ---- */

    KERNEL_INLINE void rotate(const cuda_row_op &op) const
    {
        const uint32_t pairs = op.dimensions / 2, heads = columns_of(op) / op.head_dim;
        const float *cosines = row.cosines + op.rope * machine.rope_pairs,
                    *sines = row.sines + op.rope * machine.rope_pairs;
        sync_threads<THREADS>();
        for (uint32_t i = threadIdx.x; i < heads * pairs; i += THREADS) {
            const uint32_t pair = i % pairs;
            float *head = vectors + op.out + i / pairs * op.head_dim;
            float *a = head + (op.halves ? pair : 2 * pair), *b = op.halves ? a + pairs : a + 1;
            const float cosine = cosines[pair], sine = sines[pair], left = *a, right = *b;
            *a = fmaf(left, cosine, -(right * sine));
            *b = fmaf(right, cosine, left * sine);
        }
        sync_threads<THREADS>();
    }

    KERNEL_INLINE void bonus(const cuda_row_op &op) const
    {
        const uint32_t columns = columns_of(op), head_dim = op.head_dim;
        const float *weight = weight_of(op.weight);
        sync_threads<THREADS>();
        for (uint32_t at = threadIdx.x / 32 * head_dim; at < columns; at += THREADS / 32 * head_dim) {
            const float *x = vectors + op.in[0] + at, *r = vectors + op.in[1] + at,
                        *k = vectors + op.in[2] + at, *v = vectors + op.in[3] + at;
            float sum = 0;
            for (uint32_t i = threadIdx.x % 32; i < head_dim; i += 32)
                sum += r[i] * k[i] * weight[at + i];
            sum = warp_sum(sum);
            for (uint32_t i = threadIdx.x % 32; i < head_dim; i += 32)
                vectors[op.out + at + i] = fmaf(sum, v[i], x[i]);
        }
        sync_threads<THREADS>();
    }

    KERNEL_INLINE void shift(const cuda_row_op &op) const
    {
        const bool has_row = row.row > row.run_first_row;
        const float *before = has_row ? (const float *)op.rows + (uint64_t)(row.row - 1) * op.columns
                                      : recurrent(row.version, op.state);
        const bool is_zero = !has_row && row.run_first == 0;
        const bool keeps = row.keeps && row.row + 1 == row.run_first_row + row.run_count;
        float *after = recurrent(1 - row.version, op.state);
        for (uint32_t i = threadIdx.x; i < op.columns; i += THREADS) {
            const float own = vectors[op.in[0] + i];
            vectors[op.out + i] = is_zero ? 0 : __ldcg(before + i);
            if (keeps)
                after[i] = own;
        }
    }

    KERNEL_INLINE void run(const cuda_row_op &op)
    {
        const uint32_t columns = columns_of(op);
        const float *x = vectors + op.in[0], *y = vectors + op.in[1], *z = vectors + op.in[2];
        const float *weight = weight_of(op.weight);
        float *out = vectors + op.out;
        switch (op.kind) {
        case OP_EMBED:
            embed_any(op);
            sync_threads<THREADS>();
            break;
        case OP_RMS_NORM:
        case OP_LAYER_NORM:
        case OP_L2_NORM:
            normalise(op);
            break;
        case OP_ROPE:
            rotate(op);
            break;
        case OP_KV_APPEND:
            sync_threads<THREADS>();
            append_rows(op);
            break;
        case OP_GLU:
            for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
                out[i] = gated(op.activation, x[i]) * y[i];
            break;
        case OP_ADD:
            for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
                out[i] += x[i];
            break;
        case OP_MUL:
            for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
                out[i] = x[i] * y[i];
            break;
        case OP_LERP:
            for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
                out[i] = fmaf(y[i] - x[i], weight ? weight[i] : z[i], x[i]);
            break;
        case OP_TOKEN_SHIFT:
            shift(op);
            break;
        case OP_RWKV_KEY:
            for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
                out[i] = x[i] * fmaf(y[i] - 1, weight[i], 1);
            break;
        case OP_RWKV_BONUS:
            bonus(op);
            break;
        case OP_SELECT_ROWS:
            for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
                out[i] = x[i];
            break;
        case OP_SOFTCAP:
            for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
                out[i] = op.value * tanhf(out[i] / op.value);
            break;
        default:
            break;
        }
    }

    /* Ops one after the other. Neighbouring lerps of the same two vectors are done together, so that their
     * weights are loaded at once. */
    KERNEL_INLINE void run_all(const cuda_row_op *ops, uint32_t count)
    {
        for (uint32_t i = 0; i < count;) {
            uint32_t lerps = 0;
            while (i + lerps < count && lerps < MOST_LERPS && ops[i + lerps].kind == OP_LERP &&
                   ops[i + lerps].weight && ops[i + lerps].in[0] == ops[i].in[0] &&
                   ops[i + lerps].in[1] == ops[i].in[1] && ops[i + lerps].out != ops[i].in[0] &&
                   ops[i + lerps].out != ops[i].in[1])
                lerps++;
            if (lerps > 1) {
                run_lerps(ops + i, lerps);
                i += lerps;
            } else {
                run(ops[i++]);
            }
        }
    }

    enum { MOST_LERPS = 6 };

    KERNEL_INLINE void run_lerps(const cuda_row_op *ops, uint32_t count)
    {
        const uint32_t columns = columns_of(ops[0]);
        for (uint32_t i = threadIdx.x; i < columns; i += THREADS) {
            float weights[MOST_LERPS];
#pragma unroll
            for (uint32_t j = 0; j < MOST_LERPS; j++)
                weights[j] = j < count ? __ldg((const float *)ops[j].weight + row.first + i) : 0;
            const float x = vectors[ops[0].in[0] + i], y = vectors[ops[0].in[1] + i] - x;
#pragma unroll
            for (uint32_t j = 0; j < MOST_LERPS; j++) {
                if (j < count)
                    vectors[ops[j].out + i] = fmaf(y, weights[j], x);
            }
        }
    }

    /* ---- The KV cache ---- */

    KERNEL_INLINE void append_rows(const cuda_row_op &op) const;
};

/* `activation` holds the type of the cache here. */
template <int THREADS> KERNEL_INLINE void row_worker<THREADS>::append_rows(const cuda_row_op &op) const
{
    const uint32_t groups = (op.head_dim + 31) / 32, page = row.pages[row.position / PAGE_POSITIONS];
    for (uint32_t i = threadIdx.x / 32; i < op.heads * groups * 2; i += THREADS / 32) {
        const uint32_t head = i / 2 / groups, first = i / 2 % groups * 32;
        const bool is_value = i % 2;
        const kv_head place =
            find_kv_head(is_value ? op.values : op.state, page, op.heads, head, op.head_dim, op.activation);
        append_group(place, op.activation, row.position, op.head_dim, first,
            vectors + op.in[is_value] + head * op.head_dim);
    }
}

/* Sixteen bytes of memory to shared memory, without waiting. */
KERNEL_INLINE void start_copy_of_16(float *to, const float *from)
{
#ifdef CUDA_EMULATOR
    for (int i = 0; i < 4; i++)
        to[i] = from[i];
#else
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
        : "memory");
#endif
}

KERNEL_INLINE void wait_for_copies()
{
#ifndef CUDA_EMULATOR
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* Loads a row's vectors into shared memory, all at once; a barrier must follow. */
template <int THREADS>
KERNEL_INLINE void load_vectors(const cuda_machine &machine, const cuda_load *loads, uint32_t count,
    float *vectors, const row_context &row)
{
    const uint32_t *outputs = (const uint32_t *)(machine.step + machine.outputs_at);
    for (uint32_t i = 0; i < count; i++) {
        const cuda_load &load = loads[i];
        const uint32_t from = load.kind == CUDA_LOAD_SELECTED ? __ldcg(outputs + row.row) : row.row;
        const float *source = (const float *)load.from + (uint64_t)from * load.columns + row.first;
        const uint32_t columns = row.count ? row.count : load.columns;
        if ((columns | load.columns | row.first) % 4 == 0) {
            for (uint32_t j = threadIdx.x * 4; j < columns; j += THREADS * 4)
                start_copy_of_16(vectors + load.place + j, source + j);
        } else {
            for (uint32_t j = threadIdx.x; j < columns; j += THREADS)
                vectors[load.place + j] = __ldcg(source + j);
        }
    }
    wait_for_copies();
}

template <int THREADS>
KERNEL_INLINE void store_vectors(
    const cuda_store *stores, uint32_t count, const float *vectors, const row_context &row)
{
    for (uint32_t i = 0; i < count; i++) {
        const cuda_store &store = stores[i];
        float *to = (float *)store.to + (uint64_t)row.row * store.columns + row.first;
        const uint32_t columns = row.count ? row.count : store.columns;
        for (uint32_t j = threadIdx.x; j < columns; j += THREADS)
            __stcg(to + j, vectors[store.place + j]);
    }
}

#endif

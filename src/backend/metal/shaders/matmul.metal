inline void write_product(constant matmul_arguments &arguments, device const float *vectors, device float *arena,
    uint row, uint token, float sum)
{
    device float *to = arena + arguments.to + (ulong)token * arguments.rows + row;
    if (arguments.bias != METAL_NO_OPERAND)
        sum += vectors[arguments.bias + row];
    sum = activate(arguments.activation, sum);
    *to = arguments.accumulates ? *to + sum : sum;
}

/* Sums are without fast math, which might give them another order for each choice of function constants. */

/* The factor of the RMS norm of a row, computed by each simdgroup. */
inline float norm_scale(uint columns, float epsilon, device const float *x, uint tid)
{
#pragma METAL fp math_mode(safe)
    float sum = 0;
    for (uint i = tid % 32; i < columns; i += 32)
        sum = fma(x[i], x[i], sum);
    sum = simd_sum(sum);
    return 1.0f / precise::sqrt(sum / (float)columns + epsilon);
}

/* A partial sum plus weights times up to 16 columns of x; `norm` has the weights of the norm of these columns. */
inline float add_part(float sum, thread const float *values, device const float *x, uint width, float scale,
    device const float *norm)
{
#pragma METAL fp math_mode(safe)
    float product = 0;
    UNROLL for (uint i = 0; i < 16; i++) {
        if (i >= width)
            continue;
        float value = NORMS ? x[i] * scale * norm[i] : x[i];
        product = fma(values[i], ROUNDS ? rounded_to_half(value) : value, product);
    }
    return sum + product;
}

/* The sum of a row, for each thread of its team: a tree of LANES * SUMS partial sums. */
inline float sum_of_team(thread const float *sums)
{
#pragma METAL fp math_mode(safe)
    float sum = SUMS == 2 ? sums[0] + sums[1] : sums[0];
    for (uint distance = LANES / 2; distance > 0; distance /= 2)
        sum += simd_shuffle_xor(sum, (ushort)distance);
    return sum;
}

/*
 * Matrix times rows. A team of LANES threads shares a row of the matrix, so that short rows occupy all threads, and takes
 * ROWS of them; TOKENS rows of x share the unpacked weights. For one row of x, the RMS norm of x (NORMS) or the gate of a
 * feed-forward (GATES) may be a part of it: then the second sum is the product of the second matrix. A thread has SUMS
 * partial sums of a row, those of as many threads of a larger team: LANES * SUMS follows from the columns alone, and
 * results do not depend on LANES, ROWS and SIMDGROUPS.
 */
kernel void matmul(constant matmul_arguments &arguments [[buffer(0)]], device const uchar *weights [[buffer(1)]],
    device float *arena [[buffer(2)]], device const float *vectors [[buffer(3)]],
    device step_header *step [[buffer(4)]], device const uchar *gated_weights [[buffer(5)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    uint teams = 32 * SIMDGROUPS / LANES, first_row = group.x * teams * ROWS + tid / LANES, lane = tid % LANES;
    uint live = step->live[arguments.row_kind], first = group.y * TOKENS;
    if (first >= live)
        return; /* all threads of the threadgroup */
    uint parts = (arguments.columns + 15) / 16, tokens = min(TOKENS, live - first), products = GATES ? 2 : TOKENS;
    device const float *given = arena + arguments.x + (ulong)first * arguments.columns;
    device const float *norm = vectors + (NORMS ? arguments.norm : 0);
    device const uchar *packed = weights + arguments.weights, *gated = gated_weights + arguments.gated;
    const uint most = 2 * METAL_MATMUL_ROWS > METAL_MATMUL_TOKENS ? 2 * METAL_MATMUL_ROWS : METAL_MATMUL_TOKENS;
    float sums[METAL_MATMUL_SUMS * most];
    float values[16], scale = NORMS ? norm_scale(arguments.columns, arguments.epsilon, given, tid) : 1;
    UNROLL for (uint i = 0; i < ROWS * products * SUMS; i++)
        sums[i] = 0;
    for (uint begin = lane; begin < parts; begin += LANES * SUMS) {
        UNROLL for (uint j = 0; j < ROWS * SUMS; j++) {
            uint row = first_row + j / SUMS * teams, part = begin + j % SUMS * LANES;
            uint own = j / SUMS * products * SUMS + j % SUMS;
            if (row >= arguments.rows || part >= parts)
                continue;
            uint width = width_of(part, arguments.columns);
            unpack16(packed + row * arguments.row_bytes, part, arguments.columns, values);
            UNROLL for (uint t = 0; t < TOKENS; t++) {
                if (t < tokens)
                    sums[own + t * SUMS] = add_part(sums[own + t * SUMS], values,
                        given + (ulong)t * arguments.columns + 16 * part, width, scale, norm + 16 * part);
            }
            if (GATES) {
                unpack16(gated + row * arguments.row_bytes, part, arguments.columns, values);
                sums[own + SUMS] = add_part(sums[own + SUMS], values, given + 16 * part, width, scale, norm + 16 * part);
            }
        }
    }
    UNROLL for (uint i = 0; i < ROWS; i++) {
        uint row = first_row + i * teams;
        bool writes = lane == 0 && row < arguments.rows;
        UNROLL for (uint t = 0; t < TOKENS; t++) {
            float sum = sum_of_team(sums + (i * products + t) * SUMS);
            float other = GATES ? sum_of_team(sums + (i * products + 1) * SUMS) : 0;
            if (writes && GATES)
                arena[arguments.to + (ulong)first * arguments.rows + row] = activate(arguments.activation, sum) * other;
            else if (writes && t < tokens)
                write_product(arguments, vectors, arena, row, first + t, sum);
        }
    }
}

/*
 * The same for many rows of x, by simdgroup matrices: a threadgroup makes a tile of METAL_TILE_ROWS rows of the matrix
 * by METAL_TILE_TOKENS rows of x, each of its four simdgroups a quarter. Weights and x go through threadgroup memory, x
 * transposed; the tile does too, in the same place.
 */
kernel void matmul_tiles(constant matmul_arguments &arguments [[buffer(0)]], device const uchar *weights [[buffer(1)]],
    device float *arena [[buffer(2)]], device const float *vectors [[buffer(3)]],
    device step_header *step [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]], THREADGROUP_MEMORY(float, shared))
{
    const uint width = METAL_TILE_COLUMNS;
    uint live = step->live[arguments.row_kind], columns = arguments.columns;
    uint first_row = group.x * METAL_TILE_ROWS, first_token = group.y * METAL_TILE_TOKENS;
    if (first_token >= live)
        return; /* all threads of the threadgroup */
    threadgroup float *w = shared, *x = shared + METAL_TILE_ROWS * width;
    uint row = first_row + tid / 2, token = first_token + tid / 4, team = tid / 32;
    uint own_row = team % 2 * 32, own_token = team / 2 * 16; /* of the simdgroup's quarter */
    device const uchar *packed = weights + arguments.weights + row * arguments.row_bytes;
    device const float *given = arena + arguments.x + (ulong)token * columns;
    simdgroup_float8x8 sums[4][2];
    UNROLL for (uint i = 0; i < 4; i++) {
        UNROLL for (uint j = 0; j < 2; j++)
            sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    for (uint begin = 0; begin < columns; begin += width) {
        float values[16];
        uint part = begin / 16 + tid % 2, column = begin + tid % 4 * 8;
        bool is_inside = row < arguments.rows && 16 * part < columns;
        if (is_inside)
            unpack16(packed, part, columns, values);
        UNROLL for (uint i = 0; i < 16; i++)
            w[tid / 2 * width + tid % 2 * 16 + i] = is_inside ? values[i] : 0;
        for (uint i = 0; i < 8; i++) {
            float value = token < live && column + i < columns ? given[column + i] : 0;
            x[(tid % 4 * 8 + i) * METAL_TILE_TOKENS + tid / 4] = ROUNDS ? rounded_to_half(value) : value;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < width; k += 8) {
            simdgroup_float8x8 right[2];
            UNROLL for (uint j = 0; j < 2; j++)
                simdgroup_load(right[j], x + k * METAL_TILE_TOKENS + own_token + 8 * j, METAL_TILE_TOKENS);
            UNROLL for (uint i = 0; i < 4; i++) {
                simdgroup_float8x8 left;
                simdgroup_load(left, w + (own_row + 8 * i) * width + k, width);
                UNROLL for (uint j = 0; j < 2; j++)
                    simdgroup_multiply_accumulate(sums[i][j], left, right[j], sums[i][j]);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    UNROLL for (uint i = 0; i < 4; i++) {
        UNROLL for (uint j = 0; j < 2; j++)
            simdgroup_store(sums[i][j], shared + (own_row + 8 * i) * METAL_TILE_TOKENS + own_token + 8 * j,
                METAL_TILE_TOKENS);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < METAL_TILE_ROWS * METAL_TILE_TOKENS; i += METAL_TILE_THREADS) {
        uint at_row = i % METAL_TILE_ROWS, at_token = i / METAL_TILE_ROWS;
        if (first_row + at_row < arguments.rows && first_token + at_token < live)
            write_product(arguments, vectors, arena, first_row + at_row, first_token + at_token,
                shared[at_row * METAL_TILE_TOKENS + at_token]);
    }
}

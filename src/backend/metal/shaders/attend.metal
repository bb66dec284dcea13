/* The KV cache: pages of [heads][256 positions][elements, then for Q8_0 the scales of 32 elements]. */

inline device uchar *cached_head(device uchar *cache, uint page, uint position, uint heads, uint head, uint head_bytes)
{
    ulong place = ((ulong)page * heads + head) * METAL_PAGE_POSITIONS + position % METAL_PAGE_POSITIONS;
    return cache + place * head_bytes;
}

/* Up to 32 elements as int8 with their scale. */
inline void append_bytes(device const float *x, uint count, device uchar *codes, device uchar *scale_at)
{
    float most = 0;
    for (uint i = 0; i < count; i++) {
        float magnitude = fabs(x[i]);
        most = isnan(magnitude) || magnitude > most ? magnitude : most;
    }
    half scale = (half)(most * (1.0f / 127.0f));
    float value = (float)scale, inverse = 1.0f / value;
    bool is_usable = value > 0 && !isinf(value) && !isnan(value);
    for (uint i = 0; i < count; i++)
        codes[i] = (uchar)(char)(is_usable ? rint(clamp(x[i] * inverse, -127.0f, 127.0f)) : 0);
    *(device ushort *)scale_at = is_usable ? as_type<ushort>(scale) : value == 0 ? 0 : 0x7e00;
}

/* An element of a cache of floats or halves; the result is the one that the cache has. */
inline float append_float(device uchar *head, uint element, float x)
{
    if (CACHE == METAL_F32) {
        ((device float *)head)[element] = x;
        return x;
    }
    ((device half *)head)[element] = (half)x;
    return (float)(half)x;
}

/* A thread appends up to 32 elements of a key or a value. */
kernel void append(constant append_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device uchar *keys [[buffer(2)]], device uchar *values [[buffer(3)]], device step_header *step [[buffer(4)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    uint row = group.y, index = group.x * METAL_ROW_THREADS + tid;
    uint units = (arguments.head_dim + 31) / 32, unit = index % units, place = index / units;
    if (row >= step->live[METAL_ROWS_TOKENS] || place >= 2 * arguments.heads)
        return;
    bool is_key = place < arguments.heads;
    uint head = is_key ? place : place - arguments.heads, position = row_position(step, row);
    uint page = page_of(step, row_run(step, row), position), count = min(32u, arguments.head_dim - 32 * unit);
    device const float *x = arena + (is_key ? arguments.k : arguments.v) +
                            ((ulong)row * arguments.heads + head) * arguments.head_dim + 32 * unit;
    device uchar *to =
        cached_head(is_key ? keys : values, page, position, arguments.heads, head, arguments.head_bytes);
    if (CACHE == METAL_Q8_0) {
        append_bytes(x, count, to + 32 * unit, to + arguments.head_dim + 2 * unit);
        return;
    }
    for (uint i = 0; i < count; i++)
        append_float(to, 32 * unit + i, x[i]);
}

inline float cached_element(device const uchar *head, uint element, uint head_dim)
{
    if (CACHE == METAL_F32)
        return ((device const float *)head)[element];
    if (CACHE == METAL_F16)
        return (float)((device const half *)head)[element];
    return (float)(char)head[element] * half_at(head + head_dim + element / 32 * 2);
}

/* An element of a head after its rotation to a position. */
template <class Head>
inline float rotated_element(constant attend_arguments &arguments, Head head, uint element,
    device const float *table, uint position)
{
    uint pairs = arguments.dimensions / 2;
    if (element >= 2 * pairs)
        return head[element];
    uint pair = arguments.halves ? element % pairs : element / 2;
    Head a = head + (arguments.halves ? pair : 2 * pair), b = a + (arguments.halves ? pairs : 1);
    rope_angle angle = angle_of(table, pair, pairs, position);
    return head + element == a ? *a * angle.cosine - *b * angle.sine : *b * angle.cosine + *a * angle.sine;
}

/* An element of a new key or value as the cache will have it; one of the heads that share it appends it. */
inline float new_element(device uchar *head, uint element, float x, bool appends)
{
    if (appends)
        return append_float(head, element, x);
    return CACHE == METAL_F32 ? x : (float)(half)x;
}

/*
 * A part of attention is the largest score, the sum of weights relative to it (0: it has seen no position) and the
 * weighted sums of the values.
 */
template <class Parts> inline float largest_score(Parts parts, uint count, uint dim)
{
    float most = -INFINITY;
    for (uint i = 0; i < count; i++)
        most = max(most, parts[i * (dim + 2)]);
    return most;
}

/* Element `at` of the parts as one part whose largest score is `most`. */
template <class Parts> inline float joined(Parts parts, uint count, uint dim, uint at, float most)
{
    float sum = 0;
    for (uint i = 0; i < count; i++) {
        if (parts[i * (dim + 2) + 1] != 0)
            sum += parts[i * (dim + 2) + at] * exponential(parts[i * (dim + 2)] - most);
    }
    return sum;
}

/*
 * The rows of a matrix that are one head's query, key or value, times the normed row of x, with the sums that matmul
 * computes. All threads of a simdgroup are in the same round.
 */
inline void project_head(constant attend_arguments &arguments, uint which, device const uchar *weights,
    device const float *vectors, device const float *x, float scale, uint head, uint tid, threadgroup float *to)
{
    constant projected_matrix &given = arguments.projections[which];
    uint teams = METAL_ATTEND_THREADS / LANES, lane = tid % LANES, parts = (arguments.columns + 15) / 16;
    device const float *norm = vectors + arguments.norm;
    for (uint begin = 0; begin < DIM; begin += teams) {
        uint element = begin + tid / LANES, row = head * DIM + element;
        float sums[METAL_MATMUL_SUMS] = {0, 0}, values[16];
        for (uint first = lane; element < DIM && first < parts; first += LANES * SUMS) {
            UNROLL for (uint i = 0; i < SUMS; i++) {
                uint part = first + i * LANES;
                if (part >= parts)
                    continue;
                unpack16(weights + given.weights + row * given.row_bytes, part, arguments.columns, values);
                sums[i] = add_part(sums[i], values, x + 16 * part, width_of(part, arguments.columns), scale,
                    norm + 16 * part);
            }
        }
        float sum = sum_of_team(sums);
        if (lane == 0 && element < DIM)
            to[element] = given.bias != METAL_NO_OPERAND ? sum + vectors[given.bias + row] : sum;
    }
}

/*
 * One query against the positions that it sees, or with PARTS against a part of them. Each simdgroup takes every fourth
 * position and keeps a running softmax; a lane has every 32nd element of the head. The simdgroups are merged at the end.
 * With ROTATES it rotates the query, and takes key and value of its own position from the arena: no other threadgroup waits
 * for the one that appends them. With PROJECTS it computes them first, from the row of x before its norm: a threadgroup
 * does so in less time than a dispatch of their own takes, although heads that share a key compute the same.
 */
kernel void attend(constant attend_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device uchar *keys [[buffer(2)]], device uchar *values [[buffer(3)]], device step_header *step [[buffer(4)]],
    device float *parts [[buffer(5)]], device const float *ropes [[buffer(6)]],
    device const float *vectors [[buffer(7)]], device const uchar *query_weights [[buffer(8)]],
    device const uchar *key_weights [[buffer(9)]], device const uchar *value_weights [[buffer(10)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]], THREADGROUP_MEMORY(float, shared))
{
    uint head = PARTS ? group.x / PARTS : group.x, row = group.y, lane = tid % 32, team = tid / 32;
    const uint teams = METAL_ATTEND_THREADS / 32;
    if (row >= step->live[METAL_ROWS_TOKENS])
        return;
    uint run = row_run(step, row), position = row_position(step, row);
    uint kv_head = head / (arguments.heads / arguments.kv_heads);
    bool appends = head % (arguments.heads / arguments.kv_heads) == 0;
    uint first = arguments.window != 0 && position + 1 > arguments.window ? position + 1 - arguments.window : 0;
    uint end = position + 1;
    if (PARTS) {
        uint length = max((uint)METAL_PART_POSITIONS, (end - first + PARTS - 1) / PARTS);
        first = min(first + group.x % PARTS * length, end);
        end = min(first + length, end);
    }
    device const float *query = arena + arguments.q + ((ulong)row * arguments.heads + head) * DIM;
    ulong new_at = ((ulong)row * arguments.kv_heads + kv_head) * DIM;
    device const float *new_key = arena + arguments.k + new_at, *new_value = arena + arguments.v + new_at;
    threadgroup float *own_query = shared + teams * (DIM + 2), *own_key = own_query + DIM, *own_value = own_key + DIM;
    if (PROJECTS) {
        device const float *x = arena + arguments.x;
        float scale = norm_scale(arguments.columns, arguments.epsilon, x, tid);
        project_head(arguments, 0, query_weights, vectors, x, scale, head, tid, own_query);
        project_head(arguments, 1, key_weights, vectors, x, scale, kv_head, tid, own_key);
        project_head(arguments, 2, value_weights, vectors, x, scale, kv_head, tid, own_value);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float q[METAL_ATTEND_DIM / 32], sums[METAL_ATTEND_DIM / 32], largest = -INFINITY, total = 0;
    UNROLL for (uint i = 0; 32 * i < DIM; i++) {
        uint element = 32 * i + lane;
        device const float *table = ropes + arguments.query_table;
        q[i] = element >= DIM ? 0
               : PROJECTS ? rotated_element(arguments, own_query, element, table, position)
               : ROTATES ? rotated_element(arguments, query, element, table, position)
                       : query[element];
        sums[i] = 0;
    }
    for (uint j = first + team; j < end; j += teams) {
        uint page = page_of(step, run, j);
        device uchar *key = cached_head(keys, page, j, arguments.kv_heads, kv_head, arguments.head_bytes);
        device uchar *value = cached_head(values, page, j, arguments.kv_heads, kv_head, arguments.head_bytes);
        bool is_new = ROTATES && j == position;
        float score = 0;
        UNROLL for (uint i = 0; 32 * i < DIM; i++) {
            uint element = 32 * i + lane;
            if (element >= DIM)
                continue;
            device const float *table = ropes + arguments.key_table;
            float x = is_new ? new_element(key, element,
                                   PROJECTS ? rotated_element(arguments, own_key, element, table, position)
                                            : rotated_element(arguments, new_key, element, table, position),
                                   appends)
                             : cached_element(key, element, DIM);
            score = fma(q[i], x, score);
        }
        score = simd_sum(score) * arguments.scale;
        if (arguments.cap != 0)
            score = arguments.cap * stable_tanh(score / arguments.cap);
        float next = max(largest, score), keeps = exponential(largest - next), weight = exponential(score - next);
        total = total * keeps + weight;
        UNROLL for (uint i = 0; 32 * i < DIM; i++) {
            uint element = 32 * i + lane;
            if (element >= DIM)
                continue;
            float x = is_new ? new_element(value, element, PROJECTS ? own_value[element] : new_value[element], appends)
                             : cached_element(value, element, DIM);
            sums[i] = sums[i] * keeps + weight * x;
        }
        largest = next;
    }
    threadgroup float *own = shared + team * (DIM + 2);
    if (lane == 0) {
        own[0] = largest;
        own[1] = total;
    }
    UNROLL for (uint i = 0; 32 * i < DIM; i++) {
        if (32 * i + lane < DIM)
            own[2 + 32 * i + lane] = sums[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float most = largest_score(shared, teams, DIM), sum = joined(shared, teams, DIM, 1, most);
    device float *part = parts + ((ulong)row * arguments.heads * PARTS + group.x) * (DIM + 2);
    device float *to = arena + arguments.to + ((ulong)row * arguments.heads + head) * DIM;
    for (uint element = tid; element < DIM; element += METAL_ATTEND_THREADS) {
        float result = joined(shared, teams, DIM, 2 + element, most);
        if (PARTS)
            part[2 + element] = result;
        else
            to[element] = result / sum;
    }
    if (PARTS && tid == 0) {
        part[0] = most;
        part[1] = sum;
    }
}

/* The parts of a head become the result. */
kernel void join_parts(constant attend_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device const float *parts [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    uint head = group.x, row = group.y, dim = arguments.head_dim;
    if (row >= step->live[METAL_ROWS_TOKENS])
        return;
    device const float *own = parts + ((ulong)row * arguments.heads + head) * METAL_PARTS * (dim + 2);
    float most = largest_score(own, METAL_PARTS, dim), sum = joined(own, METAL_PARTS, dim, 1, most);
    for (uint element = tid; element < dim; element += METAL_ROW_THREADS)
        arena[arguments.to + ((ulong)row * arguments.heads + head) * dim + element] =
            joined(own, METAL_PARTS, dim, 2 + element, most) / sum;
}

/* Row ops. A threadgroup takes a row, or a group of columns of a row. */

/* RMS norm, layer norm or L2 norm of one group of columns. */
kernel void normalise(constant row_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device const float *vectors [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
    THREADGROUP_MEMORY(float, parts))
{
    uint begin = group.x * arguments.group, count = arguments.group;
    if (group.y >= step->live[arguments.row_kind])
        return;
    device const float *x = arena + arguments.x + (ulong)group.y * arguments.columns + begin;
    device float *to = arena + arguments.to + (ulong)group.y * arguments.columns + begin;
    float sum = 0, mean = 0;
    if (KIND == METAL_LAYER_NORM) {
        for (uint i = tid; i < count; i += METAL_ROW_THREADS)
            sum += x[i];
        mean = sum_of_threads(sum, parts, tid, METAL_ROW_THREADS) / (float)count;
        sum = 0;
    }
    bool weighs_first = KIND == METAL_L2_NORM && arguments.weight != METAL_NO_OPERAND;
    for (uint i = tid; i < count; i += METAL_ROW_THREADS) {
        float value = x[i] - mean;
        if (weighs_first)
            value *= vectors[arguments.weight + begin + i];
        sum = fma(value, value, sum);
    }
    sum = sum_of_threads(sum, parts, tid, METAL_ROW_THREADS);
    float scale;
    if (KIND == METAL_L2_NORM) {
        float size = precise::sqrt(sum);
        scale = 1.0f / (size < arguments.number ? arguments.number : size);
    } else {
        scale = 1.0f / precise::sqrt(sum / (float)count + arguments.number);
    }
    for (uint i = tid; i < count; i += METAL_ROW_THREADS) {
        float value = (x[i] - mean) * scale;
        if (KIND == METAL_RMS_NORM)
            value *= vectors[arguments.weight + i]; /* one weight for all groups */
        else if (arguments.weight != METAL_NO_OPERAND)
            value *= vectors[arguments.weight + begin + i];
        if (KIND == METAL_LAYER_NORM)
            value += vectors[arguments.bias + begin + i];
        to[i] = value;
    }
}

/* Elementwise ops. */
kernel void each_column(constant row_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device const float *vectors [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    uint column = group.x * METAL_ROW_THREADS + tid, row = group.y;
    if (row >= step->live[arguments.row_kind] || column >= arguments.columns)
        return;
    ulong at = (ulong)row * arguments.columns + column;
    ulong from = KIND == METAL_SELECT_ROWS ? (ulong)output_row(step, row) * arguments.columns + column : at;
    float x = arena[arguments.x + from], result = x;
    if (KIND == METAL_GLU)
        result = activate(arguments.activation, x) * arena[arguments.y + at];
    else if (KIND == METAL_ADD)
        result = arena[arguments.to + at] + x;
    else if (KIND == METAL_MUL)
        result = x * arena[arguments.y + at];
    else if (KIND == METAL_LERP)
        result = x + (arena[arguments.y + at] - x) *
                         (arguments.weight_is_scratch ? arena[arguments.weight + at]
                                                      : vectors[arguments.weight + column]);
    else if (KIND == METAL_RWKV_KEY)
        result = x * ((arena[arguments.y + at] - 1.0f) * vectors[arguments.weight + column] + 1.0f);
    else if (KIND == METAL_SOFTCAP)
        result = arguments.number * stable_tanh(x / arguments.number);
    arena[arguments.to + at] = result;
}

/* to = x + sum over the head of (y * z * weight) * u. */
kernel void bonus(constant row_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device const float *vectors [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
    THREADGROUP_MEMORY(float, parts))
{
    if (group.y >= step->live[arguments.row_kind])
        return;
    uint begin = group.x * arguments.group;
    ulong base = (ulong)group.y * arguments.columns + begin;
    float sum = 0;
    for (uint i = tid; i < arguments.group; i += METAL_ROW_THREADS)
        sum += arena[arguments.y + base + i] * arena[arguments.z + base + i] * vectors[arguments.weight + begin + i];
    sum = sum_of_threads(sum, parts, tid, METAL_ROW_THREADS);
    for (uint i = tid; i < arguments.group; i += METAL_ROW_THREADS)
        arena[arguments.to + base + i] = arena[arguments.x + base + i] + sum * arena[arguments.u + base + i];
}

kernel void embed(constant embed_arguments &arguments [[buffer(0)]], device const uchar *weights [[buffer(1)]],
    device float *arena [[buffer(2)]], device const int *tokens [[buffer(3)]], device step_header *step [[buffer(4)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    uint row = group.y, part = group.x * METAL_ROW_THREADS + tid;
    if (row >= step->live[METAL_ROWS_TOKENS] || 16 * part >= arguments.columns)
        return;
    uint slot = run_at(step, row_run(step, row))->slot;
    uint id = (uint)tokens[(ulong)slot * (step->context + 1) + row_position(step, row)];
    if (id >= arguments.rows)
        return; /* a run whose slot is not at its first position */
    float values[16];
    unpack16(weights + arguments.table + (ulong)id * arguments.row_bytes, part, arguments.columns, values);
    uint width = width_of(part, arguments.columns);
    UNROLL for (uint i = 0; i < 16; i++) {
        if (i < width)
            arena[arguments.to + (ulong)row * arguments.columns + 16 * part + i] = values[i] * arguments.scale;
    }
}

kernel void rotate(constant rope_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device const float *ropes [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    uint pairs = arguments.dimensions / 2, row = group.y, index = group.x * METAL_ROW_THREADS + tid;
    if (row >= step->live[METAL_ROWS_TOKENS] || index >= pairs * arguments.heads)
        return;
    uint position = row_position(step, row), pair = index % pairs;
    rope_angle angle = angle_of(ropes + arguments.table, pair, pairs, position);
    device float *head = arena + arguments.to + (ulong)row * arguments.columns + index / pairs * arguments.head_dim;
    device float *a = head + (arguments.halves ? pair : 2 * pair), *b = a + (arguments.halves ? pairs : 1);
    float left = *a, right = *b;
    *a = left * angle.cosine - right * angle.sine;
    *b = right * angle.cosine + left * angle.sine;
}

kernel void shift(constant shift_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device float *recurrent [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    uint column = group.x * METAL_ROW_THREADS + tid, row = group.y;
    if (row >= step->live[METAL_ROWS_TOKENS] || column >= arguments.columns)
        return;
    device step_run *run = run_at(step, row_run(step, row));
    ulong before = state_at(run, run->read_version, arguments.recurrent_elements) + arguments.state,
          after = state_at(run, run->write_version, arguments.recurrent_elements) + arguments.state;
    device const float *x = arena + arguments.x + (ulong)row * arguments.columns + column;
    float previous = row != run->first_row ? *(x - arguments.columns) : run->first == 0 ? 0 : recurrent[before + column];
    arena[arguments.to + (ulong)row * arguments.columns + column] = previous;
    if (row + 1 == run->first_row + run->count)
        recurrent[after + column] = *x;
}

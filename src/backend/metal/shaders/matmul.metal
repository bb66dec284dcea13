/*
 * Matrix times rows. LANES threads share a row of the matrix, so that short rows occupy all threads; TOKENS rows of x
 * share the unpacked weights.
 */
kernel void matmul(constant matmul_arguments &arguments [[buffer(0)]], device const uchar *weights [[buffer(1)]],
    device float *arena [[buffer(2)]], device const float *vectors [[buffer(3)]],
    device step_header *step [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]])
{
    uint row = group.x * (METAL_MATMUL_THREADS / LANES) + tid / LANES, lane = tid % LANES;
    uint live = step->live[arguments.row_kind], first = group.y * TOKENS;
    if (first >= live)
        return; /* all threads of the threadgroup */
    uint parts = row < arguments.rows ? (arguments.columns + 15) / 16 : 0;
    uint tokens = min(TOKENS, live - first);
    device const uchar *packed = weights + arguments.weights + row * arguments.row_bytes;
    float sums[METAL_MATMUL_TOKENS], values[16];
    for (uint t = 0; t < TOKENS; t++)
        sums[t] = 0;
    for (uint part = lane; part < parts; part += LANES) {
        unpack16(packed, part, arguments.columns, values);
        uint width = min(16u, arguments.columns - 16 * part);
        for (uint t = 0; t < tokens; t++) {
            device const float *x = arena + arguments.x + (ulong)(first + t) * arguments.columns + 16 * part;
            float sum = 0;
            for (uint i = 0; i < width; i++)
                sum = fma(values[i], ROUNDS ? rounded_to_half(x[i]) : x[i], sum);
            sums[t] += sum;
        }
    }
    for (uint t = 0; t < TOKENS; t++) {
        for (uint distance = LANES / 2; distance > 0; distance /= 2)
            sums[t] += simd_shuffle_xor(sums[t], (ushort)distance);
        if (lane != 0 || row >= arguments.rows || t >= tokens)
            continue;
        device float *to = arena + arguments.to + (ulong)(first + t) * arguments.rows + row;
        float sum = sums[t];
        if (arguments.bias != METAL_NO_OPERAND)
            sum += vectors[arguments.bias + row];
        sum = activate(arguments.activation, sum);
        *to = arguments.accumulates ? *to + sum : sum;
    }
}

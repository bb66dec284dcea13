/* RWKV-7's recurrence (program/op.h): a threadgroup takes a head of a run through all its tokens, a thread keeps one
 * column of the state in registers. */
kernel void wkv7(constant wkv7_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device float *recurrent [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
    THREADGROUP_MEMORY(float, shared))
{
    uint head = group.x, columns = arguments.heads * DIM;
    if (group.y >= step->live[METAL_ROWS_RUNS])
        return;
    device step_run *run = run_at(step, group.y);
    bool is_column = tid < DIM;
    device const float *before = recurrent + state_at(run, run->read_version, arguments.recurrent_elements) +
                                 arguments.state + head * DIM * DIM + tid;
    device float *after = recurrent + state_at(run, run->write_version, arguments.recurrent_elements) +
                          arguments.state + head * DIM * DIM + tid;
    threadgroup float *r = shared, *w = r + DIM, *k = w + DIM, *kk = k + DIM, *a = kk + DIM;
    float column[METAL_WKV7_DIM];
    UNROLL for (uint j = 0; j < DIM; j++)
        column[j] = !is_column || run->first == 0 ? 0 : before[j * DIM];
    for (uint t = 0; t < run->count; t++) {
        ulong at = (ulong)(run->first_row + t) * columns + head * DIM + tid;
        float v = 0;
        if (is_column) {
            r[tid] = arena[arguments.r + at];
            w[tid] = arena[arguments.w + at];
            k[tid] = arena[arguments.k + at];
            kk[tid] = arena[arguments.kk + at];
            a[tid] = arena[arguments.a + at];
            v = arena[arguments.v + at];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float u = 0, y = 0;
        UNROLL for (uint j = 0; j < DIM; j++)
            u = fma(column[j], kk[j], u);
        UNROLL for (uint j = 0; j < DIM; j++) {
            column[j] = fma(column[j], w[j], fma(-u, kk[j] * a[j], v * k[j]));
            y = fma(column[j], r[j], y);
        }
        if (is_column)
            arena[arguments.to + at] = y;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    UNROLL for (uint j = 0; j < DIM; j++) {
        if (is_column)
            after[j * DIM] = column[j];
    }
}

/* RWKV-7's recurrence (program/op.h): a threadgroup takes a head of a run through all its tokens, a thread keeps one
 * column of the state. */
kernel void wkv7(constant wkv7_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device float *recurrent [[buffer(2)]], device step_header *step [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
    THREADGROUP_MEMORY(float, shared))
{
    uint head = group.x, dim = arguments.head_dim, columns = arguments.heads * dim;
    if (group.y >= step->live[METAL_ROWS_RUNS])
        return;
    device step_run *run = run_at(step, group.y);
    bool is_column = tid < dim;
    device const float *before = recurrent + state_at(run, run->read_version, arguments.recurrent_elements) +
                                 arguments.state + head * dim * dim + tid;
    device float *after = recurrent + state_at(run, run->write_version, arguments.recurrent_elements) +
                          arguments.state + head * dim * dim + tid;
    threadgroup float *r = shared, *w = r + dim, *k = w + dim, *kk = k + dim, *a = kk + dim;
    float column[METAL_WKV7_DIM];
    for (uint j = 0; j < dim; j++)
        column[j] = !is_column || run->first == 0 ? 0 : before[j * dim];
    for (uint t = 0; t < run->count; t++) {
        ulong at = (ulong)(run->first_row + t) * columns + head * dim + tid;
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
        for (uint j = 0; j < dim; j++)
            u = fma(column[j], kk[j], u);
        for (uint j = 0; j < dim; j++) {
            column[j] = fma(column[j], w[j], fma(-u, kk[j] * a[j], v * k[j]));
            y = fma(column[j], r[j], y);
        }
        if (is_column)
            arena[arguments.to + at] = y;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint j = 0; is_column && j < dim; j++)
        after[j * dim] = column[j];
}

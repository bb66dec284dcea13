/* The best of all invocations, for each of them: in two stages, since a barrier takes longer than a few reads. */
const uint BEST_COLUMNS = 16;
shared uvec2 best[1024], best_of_column[BEST_COLUMNS];

uvec2 best_of_all(uvec2 mine)
{
    uint tid = gl_LocalInvocationIndex;
    barrier();
    best[tid] = mine;
    barrier();
    if (tid < BEST_COLUMNS) {
        [[unroll]] for (uint n = 1; n < THREADS / BEST_COLUMNS; n++)
            mine = better(mine, best[n * BEST_COLUMNS + tid]);
        best_of_column[tid] = mine;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < BEST_COLUMNS; i++)
        mine = better(mine, best_of_column[i]);
    return mine;
}

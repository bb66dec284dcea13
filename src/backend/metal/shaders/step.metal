/* The first dispatch of each token: takes a step from the host, or advances one that repeats. */

/* Whether a run that repeats goes on with another token. */
inline bool goes_on(device step_header *step, device const step_run *run)
{
    uint position = run->first + 1;
    return run->is_live && !run->ended && !run->failed && !step->cancelled && position < step->context &&
           (run->limit == 0 || position < run->limit);
}

inline void advance_run(device step_header *step, device step_run *run, device uint *next)
{
    uint written = run->write_version;
    run->write_version = run->next_version;
    run->next_version = written;
    run->read_version = written;
    run->first += 1;
    step_words(step)[step->rows_at + 2 * run->first_row + 1] = run->first;
    next[run->slot] = run->first + 1;
}

/* A run that continues from a token that the step before it did not reach computes nothing. */
inline void take_run(device step_header *step, device step_run *run, device uint *next, device int *tokens)
{
    run->is_live = run->source != METAL_SOURCE_LAST || next[run->slot] == run->first + step->samples_only;
    if (!run->is_live)
        return;
    next[run->slot] = run->first + run->count;
    for (uint i = 0; run->source != METAL_SOURCE_LAST && i < run->count; i++)
        tokens[(ulong)run->slot * (step->context + 1) + run->first + i] =
            (int)step_words(step)[step->ids_at + run->first_row + i];
}

kernel void begin(constant begin_arguments &arguments [[buffer(0)]], device step_header *step [[buffer(1)]],
    device uint *next [[buffer(2)]], device int *tokens [[buffer(3)]],
    uint tid [[thread_index_in_threadgroup]])
{
    for (uint i = tid; i < step->given[METAL_ROWS_RUNS]; i += METAL_ROW_THREADS) {
        device step_run *run = run_at(step, i);
        if (arguments.repetition == 0)
            take_run(step, run, next, tokens);
        else if (goes_on(step, run))
            advance_run(step, run, next);
        else
            run->is_live = 0;
    }
    threadgroup_barrier(mem_flags::mem_device);
    if (tid != 0)
        return;
    bool any = false;
    for (uint i = 0; i < step->given[METAL_ROWS_RUNS]; i++)
        any = any || run_at(step, i)->is_live;
    for (uint i = 0; i < 3; i++)
        step->live[i] = any ? step->given[i] : 0;
}

/* Common to all kernels: the running step, roundings and activations. */

#ifdef METAL_FAST_MATH /* the library of kernels whose results are compared with a tolerance */
inline float exponential(float x)
{
    return fast::exp(x);
}
#else
/* Results are the same bits everywhere, so no product may be joined with a sum unless fma says so. */
#pragma METAL fp contract(off)

inline float exponential(float x)
{
    return precise::exp(x);
}
#endif

FUNCTION_CONSTANT(uint, KIND, METAL_CONSTANT_KIND)
FUNCTION_CONSTANT(uint, LANES, METAL_CONSTANT_LANES)
FUNCTION_CONSTANT(uint, TOKENS, METAL_CONSTANT_TOKENS)
FUNCTION_CONSTANT(uint, ROUNDS, METAL_CONSTANT_ROUNDS)
FUNCTION_CONSTANT(uint, PARTS, METAL_CONSTANT_PARTS)
FUNCTION_CONSTANT(uint, NORMS, METAL_CONSTANT_NORMS)
FUNCTION_CONSTANT(uint, GATES, METAL_CONSTANT_GATES)
FUNCTION_CONSTANT(uint, ROTATES, METAL_CONSTANT_ROTATES)
FUNCTION_CONSTANT(uint, ROWS, METAL_CONSTANT_ROWS)
FUNCTION_CONSTANT(uint, SIMDGROUPS, METAL_CONSTANT_SIMDGROUPS)
FUNCTION_CONSTANT(uint, CACHE, METAL_CONSTANT_CACHE)
FUNCTION_CONSTANT(uint, PROJECTS, METAL_CONSTANT_PROJECTS)
FUNCTION_CONSTANT(uint, SUMS, METAL_CONSTANT_SUMS)
FUNCTION_CONSTANT(uint, DIM, METAL_CONSTANT_DIM)

/* Before a loop of constant length: a thread's array that it indexes stays in registers only without the loop. */
#define UNROLL _Pragma("clang loop unroll(full)")

/* ---- Ids for the host, which looks for them while the command buffer runs ---- */

#ifdef METAL_SYSTEM_SCOPE
#define FOR_HOST volatile coherent(system) device
#else
#define FOR_HOST volatile device
#endif

inline void show_id(FOR_HOST int *to, int id)
{
    *to = id;
#ifdef METAL_SYSTEM_SCOPE
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, static_cast<thread_scope>(METAL_SCOPE_SYSTEM));
#endif
}

/* ---- The step ---- */

inline device step_run *run_at(device step_header *step, uint run)
{
    return (device step_run *)(step + 1) + run;
}

inline device uint *step_words(device step_header *step)
{
    return (device uint *)step;
}

inline uint row_run(device step_header *step, uint row)
{
    return step_words(step)[step->rows_at + 2 * row];
}

inline uint row_position(device step_header *step, uint row)
{
    return step_words(step)[step->rows_at + 2 * row + 1];
}

inline uint output_row(device step_header *step, uint output)
{
    return step_words(step)[step->outputs_at + output];
}

/* The page of the KV pool that has a position of a run. */
inline uint page_of(device step_header *step, uint run, uint position)
{
    return step_words(step)[step->pages_at + run * step->pages_stride + position / METAL_PAGE_POSITIONS];
}

/* Where the recurrent state of a run begins, in floats. */
inline ulong state_at(device step_run *run, uint version, uint recurrent_elements)
{
    return ((ulong)run->slot * METAL_VERSIONS + version) * recurrent_elements;
}

/* ---- Ropes ---- */

struct rope_angle {
    float cosine, sine;
};

/* The angle of a pair is the sum of two in the table: of a multiple of 256 and of the remainder. */
inline rope_angle angle_of(device const float *table, uint pair, uint pairs, uint position)
{
    device const float *lower = table + ((ulong)(position % 256) * pairs + pair) * 2;
    device const float *upper = table + ((ulong)(256 + position / 256) * pairs + pair) * 2;
    rope_angle angle;
    angle.cosine = lower[0] * upper[0] - lower[1] * upper[1];
    angle.sine = lower[1] * upper[0] + lower[0] * upper[1];
    return angle;
}

/* ---- Sums of a threadgroup ---- */

/* The sum over all threads, for each of them; `parts` has a float for each simdgroup. */
inline float sum_of_threads(float value, threadgroup float *parts, uint tid, uint threads)
{
    float part = simd_sum(value);
    if (tid % 32 == 0)
        parts[tid / 32] = part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint i = 0; i < threads / 32; i++)
        sum += parts[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return sum;
}

/* ---- Numbers ---- */

inline float half_value(ushort bits)
{
    return (float)as_type<half>(bits);
}

/* The nearest half, as a float; finite values out of range become the largest half. */
inline float rounded_to_half(float value)
{
    if (isnan(value))
        return value;
    return (float)(half)clamp(value, -65504.0f, 65504.0f);
}

/* tanh without an overflow for large arguments. */
inline float stable_tanh(float x)
{
    float magnitude = fabs(x), square = x * x;
    if (magnitude < 0.625f) {
        float p = -0.005704984f;
        p = p * square + 0.020639080f;
        p = p * square - 0.05373971f;
        p = p * square + 0.13331389f;
        p = p * square - 0.33333287f;
        return x + x * square * p;
    }
    float result = 1.0f - 2.0f / (exponential(min(2.0f * magnitude, 88.0f)) + 1.0f);
    return isnan(x) ? x : x < 0.0f ? -result : result;
}

inline float sigmoid(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

inline float activate(uint activation, float x)
{
    switch (activation) {
    case METAL_SILU:
        return x / (1.0f + exponential(-x));
    case METAL_GELU:
        return x / (1.0f + exponential(x * (x * x * 0.044715f + 1.0f) * -1.5957692f));
    case METAL_TANH:
        return stable_tanh(x);
    case METAL_SIGMOID:
        return sigmoid(x);
    case METAL_RELU_SQUARED:
        return x < 0.0f ? 0.0f : x * x;
    case METAL_DECAY:
        return exponential(-0.60653066f * sigmoid(x));
    default:
        return x;
    }
}

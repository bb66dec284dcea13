/*
 * Device code of CUDA on the host, by the fibers of emulator/fibers.h. Include it before the device code, in
 * a C++ file compiled with -ffp-contract=off; CUDA_EMULATOR is then defined, for the few places where device
 * code has to name the hardware (inline PTX). Loops that wait for other blocks must call __nanosleep.
 */
#ifndef TESTS_CUDA_EMULATOR_H
#define TESTS_CUDA_EMULATOR_H

#define CUDA_EMULATOR 1

#include "emulator/fibers.h"

#include <cmath>
#include <type_traits>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define __shared__ static /* blocks run one after the other */

inline emulator_index &threadIdx = emulator_thread, &blockIdx = emulator_place,
                      &blockDim = emulator_block_size, &gridDim = emulator_grid_size;

[[noreturn]] inline void __trap()
{
    fprintf(stderr, "emulator: a trap (block %u, thread %u)\n", blockIdx.x, threadIdx.x);
    abort();
}

inline size_t __cvta_generic_to_shared(const void *pointer)
{
    return (size_t)pointer;
}

inline long long clock64()
{
    return 1;
}

/* ---- Barriers and warps ---- */

inline bool emulator_bar_any(unsigned barrier, unsigned threads, bool says)
{
    return emulator_machine::current()->meet_block_any(barrier, threads, says);
}

inline void __syncthreads()
{
    emulator_bar_sync(0, emulator_machine::current()->live_threads());
}

/* For blocks that run one after the other. */
inline int __syncthreads_or(int predicate)
{
    static int found;
    __syncthreads(); /* all have seen what the last call found */
    found = 0;
    __syncthreads();
    found = predicate ? 1 : found;
    __syncthreads();
    return found;
}

inline void __nanosleep(unsigned)
{
    emulator_machine::current()->yield();
}

inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    emulator_exchange(mask, 0);
}

template <class Value> inline Value __shfl_sync(uint32_t mask, Value value, int lane, int width = 32)
{
    unsigned own = threadIdx.x % 32, unit = static_cast<unsigned>(width);
    unsigned from = own / unit * unit + static_cast<unsigned>(lane) % unit;
    return emulator_value<Value>(emulator_exchange(mask, value), from);
}

template <class Value> inline Value __shfl_xor_sync(uint32_t mask, Value value, int other, int width = 32)
{
    unsigned own = threadIdx.x % 32, unit = static_cast<unsigned>(width);
    unsigned from = own ^ static_cast<unsigned>(other);
    return emulator_value<Value>(emulator_exchange(mask, value), from / unit > own / unit ? own : from);
}

template <class Value> inline Value __shfl_up_sync(uint32_t mask, Value value, unsigned by, int width = 32)
{
    unsigned own = threadIdx.x % 32, place = own % static_cast<unsigned>(width);
    return emulator_value<Value>(emulator_exchange(mask, value), place < by ? own : own - by);
}

template <class Value> inline Value __shfl_down_sync(uint32_t mask, Value value, unsigned by, int width = 32)
{
    unsigned own = threadIdx.x % 32, unit = static_cast<unsigned>(width);
    return emulator_value<Value>(emulator_exchange(mask, value), own % unit + by < unit ? own + by : own);
}

template <class Value> inline Value __reduce_add_sync(uint32_t mask, Value value)
{
    return emulator_reduce(mask, value, [](Value a, Value b) { return a + b; });
}

template <class Value> inline Value __reduce_max_sync(uint32_t mask, Value value)
{
    return emulator_reduce(mask, value, [](Value a, Value b) { return a > b ? a : b; });
}

template <class Value> inline Value __reduce_min_sync(uint32_t mask, Value value)
{
    return emulator_reduce(mask, value, [](Value a, Value b) { return a < b ? a : b; });
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate)
{
    uint32_t own = predicate ? 1u << threadIdx.x % 32 : 0;
    return emulator_reduce(mask, own, [](uint32_t a, uint32_t b) { return a | b; });
}

inline int __any_sync(uint32_t mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

inline int __all_sync(uint32_t mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

/* ---- Memory ---- */

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class Value> inline Value __ldcg(const Value *from)
{
    return *from;
}

template <class Value> inline Value __ldg(const Value *from)
{
    return *from;
}

template <class Value> inline Value __ldcs(const Value *from)
{
    return *from;
}

template <class Value> inline void __stcg(Value *to, Value value)
{
    *to = value;
}

template <class Value, class Function> inline Value emulator_atomic(Value *at, Function function)
{
    Value old = *at;
    *at = function(old);
    return old;
}

template <class Value> inline Value atomicAdd(Value *at, std::common_type_t<Value> value)
{
    return emulator_atomic(at, [&](Value old) { return static_cast<Value>(old + value); });
}

template <class Value> inline Value atomicSub(Value *at, std::common_type_t<Value> value)
{
    return emulator_atomic(at, [&](Value old) { return static_cast<Value>(old - value); });
}

template <class Value> inline Value atomicMax(Value *at, std::common_type_t<Value> value)
{
    return emulator_atomic(at, [&](Value old) { return old > value ? old : value; });
}

template <class Value> inline Value atomicMin(Value *at, std::common_type_t<Value> value)
{
    return emulator_atomic(at, [&](Value old) { return old < value ? old : value; });
}

template <class Value> inline Value atomicOr(Value *at, std::common_type_t<Value> value)
{
    return emulator_atomic(at, [&](Value old) { return old | value; });
}

template <class Value> inline Value atomicAnd(Value *at, std::common_type_t<Value> value)
{
    return emulator_atomic(at, [&](Value old) { return old & value; });
}

template <class Value> inline Value atomicExch(Value *at, std::common_type_t<Value> value)
{
    return emulator_atomic(at, [&](Value) { return value; });
}

template <class Value> inline Value atomicCAS(Value *at, Value expected, Value value)
{
    return emulator_atomic(at, [&](Value old) { return old == expected ? value : old; });
}

#include "cuda/emulator_numbers.h"

#endif

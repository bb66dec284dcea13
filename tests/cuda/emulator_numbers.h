/* Vector types and arithmetic of device code, for emulator.h. */
#ifndef TESTS_CUDA_EMULATOR_NUMBERS_H
#define TESTS_CUDA_EMULATOR_NUMBERS_H

#include "quant/half.h"

#define EMULATOR_VECTOR(name, element)                                          \
    struct alignas(2 * sizeof(element)) name##2                                 \
    {                                                                           \
        element x, y;                                                           \
    };                                                                          \
    struct alignas(4 * sizeof(element) > 16 ? 16 : 4 * sizeof(element)) name##4 \
    {                                                                           \
        element x, y, z, w;                                                     \
    };                                                                          \
    inline name##2 make_##name##2(element x, element y)                         \
    {                                                                           \
        return {x, y};                                                          \
    }                                                                           \
    inline name##4 make_##name##4(element x, element y, element z, element w)   \
    {                                                                           \
        return {x, y, z, w};                                                    \
    }

EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(double, double)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(uint, unsigned)
EMULATOR_VECTOR(char, signed char)
EMULATOR_VECTOR(uchar, unsigned char)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(ushort, unsigned short)

template <class To, class From> inline To emulator_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "bits are kept");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline unsigned __float_as_uint(float x)
{
    return emulator_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return emulator_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return emulator_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return emulator_bits<float>(x);
}

inline unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b)
{
    return a > b ? a : b;
}
inline int min(int a, int b)
{
    return a < b ? a : b;
}
inline int max(int a, int b)
{
    return a > b ? a : b;
}

/* One rounding each: the file is compiled without contraction. */
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
inline float __frcp_rn(float a)
{
    return 1 / a;
}
inline float rsqrtf(float a)
{
    return 1 / sqrtf(a);
}
inline float __expf(float a)
{
    return expf(a);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline int __float2int_rn(float a)
{
    return static_cast<int>(rintf(a));
}

__extension__ typedef unsigned __int128 emulator_wide;

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>(static_cast<emulator_wide>(a) * b >> 64);
}

inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both << (by & 31) >> 32);
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both >> (by & 31));
}

/* Bytes of two words, each named by a digit of `selector`; its highest bit asks for the byte's sign instead.
 */
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector)
{
    unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned term = selector >> 4 * i & 15, byte = static_cast<unsigned>(both >> 8 * (term & 7)) & 255;
        result |= (term & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}

inline int __dp4a(int a, int b, int sum)
{
    for (unsigned i = 0; i < 4; i++)
        sum += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
    return sum;
}

inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum)
{
    for (unsigned i = 0; i < 4; i++)
        sum += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return sum;
}

/* ---- Halves ---- */

struct __half {
    unsigned short bits;
};

struct __half2 {
    __half x, y;
};

typedef __half half;
typedef __half2 half2;

inline float __half2float(__half x)
{
    return f16_to_f32(x.bits);
}
inline __half __float2half_rn(float x)
{
    return {f16_from_f32(x)};
}
inline __half __float2half(float x)
{
    return __float2half_rn(x);
}
inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}
inline __half __ushort_as_half(unsigned short x)
{
    return {x};
}
inline float2 __half22float2(__half2 x)
{
    return {__half2float(x.x), __half2float(x.y)};
}
inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

#endif

/* Constants of exp and tanh, shared by the scalar reference and the vector code: polynomials fitted for the
 * least relative error. */
#ifndef CPU_ROWS_MATH_H
#define CPU_ROWS_MATH_H

/* Beyond these limits exp is 0 or infinity; within them 2^n is the product of two normal floats. */
#define EXP_LOWEST  (-104.0f)
#define EXP_HIGHEST 89.0f
#define LOG2_E      0x1.715476p+0f
/* Adding 1.5 * 2^23 to a float rounds it to an integer, which is then in the low bits. */
#define ROUNDER 0x1.8p+23f
/* ln 2 in two parts; the first has so few bits that n times it is exact. */
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW  0x1.7f7d1cp-20f
/* e^r = 1 + r + r^2 (EXP_0 + EXP_1 r + ...) for |r| <= ln(2) / 2; the error is at most 0.05 ulp. */
#define EXP_0 0x1.fffffcp-2f
#define EXP_1 0x1.555492p-3f
#define EXP_2 0x1.5558f2p-5f
#define EXP_3 0x1.123a20p-7f
#define EXP_4 0x1.6a23cep-10f

/* tanh x = x + x^3 (TANH_0 + TANH_1 x^2 + ...) below TANH_SMALL; the error is at most 0.07 ulp. */
#define TANH_SMALL 0.625f
#define TANH_0     (-0x1.555532p-2f)
#define TANH_1     0x1.110726p-3f
#define TANH_2     (-0x1.b83c5ap-5f)
#define TANH_3     0x1.52269ap-6f
#define TANH_4     (-0x1.75e1cap-8f)

/* -2 sqrt(2 / pi) and the cubic coefficient in the tanh form of gelu. */
#define GELU_SLOPE (-0x1.988454p+0f)
#define GELU_CUBE  0.044715f

#endif

/*
 * Products of small matrices by a subgroup, PIECE_TOKENS x PIECE_DEPTH times PIECE_DEPTH x PIECE_ROWS, through
 * GL_KHR_cooperative_matrix or GL_NV_cooperative_matrix (the only one that glslc of Debian 12 knows). For tests on
 * devices with neither, the products are computed without the extension. The pieces are in `pool`, in units of 16
 * bytes.
 */
#ifdef COOP_KHR
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define X_PIECE      coopmat<float16_t, gl_ScopeSubgroup, PIECE_TOKENS, PIECE_DEPTH, gl_MatrixUseA>
#define WEIGHT_PIECE coopmat<float16_t, gl_ScopeSubgroup, PIECE_DEPTH, PIECE_ROWS, gl_MatrixUseB>
#define SUM_PIECE    coopmat<float, gl_ScopeSubgroup, PIECE_TOKENS, PIECE_ROWS, gl_MatrixUseAccumulator>
#define LOAD_X(piece, at, stride)      coopMatLoad(piece, pool, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_WEIGHT(piece, at, stride) coopMatLoad(piece, pool, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define STORE_SUM(piece, at, stride)   coopMatStore(piece, pool, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define ADD_PRODUCT(x, weight, sum)    sum = coopMatMulAdd(x, weight, sum)
#define NO_SUM                         SUM_PIECE(0.0)
#define OWN_TEAM                       gl_SubgroupID
#elif defined(COOP_NV)
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define X_PIECE      fcoopmatNV<16, gl_ScopeSubgroup, PIECE_TOKENS, PIECE_DEPTH>
#define WEIGHT_PIECE fcoopmatNV<16, gl_ScopeSubgroup, PIECE_DEPTH, PIECE_ROWS>
#define SUM_PIECE    fcoopmatNV<32, gl_ScopeSubgroup, PIECE_TOKENS, PIECE_ROWS>
#define LOAD_X(piece, at, stride)      coopMatLoadNV(piece, pool, at, stride, false)
#define LOAD_WEIGHT(piece, at, stride) coopMatLoadNV(piece, pool, at, stride, true)
#define STORE_SUM(piece, at, stride)   coopMatStoreNV(piece, pool, at, stride, false)
#define ADD_PRODUCT(x, weight, sum)    sum = coopMatMulAddNV(x, weight, sum)
#define NO_SUM                         SUM_PIECE(0.0)
#define OWN_TEAM                       gl_SubgroupID
#else
/* Emulation: a team has 32 invocations; each has every 32nd of the 16 x 16 sums. A piece of an operand is its offset in
 * `pool`. */
const uint TEAM = 32, SUMS_EACH = 8;
struct sum_piece { float sums[SUMS_EACH]; };
#define X_PIECE                        uvec2
#define WEIGHT_PIECE                   uvec2
#define SUM_PIECE                      sum_piece
#define LOAD_X(piece, at, stride)      piece = uvec2(at, stride)
#define LOAD_WEIGHT(piece, at, stride) piece = uvec2(at, stride)
#define STORE_SUM(piece, at, stride)   store_sum(piece, at, stride)
#define ADD_PRODUCT(x, weight, sum)    add_product(x, weight, sum)
#define NO_SUM                         no_sum()
#define OWN_TEAM                       (gl_LocalInvocationIndex / TEAM)

float half_in_pool(uvec2 piece, uint row, uint column)
{
    return half_of(pool[piece.x + row * piece.y + column / 8][column / 2 & 3u], column);
}

sum_piece no_sum()
{
    sum_piece result;
    [[dont_unroll]] for (uint i = 0; i < SUMS_EACH; i++)
        result.sums[i] = 0;
    return result;
}

void add_product(uvec2 x, uvec2 weight, inout sum_piece sum)
{
    uint lane = gl_LocalInvocationIndex % TEAM;
    [[dont_unroll]] for (uint i = 0; i < SUMS_EACH; i++) {
        uint at = i * TEAM + lane;
        [[dont_unroll]] for (uint k = 0; k < PIECE_DEPTH; k++)
            sum.sums[i] += half_in_pool(x, at / PIECE_ROWS, k) * half_in_pool(weight, at % PIECE_ROWS, k);
    }
}

void store_sum(sum_piece sum, uint to, uint stride)
{
    uint lane = gl_LocalInvocationIndex % TEAM;
    [[dont_unroll]] for (uint i = 0; i < SUMS_EACH; i++) {
        uint at = i * TEAM + lane, column = at % PIECE_ROWS;
        pool[to + at / PIECE_ROWS * stride + column / 4][column & 3u] = floatBitsToUint(sum.sums[i]);
    }
}
#endif

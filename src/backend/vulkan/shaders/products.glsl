/* Common parts of the batch matmuls: bindings, the matrix of a workgroup, storing sums. */
#include "blocks.glsl"
#include "dot.glsl"

layout(constant_id = 3) const uint TOKENS_AND_GLU = 2;
const uint TOKENS_EACH = TOKENS_AND_GLU & 15u; /* tokens of one invocation */
const uint HAS_GLU = TOKENS_AND_GLU >> 4 & 1u; /* two matrices, the second is `up` */

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_VECTORS) readonly buffer Vectors { float vectors[]; };
layout(std430, binding = BIND_TABLE) readonly buffer Table { matrix matrices[]; };
layout(std430, binding = BIND_ROUNDED) readonly buffer Rounded { uint rounded[]; };
layout(push_constant) uniform Push { matmul_arguments arguments; };

/* The index in the table of this workgroup's matrix; with a glu, that of the gate. */
uint own_matrix()
{
    uint index = arguments.first_matrix;
    while (HAS_GLU == 0 && index + 1 < arguments.first_matrix + arguments.matrix_count &&
           gl_WorkGroupID.x >= matrices[index + 1].first_group)
        index++;
    return index;
}

float with_bias(matrix m, uint row, float sum)
{
    return m.bias == NO_OPERAND ? sum : sum + vectors[m.bias + m.to_first + row];
}

void store(matrix m, matrix up, uint row, uint token, float sum, float up_sum)
{
    if (HAS_GLU != 0) {
        arena[arguments.glu_to + token * m.to_columns + m.to_first + row] =
            activate(arguments.glu, with_bias(m, row, sum)) * with_bias(up, row, up_sum);
        return;
    }
    float result = activate(m.activation, with_bias(m, row, sum));
    uint at = m.to + token * m.to_columns + m.to_first + row;
    arena[at] = (m.flags & MATRIX_ACCUMULATE) != 0 ? arena[at] + result : result;
}

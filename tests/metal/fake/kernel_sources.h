/* The kernels of one library, in the order of src/backend/metal/CMakeLists.txt. */
/* clang-format off */
#include "backend/metal/shaders/start.metal"
#include "backend/metal/shaders/common.metal"
#include "backend/metal/shaders/blocks.metal"
#include "backend/metal/shaders/matmul.metal"
#include "backend/metal/shaders/attend.metal"
#include "backend/metal/shaders/rows.metal"
#include "backend/metal/shaders/sample.metal"
#include "backend/metal/shaders/step.metal"
#include "backend/metal/shaders/wkv7.metal"
/* clang-format on */

/* Function constants are variables here. */
inline void set_constants(const unsigned values[METAL_CONSTANTS])
{
    KIND = values[METAL_CONSTANT_KIND];
    LANES = values[METAL_CONSTANT_LANES];
    TOKENS = values[METAL_CONSTANT_TOKENS];
    ROUNDS = values[METAL_CONSTANT_ROUNDS];
    PARTS = values[METAL_CONSTANT_PARTS];
    NORMS = values[METAL_CONSTANT_NORMS];
    GATES = values[METAL_CONSTANT_GATES];
    ROTATES = values[METAL_CONSTANT_ROTATES];
    ROWS = values[METAL_CONSTANT_ROWS];
    SIMDGROUPS = values[METAL_CONSTANT_SIMDGROUPS];
    CACHE = values[METAL_CONSTANT_CACHE];
    PROJECTS = values[METAL_CONSTANT_PROJECTS];
    SUMS = values[METAL_CONSTANT_SUMS];
    DIM = values[METAL_CONSTANT_DIM];
}

/* Sampling as a kernel of its own, for the graph of many tokens: launched once for each stage, with the same
 * grid each time. */
#include "backend/cuda/kernels/common/sample.cuh"
#include "backend/cuda/kernels/common/tensor_cores.cuh"

enum { SAMPLE_THREADS = 512 };

extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS)
    salvo_sample(const struct cuda_machine *machine, uint32_t stage)
{
    __shared__ __align__(16) uint8_t shared[CUDA_SAMPLE_SHARED];
    invite_next_launch();
    wait_for_last_launch();
    sample_stage(*machine, stage, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, shared);
}

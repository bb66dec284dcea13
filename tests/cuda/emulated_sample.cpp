/* The stages of sampling as device code, run on the host. */
#include "cuda/emulator.h"

#include "backend/cuda/sample.cuh"
#include "cuda/emulated_sample.h"

void emulated_sample(const struct cuda_machine *machine, unsigned blocks, unsigned threads, unsigned seed)
{
    for (uint32_t stage = 0; stage < CUDA_SAMPLE_STAGES; stage++) {
        emulate({blocks, threads, CUDA_SAMPLE_SHARED, seed + stage, false}, [=] {
            sample_stage(*machine, stage, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, emulator_shared());
        });
    }
}

uint64_t emulated_weight(float x)
{
    return sample_weight(x);
}

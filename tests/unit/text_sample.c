#include "text_sample.h"

#include "gguf_sample.h"

#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Entries ----------------------------------------------------------------------------------------- */

static struct buffer *begin_entry(struct text_sample *sample, const char *key, enum salvo_type type)
{
    sample->entry_count++;
    put_key(&sample->entries, key, type);
    return &sample->entries;
}

void sample_text(struct text_sample *sample, const char *key, const char *value)
{
    put_text(begin_entry(sample, key, SALVO_STRING), value);
}

void sample_u32(struct text_sample *sample, const char *key, uint32_t value)
{
    put_number(begin_entry(sample, key, SALVO_U32), value, 4);
}

void sample_bool(struct text_sample *sample, const char *key, bool value)
{
    put_number(begin_entry(sample, key, SALVO_BOOL), value, 1);
}

void sample_texts(struct text_sample *sample, const char *key, const char *const *items, size_t count)
{
    put_array(begin_entry(sample, key, SALVO_ARRAY), SALVO_STRING, count);
    for (size_t i = 0; i < count; i++)
        put_text(&sample->entries, items[i]);
}

void sample_integers(struct text_sample *sample, const char *key, const int32_t *items, size_t count)
{
    put_array(begin_entry(sample, key, SALVO_ARRAY), SALVO_I32, count);
    for (size_t i = 0; i < count; i++)
        put_number(&sample->entries, (uint32_t)items[i], 4);
}

void sample_floats(struct text_sample *sample, const char *key, const float *items, size_t count)
{
    put_array(begin_entry(sample, key, SALVO_ARRAY), SALVO_F32, count);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &items[i], sizeof bits);
        put_number(&sample->entries, bits, 4);
    }
}

enum salvo_status sample_open(struct text_sample *sample)
{
    sample->file.size = 0;
    put_header(&sample->file, 3, 0, sample->entry_count);
    enum salvo_status status = buffer_append(&sample->file, sample->entries.data, sample->entries.size);
    if (status == SALVO_OK)
        status = gguf_open_memory(sample->file.data, sample->file.size, "sample", &sample->gguf);
    if (status == SALVO_OK)
        status = tokenizer_open(sample->gguf, &sample->tokenizer);
    return status;
}

void sample_close(struct text_sample *sample)
{
    tokenizer_close(sample->tokenizer);
    gguf_close(sample->gguf);
    buffer_free(&sample->entries);
    buffer_free(&sample->file);
    *sample = (struct text_sample){0};
}

/* ---- Whole vocabularies ------------------------------------------------------------------------------ */

static char byte_texts[256][8];

/* The last tokens of BPE and RWKV. `words` has six. */
static void put_tokens(struct text_sample *sample, const char *const *words)
{
    static const char *const special[] = {"<|im_start|>", "<|im_end|>", "<|im_end|>>", "<tool>"};
    const char *tokens[SAMPLE_COUNT];
    int32_t types[SAMPLE_COUNT];
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        tokens[i] = i < 256 ? byte_texts[i] : i < SAMPLE_START ? words[i - 256] : special[i - SAMPLE_START];
        types[i] = i < SAMPLE_START ? 1 : i == SAMPLE_TOOL || sample->user_defined ? 4 : 3;
    }
    sample_texts(sample, "tokenizer.ggml.tokens", tokens, SAMPLE_COUNT);
    sample_integers(sample, "tokenizer.ggml.token_type", types, SAMPLE_COUNT);
    sample_u32(sample, "tokenizer.ggml.bos_token_id", SAMPLE_START);
    sample_u32(sample, "tokenizer.ggml.eos_token_id", SAMPLE_END);
}

void sample_bpe(struct text_sample *sample, const char *pre)
{
    uint32_t unprintable = 0x100;
    for (uint32_t i = 0; i < 256; i++) {
        bool printable = (i > 0x20 && i < 0x7f) || (i > 0xa0 && i != 0xad);
        byte_texts[i][unicode_encode(printable ? i : unprintable++, byte_texts[i])] = 0;
    }
    sample_text(sample, "tokenizer.ggml.model", "gpt2");
    sample_text(sample, "tokenizer.ggml.pre", pre);
    put_tokens(sample, (const char *const[]){"he", "ll", "hell", "lo", "hello", "\xc4\xa0hello"});
    sample_texts(
        sample, "tokenizer.ggml.merges", ITEMS("h e", "l l", "he ll", "hell o", "\xc4\xa0 hello", "l o"));
}

void sample_rwkv(struct text_sample *sample)
{
    for (uint32_t i = 0; i < 256; i++)
        snprintf(byte_texts[i], sizeof byte_texts[i], "\\x%02x", i);
    sample_text(sample, "tokenizer.ggml.model", "rwkv");
    put_tokens(sample, (const char *const[]){"he", "ll", "hell", "\\n\\t\\'\\\\", "hello", " hello"});
}

void sample_spm(struct text_sample *sample)
{
    static const char *const words[] = {"\xe2\x96\x81", "h", "e", "l", "o", "he", "ll", "hell", "hello",
        "\xe2\x96\x81hello", "a", "aa", "lo"};
    static const float scores[] = {-20, -21, -22, -23, -24, -5, -4, -3, -2, -1, -25, -6, -3.5f};
    const char *tokens[SPM_COUNT] = {"<unk>", "<s>", "</s>"};
    int32_t types[SPM_COUNT] = {2, 3, 3};
    float all_scores[SPM_COUNT] = {0};
    for (uint32_t i = 0; i < 256; i++) {
        snprintf(byte_texts[i], sizeof byte_texts[i], "<0x%02X>", i);
        tokens[SPM_BYTES + i] = byte_texts[i];
        types[SPM_BYTES + i] = 6;
    }
    for (uint32_t i = SPM_BLANK; i < SPM_COUNT; i++) {
        tokens[i] = words[i - SPM_BLANK];
        all_scores[i] = scores[i - SPM_BLANK];
        types[i] = 1;
    }
    sample_text(sample, "tokenizer.ggml.model", "llama");
    sample_texts(sample, "tokenizer.ggml.tokens", tokens, SPM_COUNT);
    sample_floats(sample, "tokenizer.ggml.scores", all_scores, SPM_COUNT);
    sample_integers(sample, "tokenizer.ggml.token_type", types, SPM_COUNT);
}

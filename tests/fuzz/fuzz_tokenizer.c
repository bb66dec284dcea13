/*
 * The first byte of the input chooses: any bytes come back from the three kinds of vocabularies, with every
 * pre-tokenizer; or the input makes the vocabulary, piece by piece or as a whole file, and text is put
 * through whatever opens.
 */
#include "unit/gguf_sample.h"
#include "unit/text_sample.h"

#include "text/split.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* ---- Any bytes come back ----------------------------------------------------------------------------- */

enum { MAX_PRE_TOKENIZERS = 256 };

/* Opened when first needed and kept. */
static struct text_sample bpe_samples[MAX_PRE_TOKENIZERS], spm_sample, rwkv_sample;

static const struct text_sample *opened(struct text_sample *sample, const struct pre_tokenizer *pre)
{
    if (!sample->tokenizer) {
        if (pre)
            sample_bpe(sample, pre->name);
        else if (sample == &spm_sample)
            sample_spm(sample);
        else
            sample_rwkv(sample);
        require(sample_open(sample) == SALVO_OK);
    }
    return sample;
}

static void check_round_trip(const struct tokenizer *tokenizer, const char *text, size_t size, unsigned flags)
{
    struct token_list ids = {0};
    struct buffer back = {0};
    require(tokenizer_encode(tokenizer, text, size, flags, &ids) == SALVO_OK);
    require(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back) == SALVO_OK);
    /*
     * SentencePiece puts blanks after special tokens and takes its mark for one: there is no way back from
     * these.
     */
    bool spm = strcmp(tokenizer_model(tokenizer), "llama") == 0;
    if (!spm || !(flags & TOKENIZE_SPECIAL || memmem(text, size, "\xe2\x96\x81", 3))) {
        require(back.size == size);
        require(size == 0 || memcmp(back.data, text, size) == 0);
    }
    token_list_free(&ids);
    buffer_free(&back);
}

static void try_text(uint8_t choice, const char *text, size_t size)
{
    size_t pre_count = 0;
    while (pre_tokenizer_at(pre_count))
        pre_count++;
    require(pre_count <= MAX_PRE_TOKENIZERS);
    size_t index = choice % (pre_count + 2);
    const struct text_sample *sample = index == pre_count ? opened(&spm_sample, NULL)
                                       : index == pre_count + 1
                                           ? opened(&rwkv_sample, NULL)
                                           : opened(&bpe_samples[index], pre_tokenizer_at(index));
    check_round_trip(sample->tokenizer, text, size, 0);
    check_round_trip(sample->tokenizer, text, size, TOKENIZE_SPECIAL);
}

/* ---- Any vocabulary ---------------------------------------------------------------------------------- */

static void use(const struct tokenizer *tokenizer, const char *text, size_t size)
{
    struct token_list ids = {0};
    struct buffer back = {0};
    for (unsigned flags = 0; flags < 8; flags++) {
        ids.count = 0;
        require(tokenizer_encode(tokenizer, text, size, flags, &ids) == SALVO_OK);
        for (size_t i = 0; i < ids.count; i++)
            (void)tokenizer_is_end(tokenizer, ids.ids[i]);
        require(tokenizer_decode(tokenizer, ids.ids, ids.count, flags & 1, &back) == SALVO_OK);
    }
    token_list_free(&ids);
    buffer_free(&back);
}

enum { MAX_ITEMS = 64, MAX_ITEM_SIZE = 64 };

/* The input, read piece by piece; zeros when it is used up. */
struct input {
    const uint8_t *at, *end;
};

static uint8_t take_byte(struct input *input)
{
    return input->at == input->end ? 0 : *input->at++;
}

/* Strings that the file format allows: ASCII, letters of the byte alphabet, the mark for a blank. */
static void take_strings(
    struct input *input, char items[MAX_ITEMS][MAX_ITEM_SIZE], const char *pointers[MAX_ITEMS], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = take_byte(input) % (MAX_ITEM_SIZE / 3), length = 0;
        for (size_t n = 0; n < size; n++) {
            uint8_t byte = take_byte(input);
            if (byte > 0 && byte < 0x80) {
                items[i][length++] = (char)byte;
            } else if (byte == 0xff) {
                memcpy(items[i] + length, "\xe2\x96\x81", 3);
                length += 3;
            } else {
                items[i][length++] = (char)0xc4; /* U+0100 to U+013F */
                items[i][length++] = (char)(0x80 | (byte & 0x3f));
            }
        }
        items[i][length] = 0;
        pointers[i] = items[i];
    }
}

static void try_pieces(struct input input)
{
    static const char *const models[] = {"gpt2", "llama", "rwkv", "none"};
    static const char *const ids[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id", "tokenizer.ggml.unknown_token_id"};
    static char items[MAX_ITEMS][MAX_ITEM_SIZE];
    const char *pointers[MAX_ITEMS];
    int32_t types[MAX_ITEMS];
    float scores[MAX_ITEMS];
    struct text_sample sample = {0};
    uint8_t switches = take_byte(&input);
    size_t count = take_byte(&input) % MAX_ITEMS;

    sample_text(&sample, "tokenizer.ggml.model", models[switches % 4]);
    take_strings(&input, items, pointers, count);
    sample_texts(&sample, "tokenizer.ggml.tokens", pointers, count);
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = take_byte(&input);
        types[i] = byte % 9 - 1;
        scores[i] = byte == 0xff ? __builtin_nanf("") : (float)byte - 100;
    }
    sample_integers(&sample, "tokenizer.ggml.token_type", types, count);
    sample_floats(&sample, "tokenizer.ggml.scores", scores, count);
    size_t merges = take_byte(&input) % MAX_ITEMS;
    take_strings(&input, items, pointers, merges);
    sample_texts(&sample, "tokenizer.ggml.merges", pointers, merges);
    if (switches & 4)
        sample_u32(&sample, ids[switches >> 3 & 3], take_byte(&input));
    if (switches & 32)
        sample_text(&sample, "general.name", "phi-3");
    const struct pre_tokenizer *pre = pre_tokenizer_at(take_byte(&input));
    sample_text(&sample, "tokenizer.ggml.pre", pre ? pre->name : "?");
    if (sample_open(&sample) == SALVO_OK)
        use(sample.tokenizer, (const char *)input.at, (size_t)(input.end - input.at));
    sample_close(&sample);
}

static void try_file(const uint8_t *data, size_t size)
{
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    struct buffer file = {0}; /* aligned, as a file in memory has to be */
    require(buffer_append(&file, data, size) == SALVO_OK);
    if (gguf_open_memory(file.data, file.size, "input", &gguf) == SALVO_OK &&
        tokenizer_open(gguf, &tokenizer) == SALVO_OK)
        use(tokenizer, "hello <|im_end|> \xff\n", 19);
    tokenizer_close(tokenizer);
    gguf_close(gguf);
    buffer_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    if (data[0] < 128)
        try_text(data[1], (const char *)data + 2, size - 2);
    else if (data[0] < 224)
        try_pieces((struct input){data + 1, data + size});
    else
        try_file(data + 1, size - 1);
    return 0;
}

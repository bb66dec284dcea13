/* Small vocabularies, made in memory entry by entry, right ones and wrong ones. */
#ifndef TESTS_TEXT_SAMPLE_H
#define TESTS_TEXT_SAMPLE_H

#include "base/buffer.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

/* All zeros is an empty file. */
struct text_sample {
    struct buffer entries, file;
    uint64_t entry_count;
    bool user_defined; /* what would be control tokens are defined by the user, as in some files */
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

void sample_text(struct text_sample *sample, const char *key, const char *value);
void sample_u32(struct text_sample *sample, const char *key, uint32_t value);
void sample_bool(struct text_sample *sample, const char *key, bool value);
void sample_texts(struct text_sample *sample, const char *key, const char *const *items, size_t count);
void sample_integers(struct text_sample *sample, const char *key, const int32_t *items, size_t count);
void sample_floats(struct text_sample *sample, const char *key, const float *items, size_t count);

/* The file as it is now; opens its tokenizer. Close it in any case. */
enum salvo_status sample_open(struct text_sample *sample);
void sample_close(struct text_sample *sample);

/* A writable string literal list and its length. */
#define ITEMS(...) \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

/*
 * Vocabularies that hold every byte, so that any text comes back. Their first tokens are the bytes in order,
 * then come words, then control tokens and one that is defined by the user.
 */
enum {
    SAMPLE_HELLO = 256 + 4, /* "hello" */
    SAMPLE_BLANK_HELLO,     /* " hello" */
    SAMPLE_START,           /* "<|im_start|>", control */
    SAMPLE_END,             /* "<|im_end|>", control */
    SAMPLE_END_LONG,        /* "<|im_end|>>", control */
    SAMPLE_TOOL,            /* "<tool>", user-defined */
    SAMPLE_COUNT,
};

void sample_bpe(struct text_sample *sample, const char *pre); /* merges lead to "hello" and " hello" */
void sample_rwkv(struct text_sample *sample);
void sample_spm(struct text_sample *sample);

/* The SentencePiece one begins with <unk>, <s> and </s>, as these do. */
enum {
    SPM_UNKNOWN,
    SPM_BOS,
    SPM_EOS,
    SPM_BYTES,
    SPM_BLANK = SPM_BYTES + 256, /* U+2581 */
    SPM_H,
    SPM_E,
    SPM_L,
    SPM_O,
    SPM_HE,
    SPM_LL,
    SPM_HELL,
    SPM_HELLO,
    SPM_BLANK_HELLO,
    SPM_A,
    SPM_AA,
    SPM_LO, /* a higher score than LL, so "llo" is l + lo */
    SPM_COUNT,
};

#endif

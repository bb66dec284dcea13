/*
 * salvo: language models from GGUF files, one submission per token.
 *
 * This header is the whole interface and its manual. It needs nothing but a C11 or C++ compiler.
 *
 * OWNERSHIP. Every object made by a `salvo_*_open` is destroyed by the matching `salvo_*_close`, which
 * accepts NULL. Pointers returned by a getter belong to the object asked and live as long as it does. An
 * object may be closed only after the objects made from it.
 *
 * ERRORS. Functions that can fail return `enum salvo_status`; results go to the last parameters, which
 * are nulled first. After a failure salvo_error() has one readable line about it, for the calling thread.
 *
 * THREADS. A model is immutable once open and may be used by any number of threads at once.
 */
#ifndef SALVO_H
#define SALVO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SALVO_VERSION_MAJOR 0
#define SALVO_VERSION_MINOR 1
#define SALVO_VERSION_PATCH 0

/* "0.1.0" */
const char *salvo_version(void);

/* ---- Status ---------------------------------------------------------------------------------------------
 */

enum salvo_status {
    SALVO_OK = 0,
    SALVO_ERROR_ARGUMENT,    /* the caller passed something that cannot be meant */
    SALVO_ERROR_IO,          /* a file could not be opened, read or written */
    SALVO_ERROR_FORMAT,      /* a file is damaged or contradicts itself */
    SALVO_ERROR_UNSUPPORTED, /* a file or device is valid but not handled */
    SALVO_ERROR_MEMORY,      /* not enough memory */
};

/* The last error of the calling thread: one line, no newline, names the file, key or tensor. Never NULL. */
const char *salvo_error(void);

enum salvo_log_level { SALVO_LOG_WARNING, SALVO_LOG_INFO, SALVO_LOG_DEBUG };

/* Where warnings go. `line` has no newline. Set once, before other calls; NULL restores silence, the default.
 */
typedef void (*salvo_log_function)(void *user, enum salvo_log_level level, const char *line);
void salvo_log_set(salvo_log_function function, void *user);

/* ---- Values ----------------------------------------------------------------------------------------------
 */

/* The numbers are those of the GGUF format. */
enum salvo_type {
    SALVO_U8 = 0,
    SALVO_I8 = 1,
    SALVO_U16 = 2,
    SALVO_I16 = 3,
    SALVO_U32 = 4,
    SALVO_I32 = 5,
    SALVO_F32 = 6,
    SALVO_BOOL = 7,
    SALVO_STRING = 8,
    SALVO_ARRAY = 9,
    SALVO_U64 = 10,
    SALVO_I64 = 11,
    SALVO_F64 = 12,
};

/* Bytes with a length; not terminated by NUL. */
struct salvo_text {
    const char *data;
    size_t size;
};

/* One metadata value. Every unsigned type is in `u`, every signed one in `i`, both floats in `f`. */
struct salvo_value {
    enum salvo_type type;
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        struct salvo_text text;
        struct {
            enum salvo_type type;
            uint64_t count;
            const uint8_t *data, *end; /* private */
        } array;
    };
};

/*
 * Takes the first item out of an array: `array` then holds the rest. False when it is empty. Work on a copy:
 *     struct salvo_value rest = value, item;
 *     while (salvo_array_next(&rest, &item)) ...
 */
bool salvo_array_next(struct salvo_value *array, struct salvo_value *out_item);

/* ---- Model: a GGUF file ----------------------------------------------------------------------------------
 */

struct salvo_model;

/*
 * Maps and checks a file; nothing is copied. `path` may be the first file of a split model. The file may be
 * of any architecture: what cannot be run can still be looked at.
 */
enum salvo_status salvo_model_open(const char *path, struct salvo_model **out);
void salvo_model_close(struct salvo_model *model);

/* What the metadata says in the words common to all architectures. Numbers are 0 and texts "" where it says
 * nothing. */
struct salvo_model_info {
    const char *path;
    const char *architecture; /* "llama" */
    const char *name, *license;
    const char *file_type;     /* the quantiser's name for the mixture, "Q4_K_M" */
    const char *tokenizer;     /* "gpt2", "llama", "rwkv", ... */
    const char *pre_tokenizer; /* "smollm" */
    bool has_chat_template;
    uint32_t gguf_version, files; /* files: more than 1 for a split model */
    uint64_t file_size, parameters;
    uint32_t layers, width, heads, kv_heads, head_size, feed_forward, vocabulary, context;
};

const struct salvo_model_info *salvo_model_info(const struct salvo_model *model);

/* Metadata in the order of the file. */
size_t salvo_model_metadata_count(const struct salvo_model *model);
struct salvo_value salvo_model_metadata(
    const struct salvo_model *model, size_t index, struct salvo_text *out_key);

/* False when the model has no such key. */
bool salvo_model_find(const struct salvo_model *model, const char *key, struct salvo_value *out);

struct salvo_tensor {
    struct salvo_text name;
    const char *type;     /* "Q4_K"; NULL when this version does not know the type */
    uint32_t type_number; /* as in the file */
    uint32_t dimensions;
    uint64_t shape[4]; /* fastest first */
    uint64_t elements;
    uint64_t size; /* bytes; 0 when the type is not known */
};

size_t salvo_model_tensor_count(const struct salvo_model *model);
struct salvo_tensor salvo_model_tensor(const struct salvo_model *model, size_t index);

/* ---- Text -------------------------------------------------------------------------------------------------
 */

enum salvo_tokenize_flags {
    SALVO_TOKENIZE_SPECIAL =
        1, /* control tokens written in the text become those tokens; off: they are plain text */
    SALVO_TOKENIZE_BOS = 2, /* begin with the beginning-of-text token, if the vocabulary has one */
    SALVO_TOKENIZE_EOS = 4, /* end with the end-of-text token, if the vocabulary has one */
};

/* What the model's metadata asks for: SALVO_TOKENIZE_BOS and SALVO_TOKENIZE_EOS, or neither. */
enum salvo_status salvo_tokenize_default_flags(struct salvo_model *model, unsigned *out_flags);

/* Any bytes are accepted. *out_ids is freed by salvo_free. */
enum salvo_status salvo_tokenize(struct salvo_model *model, const char *text, size_t size, unsigned flags,
    int32_t **out_ids, size_t *out_count);

/* The bytes that the ids stand for; control tokens are written only with `special`. *out_text is freed by
 * salvo_free. */
enum salvo_status salvo_detokenize(struct salvo_model *model, const int32_t *ids, size_t count, bool special,
    char **out_text, size_t *out_size);

/* The bytes of one token; control tokens give their names. *out_text is freed by salvo_free. */
enum salvo_status salvo_token_text(struct salvo_model *model, int32_t id, char **out_text, size_t *out_size);

/*
 * How many bytes at the end of `text` begin a UTF-8 character that is not complete, 0 to 3: hold them back
 * when writing text as it comes.
 */
size_t salvo_utf8_incomplete(const char *text, size_t size);

void salvo_free(void *memory);

/* ---- Devices
 * ----------------------------------------------------------------------------------------------- */

struct salvo_device {
    const char *backend; /* "cpu" */
    uint32_t number;     /* within its backend, from 0 */
    const char *name;
    const char *features; /* instruction sets or the like that salvo can use, separated by blanks */
    uint32_t cores;       /* 0 where that means nothing */
    uint64_t memory;      /* bytes in all */
};

size_t salvo_device_count(void);
struct salvo_device salvo_device_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif

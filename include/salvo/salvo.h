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
 * THREADS. A model is immutable once open and may be used by any number of threads at once. An engine and its
 * sessions are used by one thread at a time; salvo_session_cancel alone may be called from any thread at any
 * time. The library's own threads take no signals.
 */
#ifndef SALVO_H
#define SALVO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of the shared library; everything else in it is hidden. */
#if defined(__GNUC__)
#define SALVO_API __attribute__((visibility("default")))
#else
#define SALVO_API
#endif

#define SALVO_VERSION_MAJOR 0
#define SALVO_VERSION_MINOR 9
#define SALVO_VERSION_PATCH 0

/* "0.9.0" */
SALVO_API const char *salvo_version(void);

/* ---- Status ---- */

enum salvo_status {
    SALVO_OK = 0,
    SALVO_ERROR_ARGUMENT,    /* the caller passed something that cannot be meant */
    SALVO_ERROR_IO,          /* a file could not be opened, read or written */
    SALVO_ERROR_FORMAT,      /* a file is damaged or contradicts itself */
    SALVO_ERROR_UNSUPPORTED, /* a file or device is valid but not handled */
    SALVO_ERROR_MEMORY,      /* not enough memory */
    SALVO_ERROR_CONTEXT,     /* the context is full */
    SALVO_ERROR_CANCELLED,   /* salvo_session_cancel was called */
    SALVO_ERROR_NUMERIC,     /* a model produced nothing but NaN */
    SALVO_ERROR_DEVICE,      /* a device or its driver failed; the engine has to be opened again */
};

/* The last error of the calling thread: one line, no newline, names the file, key or tensor. Never NULL. */
SALVO_API const char *salvo_error(void);

enum salvo_log_level { SALVO_LOG_WARNING, SALVO_LOG_INFO, SALVO_LOG_DEBUG };

/* Where warnings go. `line` has no newline. Set once, before other calls; NULL restores silence, the default.
 */
typedef void (*salvo_log_function)(void *user, enum salvo_log_level level, const char *line);
SALVO_API void salvo_log_set(salvo_log_function function, void *user);

/* ---- Values ---- */

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
SALVO_API bool salvo_array_next(struct salvo_value *array, struct salvo_value *out_item);

/* ---- Model: a GGUF file ---- */

struct salvo_model;

/*
 * Maps and checks a file; nothing is copied. `path` may be the first file of a split model. The file may be
 * of any architecture: what cannot be run can still be looked at.
 */
SALVO_API enum salvo_status salvo_model_open(const char *path, struct salvo_model **out);
SALVO_API void salvo_model_close(struct salvo_model *model);

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

SALVO_API const struct salvo_model_info *salvo_model_info(const struct salvo_model *model);

/* Whether `path` leads to one of the model's files, by its name or by a link: writing there would destroy it.
 */
SALVO_API bool salvo_model_is_at(const struct salvo_model *model, const char *path);

/* Metadata in the order of the file. Beyond its end there are zeros, as for tensors below. */
SALVO_API size_t salvo_model_metadata_count(const struct salvo_model *model);
SALVO_API struct salvo_value salvo_model_metadata(
    const struct salvo_model *model, size_t index, struct salvo_text *out_key);

/* False when the model has no such key. */
SALVO_API bool salvo_model_find(const struct salvo_model *model, const char *key, struct salvo_value *out);

struct salvo_tensor {
    struct salvo_text name;
    const char *type;     /* "Q4_K"; NULL when this version does not know the type */
    uint32_t type_number; /* as in the file */
    uint32_t dimensions;
    uint64_t shape[4]; /* fastest first */
    uint64_t elements;
    uint64_t size; /* bytes; 0 when the type is not known */
};

SALVO_API size_t salvo_model_tensor_count(const struct salvo_model *model);
SALVO_API struct salvo_tensor salvo_model_tensor(const struct salvo_model *model, size_t index);

/* ---- Text ---- */

enum salvo_tokenize_flags {
    SALVO_TOKENIZE_SPECIAL =
        1, /* control tokens written in the text become those tokens; off: they are plain text */
    SALVO_TOKENIZE_BOS = 2, /* begin with the beginning-of-text token, if the vocabulary has one */
    SALVO_TOKENIZE_EOS = 4, /* end with the end-of-text token, if the vocabulary has one */
};

/* What the model's metadata asks for: SALVO_TOKENIZE_BOS and SALVO_TOKENIZE_EOS, or neither. */
SALVO_API enum salvo_status salvo_tokenize_default_flags(struct salvo_model *model, unsigned *out_flags);

/* Any bytes are accepted. *out_ids is freed by salvo_free. */
SALVO_API enum salvo_status salvo_tokenize(struct salvo_model *model, const char *text, size_t size,
    unsigned flags, int32_t **out_ids, size_t *out_count);

/* The bytes that the ids stand for; control tokens are written only with `special`. *out_text is freed by
 * salvo_free. */
SALVO_API enum salvo_status salvo_detokenize(struct salvo_model *model, const int32_t *ids, size_t count,
    bool special, char **out_text, size_t *out_size);

/* The bytes of one token; control tokens give their names. *out_text is freed by salvo_free. */
SALVO_API enum salvo_status salvo_token_text(
    struct salvo_model *model, int32_t id, char **out_text, size_t *out_size);

/*
 * How many bytes at the end of `text` begin a UTF-8 character that is not complete, 0 to 3: hold them back
 * when writing text as it comes.
 */
SALVO_API size_t salvo_utf8_incomplete(const char *text, size_t size);

SALVO_API void salvo_free(void *memory);

/* ---- Chat templates ---- */

/*
 * What turns a conversation into the text that a model was trained on: a Jinja template, run as transformers
 * runs it. Immutable once open: any number of threads may use one. Nothing in a template can touch a file or
 * run forever; an error names its line and column.
 */
struct salvo_template;

/*
 * `text` is the template; NULL: the model's own, or where it has none the built-in one. That one writes
 * "User: ", the message without its blank lines, a blank line, "Assistant:", as RWKV world models are trained
 * on and others understand. `model` may be NULL when there is a text: then bos_token and the like are not
 * defined and there are no tokens; otherwise it must stay open as long as the template.
 */
SALVO_API enum salvo_status salvo_template_open(
    struct salvo_model *model, const char *text, size_t size, struct salvo_template **out);
SALVO_API void salvo_template_close(struct salvo_template *chat);

struct salvo_message {
    const char *role; /* "system", "user", "assistant", "tool"; NULL counts as "" */
    struct salvo_text content;
    const char *json; /* NULL, or an object with more members of the message: {"tool_calls": [...]} */
};

/* All zeros but the messages are the defaults. */
struct salvo_conversation {
    const struct salvo_message *messages;
    size_t message_count;

    /* More, or everything, as JSON: an object like an OpenAI request, whose members (messages, tools,
     * enable_thinking, ...) become the template's variables, or an array of messages. Messages above take the
     * place of those in here. */
    struct salvo_text json;
    bool no_generation_prompt; /* end after the last message, do not begin the answer */
};

/* A part of the text. What comes from the conversation is content: it never becomes a control token, nor a
 * user-defined one that the template writes itself, even if it is written like one. */
struct salvo_piece {
    const char *text;
    size_t size;
    bool content;
};

struct salvo_prompt {
    const char *text; /* all pieces */
    size_t size;
    const struct salvo_piece *pieces;
    size_t piece_count;
};

/* *out is freed by salvo_free, at once with all that it points to. */
SALVO_API enum salvo_status salvo_template_render(const struct salvo_template *chat,
    const struct salvo_conversation *conversation, struct salvo_prompt **out);

/*
 * The same as tokens: those of the whole text, in which only the template's own words may be control tokens.
 * They begin with the beginning-of-text token where the model's metadata asks for it or the template writes
 * it, never with two. *out_ids is freed by salvo_free.
 */
SALVO_API enum salvo_status salvo_template_tokens(const struct salvo_template *chat,
    const struct salvo_conversation *conversation, int32_t **out_ids, size_t *out_count);

/* What ends an answer beside the end tokens that generation knows, as found in what the template writes
 * between an answer and the next message: for salvo_generate_options. */
struct salvo_stops {
    const char *const *strings; /* "\n\nUser:" */
    size_t string_count;
    const int32_t *ids;
    size_t id_count;
};

SALVO_API struct salvo_stops salvo_template_stops(const struct salvo_template *chat);

/* ---- Devices ---- */

struct salvo_device {
    const char *backend; /* "cpu" */
    uint32_t number;     /* within its backend, from 0 */
    const char *name;
    const char *features; /* instruction sets or the like that salvo can use, separated by blanks */
    uint32_t cores;       /* 0 where that means nothing */
    uint64_t memory;      /* bytes in all */
    bool software;        /* a device that only pretends to be one: it runs on the CPU */
};

SALVO_API size_t salvo_device_count(void);
SALVO_API struct salvo_device salvo_device_at(size_t index);

/* Every backend that salvo has, whether or not it is in this build. */
struct salvo_backend {
    const char *name; /* "cuda" */
    bool built;       /* it is in this build */
    uint32_t devices; /* number of devices that it can use */
    const char *why;  /* why it has no device; NULL where it has one */
};

SALVO_API size_t salvo_backend_count(void);
SALVO_API struct salvo_backend salvo_backend_at(size_t index);

/* Why a device that is there cannot be used: "Tesla T4 has compute capability 7.5; 8.0 is needed". NULL
 * beyond the last. */
SALVO_API const char *salvo_device_unusable(size_t index, const char **out_backend);

/* ---- Engine: a model on a device ---- */

struct salvo_engine;

/* AUTO: f16, or f32 for a model whose tensors are all F32. */
enum salvo_kv_type { SALVO_KV_AUTO, SALVO_KV_F16, SALVO_KV_F32, SALVO_KV_Q8_0 };

/* All zeros, as `struct salvo_engine_options options = {0}`, are the defaults. */
struct salvo_engine_options {
    const char *backend; /* "cpu"; NULL or "auto": the best there is */
    uint32_t device;     /* number within the backend */
    uint32_t sessions;   /* that can be open at once; 0: 1 */
    uint32_t context;    /* positions of each session; 0: the model's, at most 8192 unless it is recurrent */
    uint32_t batch;      /* tokens of a prefill chunk; 0: 512 */
    enum salvo_kv_type kv_type;
    uint32_t threads; /* CPU; 0: one per physical core */
    bool pin;         /* CPU: keep each thread on its core */
    const char *isa;  /* CPU: "scalar", "neon-i8mm", ...; NULL: the best */

    /* Called while weights are loaded, with the bytes done and to do; may be NULL. */
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
};

/*
 * Compiles the model's program for the device and loads the weights. `model` must stay open as long as the
 * engine; `options` may be NULL. A context that does not fit the machine's memory is refused, and so is a
 * backend that is not there: nothing falls back silently. Nothing is allocated afterwards.
 */
SALVO_API enum salvo_status salvo_engine_open(
    struct salvo_model *model, const struct salvo_engine_options *options, struct salvo_engine **out);
SALVO_API void salvo_engine_close(struct salvo_engine *engine);

struct salvo_engine_info {
    const char *backend, *device, *isa;
    uint32_t threads, sessions, context, batch, vocabulary;
    uint64_t weight_bytes, state_bytes, scratch_bytes;
    uint64_t memory_free;    /* of the device, before; 0 where it is the machine's */
    double bytes_per_second; /* that the device's memory can be read with; 0: not known */
};

SALVO_API struct salvo_engine_info salvo_engine_info(const struct salvo_engine *engine);

/* What the engine did so far. */
struct salvo_counters {
    uint64_t submissions;            /* hand-overs to the device */
    uint64_t tokens;                 /* computed, prompts included */
    uint64_t dispatches, barriers;   /* inside the submissions; 0 where there are none to count */
    uint64_t bytes_read_back;        /* from the device */
    uint64_t allocations_after_load; /* on the host and on the device; stays 0 */
    double idle_seconds;             /* of the device between submissions, while it is measured */
    uint64_t waits;                  /* submissions before which all others had to be done */
};

SALVO_API struct salvo_counters salvo_engine_counters(const struct salvo_engine *engine);

/* From now on, or no longer, `idle_seconds` counts, which costs a little time itself. SALVO_ERROR_UNSUPPORTED
 * where the device cannot tell. */
SALVO_API enum salvo_status salvo_engine_measure_idle(struct salvo_engine *engine, bool on);

/* One phase of the work on a token, or on some at once. */
struct salvo_profile_phase {
    const char *kind;       /* "matmul", "attend", ... */
    const char *operations; /* what it does, with the names of tensors */
    double seconds;
    uint64_t bytes; /* of weights and state that it reads */
};

/* The program and the plans it was lowered to, line by line. */
SALVO_API void salvo_engine_print(
    const struct salvo_engine *engine, void (*line)(void *user, const char *text), void *user);

/* ---- Session: one sequence of tokens ---- */

struct salvo_session;

SALVO_API enum salvo_status salvo_session_open(struct salvo_engine *engine, struct salvo_session **out);
SALVO_API void salvo_session_close(struct salvo_session *session);

/* Names, order and defaults as in llama.cpp: bias, penalties, top-k, top-p, min-p, temperature. */
struct salvo_sampler {
    float temperature;                                         /* 0: always the most likely */
    uint32_t top_k;                                            /* 0: off */
    float top_p;                                               /* 1: off */
    float min_p;                                               /* 0: off */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    uint32_t repeat_last_n;
    uint64_t seed; /* the same seed gives the same text */
};

/* What the model's family wants. Llama: temp 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties. RWKV-7:
 * temp 1, top-p 0.3, presence and frequency penalties of 0.5, no top-k and min-p. Penalties look at the last
 * 64; seed 0. */
SALVO_API struct salvo_sampler salvo_sampler_default(const struct salvo_model *model);

/*
 * Holds from the next computed token on: set it before feeding a prompt, whose last token already chooses the
 * next one. Values that cannot be meant (a negative temperature) are refused by name.
 */
SALVO_API enum salvo_status salvo_session_set_sampler(
    struct salvo_session *session, const struct salvo_sampler *sampler);

/* Adds `bias` to the logit of `id` from the next computed token on; -INFINITY forbids it, 0 takes it back. */
SALVO_API enum salvo_status salvo_session_set_bias(struct salvo_session *session, int32_t id, float bias);

/* Tokens in the session, fed and taken ones, at most as many as the engine's context. The pointer stays the
 * same as long as the session is open. */
SALVO_API uint32_t salvo_session_position(const struct salvo_session *session);
SALVO_API const int32_t *salvo_session_tokens(const struct salvo_session *session);

/*
 * Computes more tokens, in chunks of the engine's batch, one submission each. Fails without effect when they
 * do not fit the context. A step that fails or is cancelled has no effect; the chunks before it stay, as
 * salvo_session_position tells, and feeding the rest goes on with the same bits.
 */
SALVO_API enum salvo_status salvo_session_feed(
    struct salvo_session *session, const int32_t *ids, size_t count);

/*
 * The next token: takes the one that was chosen after the last token and appends it to the session. It is
 * chosen when the token before it is computed: the first comes with the prompt, each further one takes one
 * submission. SALVO_ERROR_CONTEXT when the context is full.
 */
SALVO_API enum salvo_status salvo_session_next(struct salvo_session *session, int32_t *out_id);

/*
 * The same for several sessions of one engine in one submission; statuses[i] and ids[i] are those of
 * sessions[i], and one that cannot go on does not stop the others. What a session chooses does not depend on
 * its neighbours.
 */
SALVO_API enum salvo_status salvo_engine_next(
    struct salvo_session *const *sessions, size_t count, int32_t *out_ids, enum salvo_status *out_statuses);

/*
 * Times the phases of computing `count` more tokens at once, `repetitions` times each, and hands them over in
 * order; the session stays as it is. SALVO_ERROR_UNSUPPORTED where the backend cannot.
 */
typedef void (*salvo_profile_function)(void *user, const struct salvo_profile_phase *phase);
SALVO_API enum salvo_status salvo_session_profile(struct salvo_session *session, const int32_t *ids,
    uint32_t count, uint32_t repetitions, salvo_profile_function function, void *user);

/* Logits after the last token fed, [vocabulary]; valid until the engine is used again. NULL when none was fed
 * since the last `next` or since a state was restored (logits are no part of it), or when the device failed
 * to hand them over. */
SALVO_API const float *salvo_session_logits(const struct salvo_session *session);

/* Feeds tokens and hands over the logits after each of them. `row` returns false to stop: the session then
 * holds the tokens up to the end of the chunk that was computed. NULL: no logits are wanted. Nothing is
 * chosen, so that logits that are all NaN are no error here. */
typedef bool (*salvo_logits_function)(void *user, uint32_t position, const float *logits);
SALVO_API enum salvo_status salvo_session_eval(
    struct salvo_session *session, const int32_t *ids, size_t count, salvo_logits_function row, void *user);

enum salvo_finish {
    SALVO_FINISH_END,       /* the model ended its text */
    SALVO_FINISH_STOP,      /* a stop string came */
    SALVO_FINISH_LENGTH,    /* max_tokens were generated */
    SALVO_FINISH_CONTEXT,   /* the context is full */
    SALVO_FINISH_CALLBACK,  /* the callback asked to stop */
    SALVO_FINISH_CANCELLED, /* salvo_session_cancel */
};

SALVO_API const char *salvo_finish_name(enum salvo_finish finish); /* "end", "stop", ... */

/* Text as it comes, in whole UTF-8 characters; one that is not complete when the generation ends is left out,
 * while bytes that begin no character come as they are. Returns false to stop. */
typedef bool (*salvo_text_function)(void *user, const char *text, size_t size);

/* All zeros are the defaults; NULL instead of options means the same. */
struct salvo_generate_options {
    uint32_t max_tokens; /* 0: until the end or the context */
    const char *const
        *stop_strings; /* held back, never handed over; the first to be complete ends the text */
    size_t stop_count;
    const int32_t *stop_ids; /* end the text like end tokens */
    size_t stop_id_count;
    bool ignore_end; /* go on after end tokens; stop_ids still end the text */
    bool special;    /* write control tokens by their names */
    uint32_t ahead;  /* tokens of one submission; 0: what suits the device; more than it can do at once: as
                        many as it can. It changes speed, nothing else */
    salvo_text_function text;
    void *user;
};

struct salvo_generate_result {
    enum salvo_finish finish;
    uint32_t tokens; /* taken: the last of salvo_session_tokens. An end token is not among them */
};

/* Generates from what was fed so far. The session can be fed or generate again afterwards. */
SALVO_API enum salvo_status salvo_session_generate(struct salvo_session *session,
    const struct salvo_generate_options *options, struct salvo_generate_result *out);

/*
 * Stops feed, eval, next and generate within one token or one prefill chunk; when none of them runs, the next
 * one stops at once. From any thread, or a signal handler.
 */
SALVO_API void salvo_session_cancel(struct salvo_session *session);

/*
 * Forgets all tokens from `position` on, without computing anything. A recurrent model goes back to the
 * nearest of a few states that it has kept; the tokens since then are computed again with the next step.
 */
SALVO_API enum salvo_status salvo_session_rollback(struct salvo_session *session, uint32_t position);

/* Makes it cheap to go back to where the session stands: a recurrent model keeps its state here, beside a few
 * older ones. For others there is nothing to do. */
SALVO_API enum salvo_status salvo_session_mark(struct salvo_session *session);

/*
 * State: everything a session needs to go on, with the same bits; sampler and bias are settings and not part
 * of it. `restore` replaces what the session holds; it refuses, without effect, a state of another model or
 * KV type, one that does not fit the context, and one that was damaged.
 */
SALVO_API size_t salvo_session_state_size(const struct salvo_session *session);
SALVO_API enum salvo_status salvo_session_state_save(struct salvo_session *session, void *out, size_t size);
SALVO_API enum salvo_status salvo_session_state_restore(
    struct salvo_session *session, const void *state, size_t size);
SALVO_API enum salvo_status salvo_session_copy(struct salvo_session *to, struct salvo_session *from);

/* The same in a file, which appears under its name only when it is complete. It can be loaded by any engine
 * of the model with the same KV type, on any device. */
SALVO_API enum salvo_status salvo_session_state_save_file(struct salvo_session *session, const char *path);
SALVO_API enum salvo_status salvo_session_state_load_file(struct salvo_session *session, const char *path);

/*
 * A conversation and its state in one file. Loading it gives the messages back, freed at once by salvo_free,
 * and the session goes on without computing them again; a file that is refused changes nothing. It can also
 * be loaded as a state alone; a state alone is no conversation.
 */
struct salvo_messages {
    const struct salvo_message *items;
    size_t count;
};

SALVO_API enum salvo_status salvo_session_chat_save_file(
    struct salvo_session *session, const struct salvo_message *messages, size_t count, const char *path);
SALVO_API enum salvo_status salvo_session_chat_load_file(
    struct salvo_session *session, const char *path, struct salvo_messages **out);

/* Whether such a file could be written there, before work is spent on what is to be in it: an error when the
 * folder is not there or cannot be written, or when the name belongs to something that is not a regular file
 * or is write-protected. A file that could be replaced is no error. */
SALVO_API enum salvo_status salvo_file_check_writable(const char *path);

/* ---- Files ---- */

/*
 * A file that is written piece by piece and appears under its name only when it is committed; closed before
 * that, it leaves nothing behind. A file that has the name is replaced, and its mode kept, or with `replace`
 * false refused: also one that came between opening and committing. A file that is write-protected, or not a
 * regular one, is never replaced.
 */
struct salvo_file;

SALVO_API enum salvo_status salvo_file_open(const char *path, bool replace, struct salvo_file **out);
SALVO_API enum salvo_status salvo_file_write(struct salvo_file *file, const void *data, size_t size);
SALVO_API enum salvo_status salvo_file_commit(struct salvo_file *file); /* fails after a write that failed */
SALVO_API void salvo_file_close(struct salvo_file *file);

/* Write the same as salvo_session_state_save_file and salvo_session_chat_save_file, into an open file. */
SALVO_API enum salvo_status salvo_session_state_write(struct salvo_session *session, struct salvo_file *file);
SALVO_API enum salvo_status salvo_session_chat_write(struct salvo_session *session,
    const struct salvo_message *messages, size_t count, struct salvo_file *file);

/* ---- Quantising ---- */

struct salvo_quantize_options {
    const char *type; /* "Q4_0", "Q4_K_M", ...: which tensor gets which type is as in llama.cpp */
    bool pure;        /* every matrix gets the one type that the name begins with */
    bool keep_file;   /* a file that has the name is refused, not replaced */
    uint32_t threads; /* 0: one per physical core */

    /* Called with the bytes done and to do, of the file that is read. Returns false to stop. */
    bool (*progress)(void *user, const char *tensor, uint64_t done, uint64_t total);
    void *user;
};

/*
 * Writes the model with other types to `path`, which appears only when it is complete. Any type can be the
 * source, with a warning where a quantised one is quantised again. Weights that are not finite are an error
 * that names their tensor; so is a path that leads to one of the model's own files.
 */
SALVO_API enum salvo_status salvo_quantize(
    const struct salvo_model *model, const char *path, const struct salvo_quantize_options *options);

/* ---- Verifying a backend ---- */

/* All zeros are the defaults; NULL instead of options means the same. */
struct salvo_verify_options {
    const char *backend; /* "cpu", or with an instruction set "cpu:neon-i8mm"; NULL: the best there is */
    const char *against; /* NULL: "cpu:scalar", the reference */
    const int32_t *ids;  /* NULL: a fixed sequence */
    size_t count;
    uint32_t device, threads;
    enum salvo_kv_type kv_type;
};

/* One output of one group of operations, where both sides got the same inputs. */
struct salvo_verify_output {
    const char *operation, *buffer; /* the operation that wrote it, and its name */
    uint32_t group, rows, columns;
    bool decode;          /* in the plan for one token */
    uint64_t not_finite;  /* elements that are NaN, or infinite on one side only: none may be */
    double error;         /* largest |a - b| / largest |b| of a row */
    double tolerance;     /* that is allowed */
    uint32_t row, column; /* where the error is largest */
    float got, expected;  /* there */
    double norm, expected_norm;
};

struct salvo_verify_result {
    uint32_t outputs, failed; /* compared, and out of tolerance */

    /* The whole model, each side on its own. */
    uint32_t positions, same_argmax;
    double mean_divergence, largest_divergence; /* Kullback-Leibler, of `backend` from `against` */

    /* Where the mean is above 1e-3: the means of both from the CPU with activations rounded more finely. It
     * is enough when `backend` is not farther from that than `against`. */
    double from_finest, against_from_finest;
    bool passed; /* everything above is within its tolerance */
};

/* Hands over all outputs, those with elements that are not finite first, then the worst. */
typedef void (*salvo_verify_function)(void *user, const struct salvo_verify_output *output);
SALVO_API enum salvo_status salvo_verify(struct salvo_model *model,
    const struct salvo_verify_options *options, salvo_verify_function output, void *user,
    struct salvo_verify_result *out);

#ifdef __cplusplus
}
#endif

#endif

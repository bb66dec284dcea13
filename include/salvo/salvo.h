/*
 * salvo: runs language models from GGUF files, one submission to the device per token.
 *
 * This header has models, engines, sessions and generation, and the rules for all headers: memory.h (KV
 * memory, prefix cache), scheduler.h (many requests on one engine), chat.h (conversations), tools.h (tool
 * calls), grammar.h (constrained answers), embed.h (embeddings), debug.h (debugging and measuring). They
 * compile as C99 or later and C++11 or later. The comments are the manual. The shortest use, from
 * examples/simple.c, without the checks of each status:
 *
 *     salvo_model_open("model.gguf", &model);
 *     salvo_engine_open(model, NULL, &engine);
 *     salvo_session_open(engine, &session);
 *     salvo_tokenize(model, text, strlen(text), SALVO_TOKENIZE_BOS, &ids, &count);
 *     salvo_session_feed(session, ids, count);
 *     salvo_session_generate(session, &options, NULL); // options.text receives the text
 *
 * OWNERSHIP. Each object made by a `salvo_*_open` is destroyed by the matching `salvo_*_close`, which accepts
 * NULL. A pointer that a getter returns belongs to the object that was passed to the getter and lives as
 * long as that object. Before you close an object, close all objects made from it. Strings in options are
 * read during the call unless the member says otherwise.
 *
 * ERRORS. Functions that can fail return `enum salvo_status`. On failure, output pointers are NULL, ids are
 * -1, structs with a `size` may be unchanged, and salvo_error() returns one line that describes the failure
 * to the calling thread. A NULL pointer where an object or an output is required is SALVO_ERROR_ARGUMENT;
 * functions that return no status then return NULL, 0 or false.
 *
 * STRUCTS. A struct that begins with `size` may grow in later versions. Initialise it with its
 * SALVO_..._INIT, which sets `size`. In options, a member that is zero has its default value unless its
 * comment says otherwise, and a NULL pointer to options means all defaults. `size` 0 is SALVO_ERROR_ARGUMENT.
 * Members beyond `size` get their defaults; a struct larger than the library's is accepted as long as the
 * members that the library does not know are zero. Results are filled up to `size`. If the library returns a
 * pointer to a struct, its `size` is the size that the library knows. Arrays of structs carry the size of an
 * element; SALVO_ITEM steps through the arrays that the library returns. Members declared uint32_t hold enum
 * values, or 0 and 1 for off and on, where their comment says so.
 *
 * THREADS. Any number of threads may use a model or a chat template at once. An engine and its sessions are
 * used by one thread at a time; only salvo_session_cancel and salvo_engine_cancel may be called from any
 * thread, and from signal handlers. The CPU backend starts `threads` - 1 worker threads per engine, a
 * scheduler one thread; loading and quantising start threads that end with the call. All threads of the
 * library block all signals but those of faults, SIGTRAP and SIGABRT.
 *
 * SIGNALS. Opening a model or a state file installs a handler for SIGBUS, so that a file truncated while it
 * is mapped is reported as an error; faults outside the mapped files go to the handler that was installed
 * before. No other signal is touched.
 *
 * FILES. The library reads the files it is given, /proc/cpuinfo and /sys/devices/system/cpu. Files are
 * written under a temporary name in the same folder and renamed when complete. The Vulkan backend keeps
 * compiled pipelines in $XDG_CACHE_HOME/salvo or $HOME/.cache/salvo. The GPU drivers are opened with dlopen.
 *
 * ENVIRONMENT. XDG_CACHE_HOME and HOME, as above; for tests and measurements SALVO_CUDA_LIBRARY,
 * SALVO_CUDA_DELAYS, SALVO_CUDA_SERIAL, SALVO_METAL_LIBRARY, SALVO_VULKAN_ICD, SALVO_VULKAN_EMULATE,
 * SALVO_VULKAN_DISABLE and SALVO_VULKAN_VALIDATION. The library writes nothing to standard output and never
 * ends the process. It writes to standard error only with SALVO_VULKAN_VALIDATION=1: the messages of the
 * validation layer.
 */
#ifndef SALVO_H
#define SALVO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the functions that the shared library exports. */
#if defined(__GNUC__)
#define SALVO_API __attribute__((visibility("default")))
#else
#define SALVO_API
#endif

#define SALVO_VERSION_MAJOR 1
#define SALVO_VERSION_MINOR 0
#define SALVO_VERSION_PATCH 0

/* The version of the library that runs: "1.0.0". */
SALVO_API const char *salvo_version(void);

/* Element `index` of an array that the library returned: `type` is a struct's name, `item_size` the size of
 * an element as returned by the library. */
#define SALVO_ITEM(type, items, item_size, index) \
    ((const struct type *)(const void *)((const char *)(items) + (item_size) * (index)))

/* ---- Status ---- */

enum salvo_status {
    SALVO_OK = 0,
    SALVO_ERROR_ARGUMENT = 1,    /* invalid argument */
    SALVO_ERROR_IO = 2,          /* a file could not be opened, read or written */
    SALVO_ERROR_FORMAT = 3,      /* a file is damaged or inconsistent */
    SALVO_ERROR_UNSUPPORTED = 4, /* a valid file, or a device, is not supported */
    SALVO_ERROR_MEMORY = 5,      /* not enough memory */
    SALVO_ERROR_CONTEXT = 6,     /* the context is full */
    SALVO_ERROR_CANCELLED = 7,   /* stopped by a cancel function or by the progress callback of quantize */
    SALVO_ERROR_NUMERIC = 8,     /* all logits are NaN or -infinity; a weight to quantise is not finite */
    SALVO_ERROR_DEVICE = 9       /* a device or its driver failed; close the engine and open it again */
};

/* The last error of the calling thread: one line without newline that names the file, key or tensor. Never
 * NULL. */
SALVO_API const char *salvo_error(void);

enum salvo_log_level { SALVO_LOG_WARNING = 0, SALVO_LOG_INFO = 1, SALVO_LOG_DEBUG = 2 };

/* Receives the messages of all levels. `line` has no newline. Set it once, before other calls; NULL, the
 * default, discards all messages. */
typedef void (*salvo_log_function)(void *user, enum salvo_log_level level, const char *line);
SALVO_API void salvo_log_set(salvo_log_function function, void *user);

/* Frees memory that a function below says is freed by salvo_free. Accepts NULL. */
SALVO_API void salvo_free(void *memory);

/* ---- Values ---- */

/* Types of metadata, numbered as in the GGUF format. */
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
    SALVO_F64 = 12
};

/* Bytes with a length, not terminated by NUL. */
struct salvo_text {
    const char *data;
    size_t size;
};

/* An array in the metadata. salvo_array_next reads its items. */
struct salvo_array {
    uint32_t type; /* enum salvo_type, of every item */
    uint64_t count;
    struct salvo_text bytes; /* the items as they are encoded in the file */
};

/* One metadata value; `type` tells which member holds it, the others are zero. */
struct salvo_value {
    uint32_t type; /* enum salvo_type */
    bool b;        /* SALVO_BOOL */
    uint64_t u;    /* unsigned types */
    int64_t i;     /* signed types */
    double f;      /* SALVO_F32 and SALVO_F64 */
    struct salvo_text text;
    struct salvo_array array;
};

/* Removes the first item of an array and stores it in *out_item; false when the array is empty. Work on a
 * copy: struct salvo_value rest = value, item; while (salvo_array_next(&rest, &item)) ... */
SALVO_API bool salvo_array_next(struct salvo_value *array, struct salvo_value *out_item);

/* ---- Model: a GGUF file ---- */

struct salvo_model;

/* Maps and checks a file without copying it. `path` may be the first file of a split model. A model of an
 * architecture that salvo cannot run can still be inspected. */
SALVO_API enum salvo_status salvo_model_open(const char *path, struct salvo_model **out);
SALVO_API void salvo_model_close(struct salvo_model *model);

/* The metadata common to all architectures. Numbers are 0 and strings "" where the file has no such key. */
struct salvo_model_info {
    size_t size;
    const char *path;
    const char *architecture; /* "llama" */
    const char *name, *license;
    const char *file_type;     /* quantisation scheme: "Q4_K_M" */
    const char *tokenizer;     /* "gpt2", "llama", "rwkv", ... */
    const char *pre_tokenizer; /* "smollm" */
    uint32_t has_chat_template;
    uint32_t gguf_version, files; /* files: more than 1 for a split model */
    uint32_t layers, width, heads, kv_heads, head_size, feed_forward, vocabulary, context;
    uint64_t file_size, parameters;
};

SALVO_API const struct salvo_model_info *salvo_model_info(const struct salvo_model *model);

/* Whether `path` is one of the model's files, also by another name or a link. Writing there would destroy the
 * model. */
SALVO_API bool salvo_model_is_at(const struct salvo_model *model, const char *path);

/* Metadata by index, in the order of the file. False, with zeros, when there is no such index. */
SALVO_API size_t salvo_model_metadata_count(const struct salvo_model *model);
SALVO_API bool salvo_model_metadata(
    const struct salvo_model *model, size_t index, struct salvo_text *out_key, struct salvo_value *out);

/* Metadata by key. False, with zeros, when the model has no such key. */
SALVO_API bool salvo_model_find(const struct salvo_model *model, const char *key, struct salvo_value *out);

struct salvo_tensor {
    size_t size;
    struct salvo_text name;
    const char *type;     /* "Q4_K"; NULL for a type unknown to this version */
    uint32_t type_number; /* as in the file */
    uint32_t dimensions;
    uint64_t shape[4]; /* fastest-varying dimension first */
    uint64_t elements;
    uint64_t bytes; /* 0 for a type unknown to this version */
};
#define SALVO_TENSOR_INIT                                                \
    {                                                                    \
        sizeof(struct salvo_tensor), {0, 0}, 0, 0, 0, {0, 0, 0, 0}, 0, 0 \
    }

SALVO_API size_t salvo_model_tensor_count(const struct salvo_model *model);
SALVO_API enum salvo_status salvo_model_tensor(
    const struct salvo_model *model, size_t index, struct salvo_tensor *out);

/* ---- Text ---- */

enum salvo_tokenize_flags {
    SALVO_TOKENIZE_SPECIAL =
        1,                  /* names of control tokens in the text become control tokens; off: plain text */
    SALVO_TOKENIZE_BOS = 2, /* begin with the beginning-of-text token, if the vocabulary has one */
    SALVO_TOKENIZE_EOS = 4  /* end with the end-of-text token, if the vocabulary has one */
};

/* The flags that the model's metadata asks for: SALVO_TOKENIZE_BOS, SALVO_TOKENIZE_EOS, both or none. */
SALVO_API enum salvo_status salvo_tokenize_default_flags(struct salvo_model *model, unsigned *out_flags);

/* Tokenizes any bytes, valid UTF-8 or not. *out_ids is freed by salvo_free. */
SALVO_API enum salvo_status salvo_tokenize(struct salvo_model *model, const char *text, size_t size,
    unsigned flags, int32_t **out_ids, size_t *out_count);

/* The bytes of a sequence of tokens; control tokens are written only with `special`. *out_text is freed by
 * salvo_free. */
SALVO_API enum salvo_status salvo_detokenize(struct salvo_model *model, const int32_t *ids, size_t count,
    bool special, char **out_text, size_t *out_size);

/* The bytes of one token; for a control token, its name. *out_text is freed by salvo_free. */
SALVO_API enum salvo_status salvo_token_text(
    struct salvo_model *model, int32_t id, char **out_text, size_t *out_size);

/* The number of bytes at the end of `text` that begin an incomplete UTF-8 character, 0 to 3. */
SALVO_API size_t salvo_utf8_incomplete(const char *text, size_t size);

/* Filters text that arrives in pieces, such as the bytes of generated tokens: holds back bytes that may be
 * the beginning of a stop string and incomplete UTF-8 characters, and ends the text before the first stop
 * string that is complete. salvo_session_generate has such a filter built in; programs that take tokens by
 * salvo_session_next or salvo_engine_next use one per session. */
struct salvo_text_filter;

/* The stop strings are copied; empty ones are ignored. */
SALVO_API enum salvo_status salvo_text_filter_open(
    const char *const *stop_strings, size_t stop_count, struct salvo_text_filter **out);
SALVO_API void salvo_text_filter_close(struct salvo_text_filter *filter);

/* Adds bytes. *out is the text that is ready, valid until the next call; it may be empty. *out_stopped tells
 * whether a stop string was found: *out then ends before it, and the filter ignores all later bytes until it
 * is reset. */
SALVO_API enum salvo_status salvo_text_filter_push(struct salvo_text_filter *filter, const char *data,
    size_t size, struct salvo_text *out, bool *out_stopped);

/* Ends the text: *out is the text held back, without an incomplete character at its end. The filter is then
 * empty, as after salvo_text_filter_reset, which discards the text held back. */
SALVO_API enum salvo_status salvo_text_filter_finish(
    struct salvo_text_filter *filter, struct salvo_text *out);
SALVO_API void salvo_text_filter_reset(struct salvo_text_filter *filter);

/* ---- Chat templates ---- */

/* A Jinja template that turns a conversation into the text the model was trained on, rendered as transformers
 * does. It is immutable once open. Templates are run in a sandbox with limits on time, memory, depth and
 * output; errors name the line and column. */
struct salvo_template;

/* `text` is the template. NULL: the model's own, or for a model without one the built-in template: "User: ",
 * the message without blank lines, a blank line, "Assistant:". `model` may be NULL if there is a text;
 * bos_token and the like are then undefined and salvo_template_tokens fails. The model must stay open as long
 * as the template. */
SALVO_API enum salvo_status salvo_template_open(
    struct salvo_model *model, const char *text, size_t size, struct salvo_template **out);
SALVO_API void salvo_template_close(struct salvo_template *chat);

struct salvo_message {
    const char *role; /* "system", "user", "assistant", "tool"; NULL is "" */
    struct salvo_text content;
    const char *json; /* NULL, or a JSON object with further members of the message: {"tool_calls": [...]} */
};

struct salvo_conversation {
    size_t size;
    /* sizeof(struct salvo_message), set by the INIT. If there are messages, 0 is SALVO_ERROR_ARGUMENT. */
    size_t message_size;
    uint32_t no_generation_prompt; /* 1: end after the last message, do not begin an answer */
    const struct salvo_message *messages;
    size_t message_count;
    /* Further template variables: a JSON object like an OpenAI request (messages, tools, enable_thinking,
     * ...), or an array of messages. `messages` above replaces its messages. */
    struct salvo_text json;
};
#define SALVO_CONVERSATION_INIT                                                   \
    {                                                                             \
        sizeof(struct salvo_conversation), sizeof(struct salvo_message), 0, 0, 0, \
        {                                                                         \
            0, 0                                                                  \
        }                                                                         \
    }

/* A part of a rendered prompt. Content comes from the conversation: it never becomes a control token, nor a
 * user-defined token that the template itself writes. */
struct salvo_piece {
    const char *text;
    size_t size;
    bool content;
};

struct salvo_prompt {
    const char *text; /* all pieces, one after the other */
    size_t size;
    const struct salvo_piece *pieces;
    size_t piece_count, piece_size; /* piece_size: for SALVO_ITEM */
};

/* *out and all it points to are freed by one salvo_free. */
SALVO_API enum salvo_status salvo_template_render(const struct salvo_template *chat,
    const struct salvo_conversation *conversation, struct salvo_prompt **out);

/* The prompt as tokens. Only text written by the template itself may become control tokens. The prompt begins
 * with one beginning-of-text token if the model's metadata asks for it or the template writes it. *out_ids is
 * freed by salvo_free. */
SALVO_API enum salvo_status salvo_template_tokens(const struct salvo_template *chat,
    const struct salvo_conversation *conversation, int32_t **out_ids, size_t *out_count);

/* Strings and ids that the template writes between an answer and the next message. They end an answer, in
 * addition to the model's end tokens. For struct salvo_generate_options. */
struct salvo_stops {
    size_t size;
    const char *const *strings; /* "\n\nUser:" */
    size_t string_count;
    const int32_t *ids;
    size_t id_count;
};

SALVO_API const struct salvo_stops *salvo_template_stops(const struct salvo_template *chat);

/* ---- Devices ---- */

struct salvo_device {
    size_t size;
    const char *backend; /* "cpu", "cuda", "metal", "vulkan" */
    uint32_t number;     /* within its backend, from 0 */
    uint32_t cores;      /* 0: not known */
    const char *name;
    const char *features; /* instruction sets and the like that salvo uses, separated by blanks */
    uint32_t software;    /* 1: a GPU emulated on the CPU */
    uint64_t memory;      /* bytes in total */
};
#define SALVO_DEVICE_INIT                                \
    {                                                    \
        sizeof(struct salvo_device), 0, 0, 0, 0, 0, 0, 0 \
    }

SALVO_API size_t salvo_device_count(void);
SALVO_API enum salvo_status salvo_device_at(size_t index, struct salvo_device *out);

/* Every backend that salvo has, in this build or not. */
struct salvo_backend {
    size_t size;
    const char *name; /* "cuda" */
    uint32_t built;   /* 1: it is in this build */
    uint32_t devices; /* number of devices that it can use */
    const char *why;  /* why it has no device; NULL if it has one */
};
#define SALVO_BACKEND_INIT                       \
    {                                            \
        sizeof(struct salvo_backend), 0, 0, 0, 0 \
    }

SALVO_API size_t salvo_backend_count(void);
SALVO_API enum salvo_status salvo_backend_at(size_t index, struct salvo_backend *out);

/* Why an existing device cannot be used: "Tesla T4 has compute capability 7.5; 8.0 is needed". NULL when
 * there are no more such devices. *out_backend names its backend. */
SALVO_API const char *salvo_device_unusable(size_t index, const char **out_backend);

/* ---- Engine: a model on a device ---- */

struct salvo_engine;

/* The number format of the KV cache. AUTO: f16, or f32 for a model whose tensors are all F32. */
enum salvo_kv_type { SALVO_KV_AUTO = 0, SALVO_KV_F16 = 1, SALVO_KV_F32 = 2, SALVO_KV_Q8_0 = 3 };

struct salvo_engine_options {
    size_t size;
    /* "cpu", "cuda", "metal", "vulkan"; NULL or "auto": the first of cuda, vulkan, cpu that has a device. */
    const char *backend;
    uint32_t device;   /* number within the backend */
    uint32_t sessions; /* number of sessions that can be open at once; 0 means 1 */
    /* Positions per session. 0: the model's context, and at most 8192 unless the model is recurrent. */
    uint32_t context;
    uint32_t batch;   /* tokens per prefill chunk; 0: 512 */
    uint32_t kv_type; /* enum salvo_kv_type */
    uint32_t threads; /* CPU backend; 0: one per physical core */
    uint32_t pin;     /* CPU backend; 1: pin each thread to its core */
    const char *isa;  /* CPU backend: "scalar", "neon-i8mm", ...; NULL: the fastest available */

    /* Called while weights are loaded, with the bytes done and the total; may be NULL. */
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
    uint64_t kv_memory;        /* bytes for the KV cache of all sessions; 0: enough for full contexts */
    uint32_t prefix_cache;     /* 1: keep computed tokens for later sessions, see salvo/memory.h */
    uint32_t prefix_states_mb; /* memory for recurrent states of the prefix cache; 0: 256 MiB */
};
#define SALVO_ENGINE_OPTIONS_INIT                                                     \
    {                                                                                 \
        sizeof(struct salvo_engine_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* Compiles the model's program for the device and loads the weights. The model must stay open as long as the
 * engine. A context that does not fit into memory and a backend without a device are errors; only "auto"
 * tries the next backend, with a warning. Computing tokens allocates no memory. */
SALVO_API enum salvo_status salvo_engine_open(
    struct salvo_model *model, const struct salvo_engine_options *options, struct salvo_engine **out);
SALVO_API void salvo_engine_close(struct salvo_engine *engine);

struct salvo_engine_info {
    size_t size;
    const char *backend, *device, *isa;
    uint32_t threads, sessions, context, batch, vocabulary;
    uint64_t weight_bytes, state_bytes, scratch_bytes;
    uint64_t memory_free;    /* free device memory before loading; 0 on the CPU */
    double bytes_per_second; /* bandwidth of the device's memory; 0: not known */
};

SALVO_API const struct salvo_engine_info *salvo_engine_info(const struct salvo_engine *engine);

/* ---- Session: one sequence of tokens ---- */

struct salvo_session;

/* A session uses the model's default sampler until another is set. */
SALVO_API enum salvo_status salvo_session_open(struct salvo_engine *engine, struct salvo_session **out);
SALVO_API void salvo_session_close(struct salvo_session *session);

/* A random 32-bit seed, drawn when the sampler is set; salvo_session_get_sampler returns it. */
#define SALVO_SEED_RANDOM UINT64_MAX

/* How tokens are chosen, with the names and order of llama.cpp: bias, penalties, top-k, top-p, min-p,
 * temperature. Zero switches each filter and penalty off; a sampler of zeros always takes the most likely
 * token. */
struct salvo_sampler {
    size_t size;
    uint64_t seed;           /* the same seed gives the same text; SALVO_SEED_RANDOM: a random one */
    float temperature;       /* 0: always the most likely token */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 0 or 1: off */
    float min_p;             /* 0: off */
    float repeat_penalty;    /* 0 or 1: off */
    float presence_penalty;  /* 0: off */
    float frequency_penalty; /* 0: off */
    uint32_t repeat_last_n;  /* number of last tokens that the penalties count; 0: penalties are off */
};
#define SALVO_SAMPLER_INIT                                      \
    {                                                           \
        sizeof(struct salvo_sampler), 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* The default sampler of the model's family. RWKV-7: temperature 1, top-p 0.3, presence and frequency
 * penalties of 0.5; all others: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05. In both, repeat_last_n is
 * 64, the seed is 0 and the remaining members are off. */
SALVO_API enum salvo_status salvo_sampler_default(const struct salvo_model *model, struct salvo_sampler *out);

/* Sets the sampler of the tokens computed from now on. The last token of a prompt already chooses the token
 * after it, so set the sampler before feeding the prompt. NULL: the model's default. Values out of range are
 * an error that names them. */
SALVO_API enum salvo_status salvo_session_set_sampler(
    struct salvo_session *session, const struct salvo_sampler *sampler);

/* The sampler in use, with the seed in use. */
SALVO_API enum salvo_status salvo_session_get_sampler(
    const struct salvo_session *session, struct salvo_sampler *out);

/* Adds `bias` to the logit of token `id`, from the next computed token on; -INFINITY forbids the token, 0
 * removes the bias. */
SALVO_API enum salvo_status salvo_session_set_bias(struct salvo_session *session, int32_t id, float bias);

/* The number of tokens in the session, fed and generated, and the tokens. The pointer stays the same while
 * the session is open. */
SALVO_API uint32_t salvo_session_position(const struct salvo_session *session);
SALVO_API const int32_t *salvo_session_tokens(const struct salvo_session *session);

/* Appends tokens and computes them in chunks of the engine's batch, one submission each. Fails without effect
 * if they do not fit into the context. If a chunk fails or is cancelled, the chunks before it stay, as
 * salvo_session_position tells; feeding the rest gives bit-identical results. */
SALVO_API enum salvo_status salvo_session_feed(
    struct salvo_session *session, const int32_t *ids, size_t count);

/* Appends the token that was chosen after the last one and returns it. A token is chosen when the token
 * before it is computed: the first with the prompt, each further one by one submission. SALVO_ERROR_CONTEXT
 * when the context is full. */
SALVO_API enum salvo_status salvo_session_next(struct salvo_session *session, int32_t *out_id);

/* The same for several sessions of one engine, in one submission. out_ids[i] and out_statuses[i] belong to
 * sessions[i]; a session that fails does not stop the others. The tokens of a session do not depend on the
 * other sessions. */
SALVO_API enum salvo_status salvo_engine_next(
    struct salvo_session *const *sessions, size_t count, int32_t *out_ids, enum salvo_status *out_statuses);

/* The logits after the last token fed, [vocabulary], valid until the engine is used again. NULL if no token
 * was fed since the last salvo_session_next or since a state was restored, or if the device failed. */
SALVO_API const float *salvo_session_logits(const struct salvo_session *session);

/* Appends and computes tokens, and passes the logits after each of them to `row`, which returns false to
 * stop: the session then holds the tokens up to the end of the chunk. `row` may be NULL. No token is chosen,
 * so logits that are all NaN are no error. */
typedef bool (*salvo_logits_function)(void *user, uint32_t position, const float *logits);
SALVO_API enum salvo_status salvo_session_eval(
    struct salvo_session *session, const int32_t *ids, size_t count, salvo_logits_function row, void *user);

/* ---- Batches: runs of many sessions in one submission ---- */

/*
 * salvo_engine_submit starts one step for many sessions: some decode a token, others compute a part of their
 * prompt. salvo_engine_wait returns its results. Up to SALVO_OPEN_STEPS steps may be open: submitted and not
 * waited for. A GPU computes meanwhile; the CPU computes inside salvo_engine_submit.
 *
 * A run that decodes appends the id that was chosen after the session's last token, computes it and chooses
 * the next one. It may be submitted before that id is known, while the earlier run that chooses it is open.
 * After a rollback that removes tokens, and after a run that chooses nothing, the session has no chosen id:
 * the run then only chooses one. If all runs of a step only choose, and the previous step has a
 * SALVO_WANT_LATER run for each of them, the step computes nothing but the choice. A run with `ids` drops an
 * id that was chosen and not yet appended.
 *
 * A run depends on earlier open runs of its session. If one of them fails or is cancelled, the run fails with
 * the same status. If one of them chooses a stop id, a run that decodes does nothing, without an error.
 *
 * Other sessions in a step never change the results of a run, even if they fail, are cancelled or end. On the
 * CPU a run has the same bits in any step. On GPUs the kernels depend on the number of tokens in a step and,
 * up to a few tokens, on whether a run has a mask, wants log-probabilities or more logits than the last. In
 * steps that are alike in this a run has the same bits, in others it differs within the tolerances of
 * salvo_verify.
 */

enum {
    SALVO_OPEN_STEPS = 4,
    SALVO_STOP_IDS = 32,     /* stop ids of one run */
    SALVO_TOP_LOGPROBS = 20, /* most likely ids of one run */
    SALVO_RUN_TOKENS = 32,   /* tokens that one run can decode */
    SALVO_RESIDENT_MASKS = 64
};

enum salvo_want {
    SALVO_WANT_ID = 0,      /* choose an id with the session's sampler */
    SALVO_WANT_NOTHING = 1, /* for a part of a prompt that others follow */
    /* The session's next run chooses, so that its mask can be made while the device computes. The run has one
     * token and no mask, stop ids, logits, log-probabilities and hidden rows. */
    SALVO_WANT_LATER = 2
};

struct salvo_run {
    struct salvo_session *session;
    const int32_t *ids; /* appended to the session, in one step */
    size_t count;       /* 0: the run decodes */
    uint32_t want;      /* enum salvo_want */
    uint32_t stop_id_count;
    const int32_t *stop_ids; /* later runs that decode do nothing if this run chooses such an id */
    uint64_t handle;         /* for salvo_engine_cancel, below 2^63; 0: the run cannot be cancelled */
    /* NULL, or memory for the logits that the id is chosen from, [vocabulary], written until
     * salvo_engine_wait has returned. The next step then waits for this one. */
    float *logits;
    /* NULL, or the ids that may be chosen: bit i % 32 of word i / 32 allows id i, [(vocabulary + 31) / 32],
     * read by salvo_engine_submit. The mask comes before bias, penalties and filters. A run whose mask allows
     * no id fails with SALVO_ERROR_NUMERIC. */
    const uint32_t *mask;
    /* NULL, or memory for log-probabilities, written like `logits`: logprobs[0] for the chosen id, logprobs[1
     * + i] for top_ids[i], the most likely ids in order; id -1 where there are fewer. They are computed
     * before mask, bias, penalties and filters. */
    float *logprobs;    /* [1 + top_count] */
    int32_t *top_ids;   /* [top_count] */
    uint32_t top_count; /* at most SALVO_TOP_LOGPROBS */
    float *hidden;      /* NULL, or memory for the hidden rows of the run's tokens: salvo/embed.h */
    /* Above 1: the run decodes up to this many tokens, at most SALVO_RUN_TOKENS. It ends earlier, while other
     * runs continue, at a stop id, where context or KV pages end, and where no id can be chosen: it then
     * fails and keeps the tokens before. The mask applies to each token. If one run of a step has several
     * tokens, all runs of the step must decode, and none may ask for logits, log-probabilities or hidden
     * rows. 0 counts as 1. */
    uint32_t tokens;
    int32_t *chosen_ids;  /* memory for the ids, [tokens], written like `logits`; may be NULL for one token */
    uint32_t mask_number; /* 0, or the number of a resident mask, instead of `mask` */
};

struct salvo_run_result {
    uint32_t status;     /* enum salvo_status */
    int32_t id;          /* chosen after the session's last token, the last one of the run; -1: none */
    uint32_t ended;      /* 1: `id` is a stop id of the run */
    uint32_t tokens;     /* appended to the session by this run */
    uint32_t position;   /* tokens of the session after it */
    uint32_t id_count;   /* ids chosen by the run, of which `id` is the last */
    const char *message; /* why it failed, or ""; valid until the next salvo_engine_submit */
};

/* `run_size` is sizeof(struct salvo_run); no session may be in two runs of a step, and all runs together have
 * at most `batch` tokens (struct salvo_engine_info), one for a run that decodes, whatever `tokens` is. A
 * mistake in the list is an error without effect. A problem of one session, such as a full context, is that
 * run's result and does not stop the others. Sessions keep their sampler. `ids` and `stop_ids` are copied.
 *
 * Other functions that compute with or change a session first complete all steps; their results can still be
 * waited for. salvo_session_position and salvo_session_tokens include the tokens of completed steps. */
SALVO_API enum salvo_status salvo_engine_submit(struct salvo_engine *engine, const struct salvo_run *runs,
    size_t count, size_t run_size, uint64_t *out_step);

/* Waits for a step and fills one result for each of its runs, in their order. `count` is the number of runs,
 * `result_size` is sizeof(struct salvo_run_result). The step is then no longer open. Steps complete in the
 * order in which they were submitted; they may be waited for in any order. */
SALVO_API enum salvo_status salvo_engine_wait(struct salvo_engine *engine, uint64_t step,
    struct salvo_run_result *results, size_t count, size_t result_size);

/* Cancels the open runs with this handle: a run that has not been completed fails with
 * SALVO_ERROR_CANCELLED and leaves its session as it was before the run, even if the run decodes several
 * tokens. Does nothing once the run has completed, so it never hits a later run with another handle. A step
 * that has begun is computed to its end. May be called from any thread or signal handler while the engine is
 * open. */
SALVO_API void salvo_engine_cancel(struct salvo_engine *engine, uint64_t handle);

/* Copies a mask, with the layout of struct salvo_run, to the device, where it stays until it is closed or the
 * engine is: runs that name its number submit no bits. Numbers begin at 1. SALVO_ERROR_MEMORY if
 * SALVO_RESIDENT_MASKS are open. */
SALVO_API enum salvo_status salvo_engine_mask_open(
    struct salvo_engine *engine, const uint32_t *mask, uint32_t *out_number);

/* First completes all steps, whose runs may still read the mask. The number may then be given again. */
SALVO_API enum salvo_status salvo_engine_mask_close(struct salvo_engine *engine, uint32_t number);

/* ---- Generation ---- */

/* Why a text ended. */
enum salvo_finish {
    SALVO_FINISH_END = 0,      /* the model chose an end token or one of stop_ids */
    SALVO_FINISH_STOP = 1,     /* a stop string */
    SALVO_FINISH_LENGTH = 2,   /* max_tokens */
    SALVO_FINISH_CONTEXT = 3,  /* the context is full */
    SALVO_FINISH_CALLBACK = 4, /* a callback returned false */
    SALVO_FINISH_CANCELLED = 5 /* salvo_session_cancel */
};

SALVO_API const char *salvo_finish_name(uint32_t finish); /* "end", "stop", ...; "" for other numbers */

/* Receives the text in whole UTF-8 characters, without stop strings. Bytes that begin no character are passed
 * as they are; a character that is incomplete when the text ends is omitted. Returns false to stop. */
typedef bool (*salvo_text_function)(void *user, const char *text, size_t size);

/* Receives each token and its bytes when it is appended to the session, before the text that it completes.
 * Bytes of a token may be a part of a character; control tokens have no bytes unless `special` is set.
 * Returns false to stop. */
typedef bool (*salvo_token_function)(void *user, int32_t id, const char *data, size_t size);

struct salvo_generate_options {
    size_t size;
    const char *const *stop_strings; /* not part of the text; the first that is complete ends it */
    size_t stop_count;
    const int32_t *stop_ids; /* tokens that end the text like end tokens */
    size_t stop_id_count;
    uint32_t max_tokens; /* 0: until the end or the context */
    /* Tokens per submission, which affects speed only. 0: the device's default. The device limits larger
     * values. */
    uint32_t ahead;
    uint32_t ignore_end; /* 1: continue after end tokens; stop_ids still end the text */
    uint32_t special;    /* 1: write control tokens by their names */
    salvo_text_function text;
    salvo_token_function token;
    void *user; /* passed to both */
};
#define SALVO_GENERATE_OPTIONS_INIT                                            \
    {                                                                          \
        sizeof(struct salvo_generate_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

struct salvo_generate_result {
    size_t size;
    uint32_t finish; /* enum salvo_finish */
    /* The number of tokens appended to the session: the last ones of salvo_session_tokens. An end token is
     * not appended. */
    uint32_t tokens;
};
#define SALVO_GENERATE_RESULT_INIT                 \
    {                                              \
        sizeof(struct salvo_generate_result), 0, 0 \
    }

/* Generates a continuation of the session's tokens. The session can be fed or generate again afterwards.
 * `out` may be NULL; it is filled after an error as well. */
SALVO_API enum salvo_status salvo_session_generate(struct salvo_session *session,
    const struct salvo_generate_options *options, struct salvo_generate_result *out);

/* Stops feed, eval, next and generate within one token or one prefill chunk. If none of them runs, or if the
 * one that runs ends before it sees the cancellation, the next call stops at once. May be called from any
 * thread and from signal handlers. */
SALVO_API void salvo_session_cancel(struct salvo_session *session);

/* ---- State ---- */

/* Removes all tokens from `position` on, without computing anything. A recurrent model returns to the nearest
 * of a few kept states; the tokens since then are computed again with the next step. */
SALVO_API enum salvo_status salvo_session_rollback(struct salvo_session *session, uint32_t position);

/* Makes it cheap to roll back to the current position: a recurrent model keeps a copy of its state here,
 * beside a few older ones. Does nothing for other models. */
SALVO_API enum salvo_status salvo_session_mark(struct salvo_session *session);

/*
 * The state is all that a session needs to continue with bit-identical results; the sampler and bias are not
 * part of it. `restore` replaces the contents of the session; it refuses, without effect, a state of another
 * model or KV type, one that does not fit into the context, and a damaged one.
 */
SALVO_API size_t salvo_session_state_size(const struct salvo_session *session);
SALVO_API enum salvo_status salvo_session_state_save(struct salvo_session *session, void *out, size_t size);
SALVO_API enum salvo_status salvo_session_state_restore(
    struct salvo_session *session, const void *state, size_t size);
SALVO_API enum salvo_status salvo_session_copy(struct salvo_session *to, struct salvo_session *from);

/* The state in a file, which appears under its name only when it is complete. Any engine of the same model
 * and KV type can load it, on any device. */
SALVO_API enum salvo_status salvo_session_state_save_file(struct salvo_session *session, const char *path);
SALVO_API enum salvo_status salvo_session_state_load_file(struct salvo_session *session, const char *path);

/* A list of messages; item_size is for SALVO_ITEM. */
struct salvo_messages {
    const struct salvo_message *items;
    size_t count, item_size;
};

/*
 * Save and load a conversation and its state in one file. `message_size` is sizeof(struct salvo_message).
 * Loading returns the messages, freed by one salvo_free, and restores the state, so that the messages need
 * not be computed again. A file that is refused leaves the session unchanged. salvo_session_state_load_file
 * also accepts a file with a conversation; loading a conversation from a file with a state alone is an error.
 */
SALVO_API enum salvo_status salvo_session_chat_save_file(struct salvo_session *session,
    const struct salvo_message *messages, size_t count, size_t message_size, const char *path);
SALVO_API enum salvo_status salvo_session_chat_load_file(
    struct salvo_session *session, const char *path, struct salvo_messages **out);

/* ---- Files ---- */

/* Checks whether a file can be written at `path`: an error when the folder does not exist or is not writable,
 * or when something that is not a regular file or is write-protected has that name. An existing regular file
 * is no error. */
SALVO_API enum salvo_status salvo_file_check_writable(const char *path);

/*
 * A file that appears under its name only when it is committed; closed before that, it leaves nothing behind.
 * An existing file is replaced, keeping its mode; with `replace` false an existing file is an error, also one
 * that appears between opening and committing. Write-protected files, and files that are not regular, are
 * never replaced.
 */
struct salvo_file;

SALVO_API enum salvo_status salvo_file_open(const char *path, bool replace, struct salvo_file **out);
SALVO_API enum salvo_status salvo_file_write(struct salvo_file *file, const void *data, size_t size);
SALVO_API enum salvo_status salvo_file_commit(struct salvo_file *file); /* fails if a write failed */
SALVO_API void salvo_file_close(struct salvo_file *file);

/* Write the contents of salvo_session_state_save_file and salvo_session_chat_save_file to an open file. */
SALVO_API enum salvo_status salvo_session_state_write(struct salvo_session *session, struct salvo_file *file);
SALVO_API enum salvo_status salvo_session_chat_write(struct salvo_session *session,
    const struct salvo_message *messages, size_t count, size_t message_size, struct salvo_file *file);

/* ---- Quantising ---- */

struct salvo_quantize_options {
    size_t size;
    /* "Q4_0", "Q4_K_M", ...; required. The type of each tensor is chosen as in llama.cpp. */
    const char *type;
    uint32_t pure;      /* 1: every matrix gets the type that the name begins with */
    uint32_t keep_file; /* 1: an existing file is an error */
    uint32_t threads;   /* 0: one per physical core */

    /* Called with the bytes of the source done and in total. Returns false to stop. */
    bool (*progress)(void *user, const char *tensor, uint64_t done, uint64_t total);
    void *user;
};
#define SALVO_QUANTIZE_OPTIONS_INIT                             \
    {                                                           \
        sizeof(struct salvo_quantize_options), 0, 0, 0, 0, 0, 0 \
    }

/*
 * Writes the model with other tensor types to `path`, which appears only when it is complete. Any type can be
 * the source; quantising a quantised tensor again gives a warning. Weights that are not finite are an error
 * that names the tensor; a path that is one of the model's own files is an error.
 */
SALVO_API enum salvo_status salvo_quantize(
    const struct salvo_model *model, const char *path, const struct salvo_quantize_options *options);

#ifdef __cplusplus
}
#endif

#endif

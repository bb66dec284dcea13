/* Model files in memory, made from a list that tests change before they open it. Tests end when memory does.
 */
#ifndef TESTS_GGUF_MODEL_H
#define TESTS_GGUF_MODEL_H

#include "base/buffer.h"
#include "gguf/gguf.h"

enum { MODEL_MAX_ENTRIES = 48, MODEL_MAX_TENSORS = 1024, MODEL_MAX_ITEMS = 64 };

struct model_entry {
    char key[64];
    enum salvo_type type; /* SALVO_U32, SALVO_F32, SALVO_STRING, or SALVO_ARRAY of `items` */
    uint32_t number;
    float real;
    char text[64];
    enum salvo_type item_type; /* SALVO_U32, or SALVO_STRING for empty strings */
    uint32_t items[MODEL_MAX_ITEMS];
    uint32_t item_count;
};

struct model_tensor {
    char name[64];
    uint32_t type, dimensions;
    uint64_t shape[GGUF_MAX_DIMENSIONS];
    float fill; /* of every element, F32 only; the bytes of other types are 0 */
};

struct gguf_model {
    struct model_entry entries[MODEL_MAX_ENTRIES];
    struct model_tensor tensors[MODEL_MAX_TENSORS];
    uint32_t entry_count, tensor_count;
    struct buffer file;
    struct gguf *gguf;
};

/* An existing key gets the new value. */
void model_set_u32(struct gguf_model *model, const char *key, uint32_t value);
void model_set_f32(struct gguf_model *model, const char *key, float value);
void model_set_text(struct gguf_model *model, const char *key, const char *text);
void model_set_items(struct gguf_model *model, const char *key, const uint32_t *items, uint32_t count);
void model_set_empty_texts(struct gguf_model *model, const char *key, uint32_t count);
void model_unset(struct gguf_model *model, const char *key);

/* A tensor there already is replaced. `rows` 0: a vector. */
struct model_tensor *model_tensor(struct gguf_model *model, uint32_t type, uint64_t columns, uint64_t rows,
    const char *format, ...) PRINTF_LIKE(5, 6);
void model_remove_tensor(struct gguf_model *model, const char *name);

/* A model that `architecture` of the Llama family can run: width 32, 4 heads of 8 on 2, feed-forward 40, 48
 * tokens. */
void model_make_llama(struct gguf_model *model, const char *architecture, uint32_t layers);

/* Writes and opens it as test.gguf; closing it lets the list be changed and opened again. */
const struct gguf *model_open(struct gguf_model *model);
void model_close(struct gguf_model *model);

#endif

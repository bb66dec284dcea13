/* JSON documents as trees, with checked access to the members of a request; and JSON into memory. */
#ifndef SERVER_API_JSON_H
#define SERVER_API_JSON_H

#include "api_error.h"

/* Values of one document: a request with more is refused, because each takes memory. */
enum { API_MAX_VALUES = 1000000 };

struct api_value {
    enum json_kind kind; /* arrays and objects: JSON_ARRAY_BEGIN, JSON_OBJECT_BEGIN */
    struct salvo_text key;
    const struct api_value *next; /* in the same array or object */
    union {
        struct salvo_text text; /* JSON_STRING; a 0 byte follows it */
        struct {
            double number;
            int64_t integer;
        };
        struct {
            const struct api_value *first;
            size_t count;
        };
    };
};

/* All zeros: empty. */
struct api_document {
    struct api_block *blocks;
    const struct api_value *root;
};

/* False with status 400 if the text is no JSON. The tree does not refer to `data`. */
bool api_document_parse(const char *data, size_t size, struct api_document *out, struct api_error *error);
void api_document_free(struct api_document *document);

/* Memory that lives as long as the document; NULL if there is none. */
void *api_document_take(struct api_document *document, size_t size);

/* The member of an object, the last one of that name; NULL where there is none or it is null. */
const struct api_value *api_member(const struct api_value *object, const char *name);

void api_write_value(struct json_writer *json, const struct api_value *value);

/*
 * Members with checks. A member that is missing or null leaves *out unchanged. False after an error 400 that
 * names the member and what was expected.
 */
bool api_get_bool(const struct api_value *object, const char *name, bool *out, struct api_error *error);
bool api_get_integer(const struct api_value *object, const char *name, int64_t least, int64_t most,
    int64_t *out, struct api_error *error);
bool api_get_float(const struct api_value *object, const char *name, double least, double most, float *out,
    struct api_error *error);
/* Without 0 bytes. */
bool api_get_string(
    const struct api_value *object, const char *name, const char **out, struct api_error *error);

/* A writer that appends to a buffer. */
struct json_writer api_json(struct buffer *out);

#endif

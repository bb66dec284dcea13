#include "json_output.h"

#include <stdio.h>

static enum salvo_status write_stdout(void *user, const char *data, size_t size)
{
    (void)user;
    fwrite(data, 1, size, stdout);
    return SALVO_OK;
}

struct json_writer json_output(void)
{
    return (struct json_writer){.write = write_stdout};
}

/* Recursion is safe: opening a file bounds the depth of its arrays. */
void json_value(struct json_writer *json, struct salvo_value value)
{
    struct salvo_value item;
    switch (value.type) {
    case SALVO_U8:
    case SALVO_U16:
    case SALVO_U32:
    case SALVO_U64:
        json_unsigned(json, value.u);
        break;
    case SALVO_I8:
    case SALVO_I16:
    case SALVO_I32:
    case SALVO_I64:
        json_signed(json, value.i);
        break;
    case SALVO_F32:
    case SALVO_F64:
        json_float(json, value.f, value.type == SALVO_F32);
        break;
    case SALVO_BOOL:
        json_bool(json, value.b);
        break;
    case SALVO_STRING:
        json_text(json, value.text);
        break;
    case SALVO_ARRAY:
        json_begin(json, '[');
        while (salvo_array_next(&value, &item))
            json_value(json, item);
        json_end(json, ']');
        break;
    }
}

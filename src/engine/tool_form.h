/* Inside of salvo/tools.h: the form, which its files share. */
#ifndef ENGINE_TOOL_FORM_H
#define ENGINE_TOOL_FORM_H

#include "base/buffer.h"

#include <salvo/tools.h>

/* Stands for the id of a call in the texts of a form. */
enum { TOOL_ID = 1 };

enum { TOOL_TEXTS = 5, TOOL_NAME_LONGEST = 64 };

struct salvo_tool_form {
    struct salvo_tool_form_info info;
    struct buffer texts[TOOL_TEXTS]; /* of `info`, each with a NUL at its end */
};

/* A character of the name of a tool. */
static inline bool is_tool_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

#endif

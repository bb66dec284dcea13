#ifndef TOOLS_ESCAPES_H
#define TOOLS_ESCAPES_H

#include <stddef.h>

/* Resolves the escapes in `text` in place, as llama.cpp does: \n \r \t \' \" \\ and \xHH.
 * Others stay as they are written. Returns the new size. */
size_t unescape(char *text, size_t size);

#endif

#ifndef TOOLS_ESCAPES_H
#define TOOLS_ESCAPES_H

#include <stddef.h>

/* Puts what escapes in `text` mean in their place, as llama.cpp reads them: \n \r \t \' \" \\ and \xHH.
 * Others stay as they are written. Returns the new size. */
size_t unescape(char *text, size_t size);

#endif

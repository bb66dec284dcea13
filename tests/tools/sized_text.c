#include "sized_text.h"

#include <stdio.h>

bool sized_text_read(struct buffer *out)
{
    unsigned char prefix[4];
    if (fread(prefix, 1, sizeof prefix, stdin) != sizeof prefix)
        return false;
    size_t size = prefix[0] | (size_t)prefix[1] << 8 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 24;
    out->size = 0;
    if (buffer_reserve(out, size + 1) != SALVO_OK || fread(out->data, 1, size, stdin) != size)
        return false;
    out->size = size;
    return true;
}

void sized_text_write(const char *data, size_t size)
{
    for (int i = 0; i < 32; i += 8)
        putchar((int)(size >> i & 0xff));
    if (size)
        fwrite(data, 1, size, stdout);
}

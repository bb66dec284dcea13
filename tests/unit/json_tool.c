/*
 * Reads many JSON texts in one run and writes them again, for tests in Python. Usage: json_tool PIECE < cases
 * > answers; PIECE as for json_echo. A case is its size, four bytes, little-endian, and its bytes. The answer
 * is a byte, 0 when it worked, and in the same way the JSON or the error.
 */
#include "json_echo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_case(struct buffer *out)
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

int main(int count, char **arguments)
{
    const size_t piece = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    struct buffer json = {0}, out = {0};
    for (uint64_t seed = 0; read_case(&json); seed++) {
        struct json_writer writer = {.write = json_to_buffer, .user = &out, .ascii = seed % 2};
        out.size = 0;
        bool good =
            json_echo((struct salvo_text){json.data, json.size}, piece, seed, json.size, &writer) == SALVO_OK;
        const char *text = good ? out.data : salvo_error();
        const size_t size = good ? out.size : strlen(text);
        putchar(good ? 0 : 1);
        for (int i = 0; i < 32; i += 8)
            putchar((int)(size >> i & 0xff));
        fwrite(text, 1, size, stdout);
    }
    buffer_free(&json);
    buffer_free(&out);
    return 0;
}

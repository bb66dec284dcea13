/*
 * Reads many JSON texts in one run and writes them again, for tests in Python. Usage: json_tool PIECE < cases
 * > answers; PIECE as for json_echo. A case is a sized text. The answer is a byte, 0 for success, and the
 * JSON or the error as a sized text.
 */
#include "json_echo.h"
#include "sized_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments)
{
    const size_t piece = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    struct buffer json = {0}, out = {0};
    for (uint64_t seed = 0; sized_text_read(&json); seed++) {
        struct json_writer writer = {.write = json_to_buffer, .user = &out, .ascii = seed % 2};
        out.size = 0;
        bool good =
            json_echo((struct salvo_text){json.data, json.size}, piece, seed, json.size, &writer) == SALVO_OK;
        const char *text = good ? out.data : salvo_error();
        const size_t size = good ? out.size : strlen(text);
        putchar(good ? 0 : 1);
        sized_text_write(text, size);
    }
    buffer_free(&json);
    buffer_free(&out);
    return 0;
}

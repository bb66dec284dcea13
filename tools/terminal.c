#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct output_flags output_flags;

const char *colour(FILE *stream, enum colour which)
{
    static const char *const sequences[] = {[COLOUR_OFF] = "\033[0m",
        [COLOUR_BOLD] = "\033[1m",
        [COLOUR_DIM] = "\033[2m",
        [COLOUR_YELLOW] = "\033[33m",
        [COLOUR_PROMPT] = "\033[1;36m"};
    const char *no_color = getenv("NO_COLOR");
    bool wanted = isatty(fileno(stream)) && !(no_color && *no_color) && terminal_is_smart();
    return wanted ? sequences[which] : "";
}

bool terminal_is_smart(void)
{
    const char *terminal = getenv("TERM");
    return terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

static const char *format_scaled(uint64_t number, const char *const units[5], char *text)
{
    double scaled = (double)number;
    int unit = 0;
    while (scaled >= 999.95 && unit < 4) {
        scaled /= 1000;
        unit++;
    }
    snprintf(text, 32, unit ? "%.1f %s" : "%.0f %s", scaled, units[unit]);
    size_t length = strlen(text);
    if (length && text[length - 1] == ' ')
        text[length - 1] = 0;
    return text;
}

const char *format_bytes(uint64_t bytes, char *text)
{
    static const char *const units[5] = {"bytes", "kB", "MB", "GB", "TB"};
    return format_scaled(bytes, units, text);
}

const char *format_count(uint64_t count, char *text)
{
    static const char *const units[5] = {"", "k", "M", "B", "T"};
    return format_scaled(count, units, text);
}

/* The second byte of U+0080 to U+009F, which terminals take for control characters, too. */
static bool is_c1(char byte)
{
    return (unsigned char)byte >= 0x80 && (unsigned char)byte < 0xa0;
}

void print_safely(FILE *stream, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '\n')
            fputs("\\n", stream);
        else if (byte == '\t')
            fputs("\\t", stream);
        else if (byte < 0x20 || byte == 0x7f)
            fprintf(stream, "\\x%02x", byte);
        else if (byte == 0xc2 && i + 1 < size && is_c1(text[i + 1]))
            fprintf(stream, "\\xc2\\x%02x", (unsigned char)text[++i]);
        else
            fputc(byte, stream);
    }
}

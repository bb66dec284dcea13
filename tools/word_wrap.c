#include "word_wrap.h"

#include "terminal.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TAB = 8 };

unsigned terminal_width(void)
{
    struct winsize size;
    if (!terminal_is_smart() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

static void end_word(struct word_wrap *wrap)
{
    wrap->word_size = 0;
    wrap->word_width = 0;
    wrap->is_fixed = false;
}

/* Moves the word to the next line, unless it is the first of its line. */
static void move_word(struct word_wrap *wrap, FILE *out)
{
    const unsigned start = wrap->column - wrap->word_width;
    if (wrap->is_fixed || start == 0) {
        wrap->is_fixed = true;
        wrap->column = 0; /* the terminal breaks the line itself */
        return;
    }
    if (wrap->word_width) /* takes it back; the cursor may be beyond the last column, so it counts from the
                             first */
        fprintf(out, "\r\033[%uC\033[K", start);
    fputc('\n', out);
    fwrite(wrap->word, 1, wrap->word_size, out);
    wrap->column = wrap->word_width;
}

static void add_to_word(struct word_wrap *wrap, const char *bytes, size_t size, int width)
{
    if (width != 1 || wrap->word_size + size > sizeof wrap->word)
        wrap->is_fixed = true;
    if (wrap->is_fixed)
        return;
    memcpy(wrap->word + wrap->word_size, bytes, size);
    wrap->word_size += size;
    wrap->word_width++;
}

static void write_letter(
    struct word_wrap *wrap, unsigned width, wchar_t letter, const char *bytes, size_t size, FILE *out)
{
    if (letter == L'\n' || letter == L'\t' || letter == L' ') {
        end_word(wrap);
        if (letter == L' ' && width && wrap->column >= width)
            return; /* a blank at the end of a full line is its break */
        wrap->column = letter == L'\n'   ? 0
                       : letter == L'\t' ? (wrap->column / TAB + 1) * TAB
                                         : wrap->column + 1;
        fwrite(bytes, 1, size, out);
        return;
    }
    const int columns = wcwidth(letter) < 0 ? 0 : wcwidth(letter);
    if (width && wrap->column + (unsigned)columns > width)
        move_word(wrap, out);
    add_to_word(wrap, bytes, size, columns);
    wrap->column += (unsigned)columns;
    fwrite(bytes, 1, size, out);
}

void print_wrapped(unsigned width, unsigned indent, unsigned column, const char *text, FILE *out)
{
    for (bool is_first = true; *text; is_first = false) {
        const unsigned length = (unsigned)strcspn(text, " ");
        if (!is_first && width && column + 1 + length > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!is_first) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, length, out);
        column += length;
        text += length + (text[length] == ' ');
    }
    fputc('\n', out);
}

void word_wrap_write(struct word_wrap *wrap, unsigned width, const char *text, size_t size, FILE *out)
{
    for (size_t i = 0; i < size; i++) {
        wchar_t letter;
        wrap->held[wrap->held_size++] = text[i];
        size_t length = mbrtowc(&letter, &text[i], 1, &wrap->state);
        if (length == (size_t)-2 && wrap->held_size < sizeof wrap->held)
            continue;
        if (length > 1) { /* not a valid character */
            letter = L'?';
            wrap->state = (mbstate_t){0};
        }
        write_letter(wrap, width, letter, wrap->held, wrap->held_size, out);
        wrap->held_size = 0;
    }
}

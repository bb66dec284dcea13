/* Parts of `salvo chat`: the filter for terminal output, line wrapping, and the detection of loops. */
#include "../../tools/command.h"
#include "../../tools/loop_watch.h"
#include "../../tools/output_file.h"
#include "../../tools/safe_text.h"
#include "../../tools/terminal.h"
#include "../../tools/word_wrap.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int failure(const char *format, ...)
{
    (void)format;
    return EXIT_FAILED;
}

/* --force also replaces a file that another process creates after the check. */
static void forced_files_are_replaced(void **state)
{
    (void)state;
    char path[] = "/tmp/salvo-output-XXXXXX";
    bool replace;
    close(mkstemp(path));
    assert_int_equal(EXIT_FAILED, output_file_check(path, NULL, false, "--force", &replace));
    assert_int_equal(EXIT_DONE, output_file_check(path, NULL, true, "--force", &replace));
    assert_true(replace);
    unlink(path);
    assert_int_equal(EXIT_DONE, output_file_check(path, NULL, false, "--force", &replace));
    assert_false(replace);
    assert_int_equal(EXIT_DONE, output_file_check(path, NULL, true, "--force", &replace));
    assert_true(replace);
}

/* In pieces of every size the same comes out. */
static void assert_shown(const char *expected, const char *text, size_t size)
{
    for (size_t piece = 1; piece <= size; piece++) {
        struct safe_text safe = {0};
        char out[256];
        size_t written = 0;
        for (size_t i = 0; i < size; i += piece) {
            size_t now = size - i < piece ? size - i : piece;
            char part[SAFE_TEXT_ROOM(64)];
            memset(part, 'P', sizeof part);
            size_t got = safe_text_pass(&safe, text + i, now, part);
            assert_true(got <= SAFE_TEXT_ROOM(now));
            assert_int_equal('P', part[got]);
            memcpy(out + written, part, got);
            written += got;
        }
        out[written] = 0;
        assert_string_equal(expected, out);
    }
}

#define SHOWN(expected, text) assert_shown(expected, text, sizeof(text) - 1)

static void messages_show_control_characters_as_escapes(void **state)
{
    (void)state;
    static const char text[] = "a\x1b[31m\n\xc2\x9b\xc2\xa0\x7f\xc3\x9b\xc2";
    char shown[128] = "";
    FILE *stream = fmemopen(shown, sizeof shown, "w");
    assert_non_null(stream);
    print_safely(stream, text, sizeof text - 1);
    assert_int_equal(0, fclose(stream));
    assert_string_equal("a\\x1b[31m\\n\\xc2\\x9b\xc2\xa0\\x7f\xc3\x9b\xc2", shown);
}

static void control_characters_are_left_out(void **state)
{
    (void)state;
    SHOWN("plain\n\ttext", "plain\n\ttext");
    SHOWN("[31mred", "\033[31mred");
    SHOWN("ab", "a\r\b\a\x7f\x01\v\f\x0e"
                "b");
    SHOWN("]0;title", "\033]0;title\a");
    SHOWN("31mc", "\xc2\x9b"
                  "31mc"); /* CSI as one character */
    SHOWN("\xc2\xa0", "\xc2\xa0");
    assert_shown("ab", "a\0b", 3);
}

static void characters_stay_whole(void **state)
{
    (void)state;
    SHOWN("gr\xc3\xbc\xc3\x9f"
          "e \xe4\xbd\xa0 \xf0\x9f\x8c\x8a\xe2\x80\x8d!",
        "gr\xc3\xbc\xc3\x9f"
        "e \xe4\xbd\xa0 \xf0\x9f\x8c\x8a\xe2\x80\x8d!");
    SHOWN("\xef\xbf\xbd"
          "a",
        "\xf0\x9f\x8c"
        "a");                                      /* cut short */
    SHOWN("\xef\xbf\xbd\xef\xbf\xbd", "\xff\x9b"); /* begins nothing */
    SHOWN("\xef\xbf\xbd\xef\xbf\xbd", "\xc0\x9b"); /* ESC the long way */
    SHOWN("\xef\xbf\xbd", "\xe0\x80\x9b");         /* longer still */
    SHOWN("\xef\xbf\xbd", "\xed\xa0\x80");         /* half of a pair */
    SHOWN("\xef\xbf\xbd", "\xed\xbf\xbf");
    SHOWN("\xef\xbf\xbd", "\xf4\x90\x80\x80"); /* beyond the last */
}

/* A terminal of `width` columns with the control sequences that word_wrap_write uses; returns its lines. */
static void show_on_terminal(const char *written, unsigned width, char lines[256])
{
    char line[64] = "";
    size_t cursor = 0;
    FILE *out = fmemopen(lines, 256, "w");
    assert_non_null(out);
    for (const char *at = written; *at; at++) {
        if (*at == '\r') {
            cursor = 0;
        } else if (strncmp(at, "\033[K", 3) == 0) {
            line[cursor] = 0;
            at += 2;
        } else if (strncmp(at, "\033[", 2) == 0) { /* so many columns to the right */
            char *end;
            cursor += strtoul(at + 2, &end, 10);
            assert_int_equal('C', *end);
            assert_true(cursor < width);
            at = end;
        } else if (*at == '\n' || cursor == width) {
            fprintf(out, "%s|", line);
            line[0] = 0;
            cursor = 0;
            at -= *at != '\n';
        } else {
            line[cursor++] = *at;
            line[cursor] = 0;
            assert_true(cursor < sizeof line - 1);
        }
    }
    fprintf(out, "%s", line);
    assert_int_equal(0, fclose(out));
}

static void assert_wrapped(const char *expected, unsigned width, const char *text)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        char *written = NULL, lines[256];
        size_t size;
        struct word_wrap wrap = {0};
        FILE *out = open_memstream(&written, &size);
        assert_non_null(out);
        for (size_t i = 0; i < strlen(text); i += piece)
            word_wrap_write(&wrap, width, text + i, strnlen(text + i, piece), out);
        fclose(out);
        show_on_terminal(written, width ? width : 60, lines);
        assert_string_equal(expected, lines);
        free(written);
    }
}

static void lines_break_between_words(void **state)
{
    (void)state;
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        skip();
    assert_wrapped("short", 10, "short");
    assert_wrapped("one two |three four|five", 10, "one two three four five");
    assert_wrapped("exactly10c|more", 10, "exactly10c more");
    assert_wrapped("longerthan|tenletters|and more", 10, "longerthantenletters and more");
    assert_wrapped("a |longerthan|tenletters", 10, "a longerthantenletters");
    assert_wrapped("a|b c", 10, "a\nb c");
    assert_wrapped("12345 |67890a", 10, "12345 67890a");
    assert_wrapped("no width, no breaks", 0, "no width, no breaks");
}

static void assert_paragraph(const char *expected, unsigned width, unsigned indent, const char *text)
{
    char *written = NULL;
    size_t size;
    FILE *out = open_memstream(&written, &size);
    assert_non_null(out);
    print_wrapped(width, indent, indent, text, out);
    fclose(out);
    assert_string_equal(expected, written);
    free(written);
}

static void paragraphs_break_between_words(void **state)
{
    (void)state;
    assert_paragraph("one two\n  three\n", 9, 2, "one two three");
    assert_paragraph("one two three\n", 15, 2, "one two three");
    assert_paragraph("one two\n  three\n", 14, 2, "one two three");
    assert_paragraph("one two three\n", 0, 2, "one two three");
    assert_paragraph("longer\n  than\n", 4, 2, "longer than");
    assert_paragraph("\n", 9, 2, "");
}

/* The last of `count` tokens repeat with the period `length`; the tokens before them are all different. */
static void fill_cycle(int32_t *tokens, size_t count, size_t cycled, size_t length)
{
    for (size_t i = 0; i < count; i++)
        tokens[i] = i < count - cycled ? 1000 + (int32_t)i : (int32_t)((i - (count - cycled)) % length);
}

static void loops_are_found_exactly(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    int32_t tokens[COUNT];
    for (size_t length = 1; length <= 70; length++) {
        fill_cycle(tokens, COUNT, 256, length);
        assert_int_equal(length <= 64 ? length : 0, find_loop(tokens, COUNT));
        assert_int_equal(0, find_loop(tokens, COUNT - 1)); /* 255 of them */
        tokens[COUNT - 100] = 5000;
        assert_int_equal(0, find_loop(tokens, COUNT));
        fill_cycle(tokens, COUNT, 255, length);
        assert_int_equal(0, find_loop(tokens, COUNT));
        fill_cycle(tokens, 256, 256, length);
        assert_int_equal(length <= 64 ? length : 0, find_loop(tokens, 256));
        assert_int_equal(0, find_loop(tokens + 1, 255));
    }
    assert_int_equal(0, find_loop(tokens, 0));
}

/* The tokens of a long answer arrive one by one; a cycle begins at or near the place where the detector
 * drops old tokens. */
static void loops_are_found_in_long_answers(void **state)
{
    (void)state;
    enum { MOST = 1100 };
    int32_t tokens[MOST];
    for (size_t count = 500; count <= MOST; count += 3) {
        struct loop_watch watch = {.count = 0};
        fill_cycle(tokens, count, 256, 7);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(i + 1 == count ? 7 : 0, loop_watch_add(&watch, tokens[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_files_are_replaced),
        cmocka_unit_test(messages_show_control_characters_as_escapes),
        cmocka_unit_test(control_characters_are_left_out),
        cmocka_unit_test(characters_stay_whole),
        cmocka_unit_test(lines_break_between_words),
        cmocka_unit_test(paragraphs_break_between_words),
        cmocka_unit_test(loops_are_found_exactly),
        cmocka_unit_test(loops_are_found_in_long_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

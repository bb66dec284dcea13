#include "line_editor.h"

#include "history_file.h"
#include "interrupt.h"
#include "terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SALVO_LIBEDIT
#include <histedit.h>
#include <signal.h>
#include <sys/select.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>
const char line_editor_description[] = "line editing by libedit";
#else
const char line_editor_description[] = "built without libedit: no line editing, no history";
#endif

struct line_editor {
    bool interactive;
    char *line; /* read without libedit */
    size_t capacity;
    char prompt[64];
#ifdef SALVO_LIBEDIT
    EditLine *editline; /* NULL: input is not a terminal */
    History *history;
    struct termios settings; /* of the terminal before */
#endif
};

#ifdef SALVO_LIBEDIT

enum { UNSEEN = '\1' }; /* encloses escape sequences in the prompt */

/*
 * Signals are delivered only while the editor waits for a key, so none is lost between a check and the wait,
 * and the handlers only set flags.
 */
static volatile sig_atomic_t resized, continued, ended;
static const int awaited_signals[] = {SIGINT, SIGWINCH, SIGCONT, SIGTERM, SIGHUP};
enum { AWAITED = sizeof awaited_signals / sizeof *awaited_signals };

static void note_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else if (number == SIGCONT)
        continued = 1;
    else
        ended = number;
}

struct signal_state {
    sigset_t mask;
    struct sigaction actions[AWAITED];
};

static void hold_signals(struct signal_state *before)
{
    const struct sigaction action = {.sa_handler = note_signal};
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < AWAITED; i++) {
        sigaddset(&held, awaited_signals[i]);
        if (awaited_signals[i] != SIGINT) /* which interrupt.h notes */
            sigaction(awaited_signals[i], &action, &before->actions[i]);
    }
    sigprocmask(SIG_BLOCK, &held, &before->mask);
}

static void release_signals(const struct signal_state *before)
{
    for (size_t i = 0; i < AWAITED; i++) {
        if (awaited_signals[i] != SIGINT)
            sigaction(awaited_signals[i], &before->actions[i], NULL);
    }
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
    if (ended)
        raise(ended); /* the terminal settings are restored */
}

/* Waits for a byte. False when the line is to end. */
static bool wait_for_byte(EditLine *editline)
{
    sigset_t none;
    sigemptyset(&none);
    for (;;) {
        fd_set input;
        FD_ZERO(&input);
        FD_SET(STDIN_FILENO, &input);
        int ready = pselect(STDIN_FILENO + 1, &input, NULL, NULL, NULL, &none);
        if (interrupt_pending() || ended)
            return false;
        if (continued) { /* the shell has changed the terminal settings */
            el_set(editline, EL_PREP_TERM, 0);
            el_set(editline, EL_PREP_TERM, 1);
        }
        if (resized || continued) {
            el_resize(editline);                                  /* also resets the display state */
            fputs(terminal_is_smart() ? "\r\033[J" : "", stdout); /* where libedit expects the cursor */
            el_set(editline, EL_REFRESH);
        }
        resized = continued = 0;
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

/* Reads one character for libedit; invalid bytes are skipped. */
static int read_letter(EditLine *editline, wchar_t *out)
{
    mbstate_t state = {0};
    for (;;) {
        char byte;
        if (!wait_for_byte(editline))
            return -1;
        ssize_t count = read(STDIN_FILENO, &byte, 1);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return (int)count;
        size_t length = mbrtowc(out, &byte, 1, &state);
        if (length == (size_t)-1) { /* the byte may begin the next character */
            state = (mbstate_t){0};
            length = mbrtowc(out, &byte, 1, &state);
        }
        if (length == (size_t)-1)
            state = (mbstate_t){0};
        else if (length != (size_t)-2)
            return 1;
    }
}

static char *current_prompt(EditLine *editline)
{
    struct line_editor *editor;
    el_get(editline, EL_CLIENTDATA, &editor);
    return editor->prompt;
}

static unsigned char insert_newline(EditLine *editline, int key)
{
    (void)key;
    return el_winsertstr(editline, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* Bracketed paste: line breaks in pasted text do not send the message. */
static unsigned char insert_pasted(EditLine *editline, int key)
{
    (void)key;
    static const wchar_t end[] = L"\033[201~";
    const size_t end_size = sizeof end / sizeof *end - 1;
    size_t size = 0, capacity = 0;
    wchar_t *text = NULL, letter;
    unsigned char result = CC_REFRESH;
    while (el_wgetc(editline, &letter) == 1) {
        if (size + 2 > capacity) {
            capacity = capacity * 2 + 256;
            wchar_t *larger = realloc(text, capacity * sizeof *text);
            if (!larger)
                break;
            text = larger;
        }
        text[size++] = letter == L'\r' ? L'\n' : letter;
        if (size >= end_size && wmemcmp(text + size - end_size, end, end_size) == 0) {
            size -= end_size;
            break;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        bool is_control = text[i] < L' ' || (text[i] >= 0x7f && text[i] < 0xa0);
        if (!is_control || text[i] == L'\n' || text[i] == L'\t')
            text[kept++] = text[i];
    }
    if (kept) {
        text[kept] = 0;
        result = el_winsertstr(editline, text) == 0 ? CC_REFRESH : CC_ERROR;
    }
    free(text);
    return result;
}

static void enter(void *user, const char *text)
{
    struct line_editor *editor = user;
    HistEvent event;
    history(editor->history, &event, H_ENTER, text);
}

/* Between two lines: input typed during an answer is not echoed into it; the next line receives it as keys,
 * including Ctrl-D. */
static void wait_quietly(const struct line_editor *editor)
{
    struct termios quiet = editor->settings;
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

static void open_editline(struct line_editor *editor)
{
    HistEvent event;
    tcgetattr(STDIN_FILENO, &editor->settings);
    editor->editline = el_init("salvo", stdin, stdout, stderr);
    editor->history = history_init();
    if (!editor->editline || !editor->history)
        return;
    history(editor->history, &event, H_SETSIZE, 1000);
    history(editor->history, &event, H_SETUNIQUE, 1);
    history_file_load(enter, editor);
    el_set(editor->editline, EL_CLIENTDATA, editor);
    el_set(editor->editline, EL_EDITOR, "emacs");
    el_wset(editor->editline, EL_GETCFN, read_letter);
    el_set(editor->editline, EL_HIST, history, editor->history);
    el_set(editor->editline, EL_PROMPT_ESC, current_prompt, UNSEEN);
    el_set(editor->editline, EL_ADDFN, "insert-newline", "start a new line of the message", insert_newline);
    el_set(editor->editline, EL_ADDFN, "insert-pasted", "insert pasted text", insert_pasted);
    el_set(editor->editline, EL_BIND, "\033\n", "insert-newline", NULL);
    el_set(editor->editline, EL_BIND, "\033\r", "insert-newline", NULL);
    el_set(editor->editline, EL_BIND, "\033[200~", "insert-pasted", NULL);
    el_set(editor->editline, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(editor->editline, NULL); /* ~/.editrc */
}

static void close_editline(struct line_editor *editor)
{
    if (editor->history)
        history_end(editor->history);
    if (editor->editline) {
        el_end(editor->editline);
        tcsetattr(STDIN_FILENO, TCSADRAIN, &editor->settings);
    }
}

static enum line_result read_edited(
    struct line_editor *editor, const char *prompt, const char **out_line, size_t *out_size)
{
    int count = 0;
    const char *on = colour(stdout, COLOUR_PROMPT), *off = colour(stdout, COLOUR_OFF);
    if (*on) {
        /* libedit attaches a sequence to the character after it, so the blank follows the end of the colour.
         */
        snprintf(editor->prompt, sizeof editor->prompt, "%c%s%c%s%c%s%c ", UNSEEN, on, UNSEEN, prompt, UNSEEN,
            off, UNSEEN);
    } else {
        snprintf(editor->prompt, sizeof editor->prompt, "%s ", prompt);
    }
    if (terminal_is_smart())
        fputs("\033[?2004h", stdout); /* pasted text is marked as such */
    struct signal_state before;
    hold_signals(&before);
    el_resize(editor->editline); /* it may have changed since */
    el_set(editor->editline, EL_PREP_TERM, 1);
    errno = 0;
    const char *line = el_gets(editor->editline, &count);
    int error = errno;
    wait_quietly(editor);
    if (ended)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &editor->settings);
    if (terminal_is_smart())
        fputs("\033[?2004l\033[J", stdout); /* also erases what a change of size has left below */
    fflush(stdout);
    release_signals(&before); /* SIGTERM and SIGHUP end the program here */
    if (interrupt_take())
        return LINE_INTERRUPTED;
    if (!line || count <= 0) {
        errno = error;
        return count < 0 && error ? LINE_FAILED : LINE_END;
    }
    *out_line = line;
    *out_size = (size_t)count - (line[count - 1] == '\n');
    if (strspn(line, " \t\n") < (size_t)count) {
        free(editor->line);
        editor->line = strndup(line, *out_size);
        if (editor->line) {
            enter(editor, editor->line);
            history_file_add(editor->line);
            *out_line = editor->line;
        }
        editor->capacity = 0;
    }
    return LINE_READ;
}

#endif

/* Like getline, with a limit: /dev/zero is a line without an end. */
static ssize_t read_line(struct line_editor *editor)
{
    enum { LEAST = 256, MOST = 64 << 20 };
    size_t length = 0;
    int letter = 0;
    while (letter != '\n' && (letter = getc(stdin)) != EOF) {
        if (length + 1 >= editor->capacity) {
            const size_t capacity = editor->capacity ? 2 * editor->capacity : LEAST;
            char *longer = capacity > MOST ? NULL : realloc(editor->line, capacity);
            if (!longer) {
                errno = capacity > MOST ? EFBIG : ENOMEM;
                return -1;
            }
            editor->line = longer;
            editor->capacity = capacity;
        }
        editor->line[length++] = (char)letter;
    }
    if (length == 0 || ferror(stdin))
        return -1;
    editor->line[length] = 0;
    return (ssize_t)length;
}

/* As the terminal or the pipe gives it. */
static enum line_result read_plain(
    struct line_editor *editor, const char *prompt, const char **out_line, size_t *out_size)
{
    if (editor->interactive) {
        printf("%s%s%s ", colour(stdout, COLOUR_PROMPT), prompt, colour(stdout, COLOUR_OFF));
        fflush(stdout);
    }
    errno = 0;
    ssize_t length = read_line(editor);
    if (length < 0) {
        bool interrupted = interrupt_take(), failed = ferror(stdin) || errno == EFBIG || errno == ENOMEM;
        clearerr(stdin);
        return interrupted ? LINE_INTERRUPTED : failed ? LINE_FAILED : LINE_END;
    }
    length -= length > 0 && editor->line[length - 1] == '\n';
    length -= length > 0 && editor->line[length - 1] == '\r'; /* a line end of Windows */
    *out_line = editor->line;
    *out_size = (size_t)length;
    return LINE_READ;
}

struct line_editor *line_editor_open(bool interactive)
{
    struct line_editor *editor = calloc(1, sizeof *editor);
    if (!editor)
        return NULL;
    editor->interactive = interactive;
#ifdef SALVO_LIBEDIT
    if (interactive)
        open_editline(editor);
    if (interactive && (!editor->editline || !editor->history)) {
        line_editor_close(editor);
        return NULL;
    }
#endif
    return editor;
}

void line_editor_close(struct line_editor *editor)
{
    if (!editor)
        return;
#ifdef SALVO_LIBEDIT
    close_editline(editor);
#endif
    free(editor->line);
    free(editor);
}

enum line_result line_editor_read(
    struct line_editor *editor, const char *prompt, const char **out_line, size_t *out_size)
{
    *out_line = NULL;
    *out_size = 0;
#ifdef SALVO_LIBEDIT
    if (editor->editline)
        return read_edited(editor, prompt, out_line, out_size);
#endif
    return read_plain(editor, prompt, out_line, out_size);
}

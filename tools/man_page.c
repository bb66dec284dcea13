#include "man_page.h"

#include <stdio.h>
#include <string.h>

/* A line that begins with a dot or a quote would be a request of troff; "\&" before it prevents this. */
static void print_text(const char *text)
{
    bool begins_line = true;
    for (; *text; text++) {
        if (begins_line && strchr(".'", *text))
            fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\'')
            fputs("\\(aq", stdout);
        else if (*text == '`')
            fputs("\\(ga", stdout);
        else
            putchar(*text);
        begins_line = *text == '\n';
    }
}

/* Names are printed bold, placeholders for values italic. */
static void print_styled(const char *style, const char *text)
{
    printf("\\f%s", style);
    print_text(text);
    fputs("\\fR", stdout);
}

static void print_head(const char *suffix, const char *summary)
{
    printf(".TH SALVO");
    for (const char *letter = suffix; *letter; letter++)
        putchar(*letter >= 'a' && *letter <= 'z' ? *letter - 'a' + 'A' : *letter);
    printf(" 1 \"\" \"salvo %s\" \"User Commands\"\n.SH NAME\nsalvo%s \\- ", salvo_version(), suffix);
    print_text(summary);
    printf("\n.SH SYNOPSIS\n");
}

static void print_option(const struct option *option)
{
    printf(".TP\n");
    if (option->letter) {
        const char letter[] = {'-', option->letter, 0};
        print_styled("B", letter);
        printf(", ");
    }
    print_styled("B", "--");
    print_styled("B", option->name);
    if (option->value) {
        putchar(' ');
        print_styled("I", option->value);
    }
    putchar('\n');
    print_text(option->help);
    if (option->also) {
        printf(" (also: ");
        print_text(option->also);
        putchar(')');
    }
    putchar('\n');
}

static void print_end(const char *see)
{
    printf(
        ".SH EXIT STATUS\n0: success; 1: failure; 2: wrong usage. Errors are one line on standard error.\n");
    printf(".SH SEE ALSO\n%s\n", see);
}

static void print_command(const struct command *command)
{
    char suffix[32];
    snprintf(suffix, sizeof suffix, "-%s", command->name);
    print_head(suffix, command->summary);
    printf("\\fBsalvo %s\\fR [\\fIoptions\\fR]%s", command->name, command->model ? " [\\fIMODEL\\fR]" : "");
    if (command->arguments) {
        putchar(' ');
        print_text(command->arguments);
    }
    printf("\n");
    if (command->details) {
        printf(".SH DESCRIPTION\n.nf\n");
        print_text(command->details);
        printf("\n.fi\n");
    }
    printf(".SH OPTIONS\n");
    const struct option *option;
    for (size_t i = 0; (option = command_option(command, i)); i++)
        print_option(option);
    print_option(&help_option);
    print_end("\\fBsalvo\\fR(1)");
}

static void print_overview(void)
{
    print_head("", "run language models from GGUF files");
    printf(
        "\\fBsalvo\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n"
        "salvo runs language models from GGUF files on CPUs and GPUs, with one submission to the device per "
        "token.\n.SH COMMANDS\n");
    for (size_t i = 0; all_commands[i]; i++) {
        printf(".TP\n\\fBsalvo\\-%s\\fR(1)\n", all_commands[i]->name);
        print_text(all_commands[i]->summary);
        putchar('\n');
    }
    printf(
        ".SH FILES\n.TP\n.I ~/.cache/salvo/models\nthe models folder, or "
        "\\fI$XDG_CACHE_HOME/salvo/models\\fR\n"
        ".SH ENVIRONMENT\n.TP\n.B SALVO_MODEL\nthe model of commands without \\fB\\-m\\fR\n.TP\n"
        ".B HF_ENDPOINT\\fR, \\fBHF_TOKEN\nthe hub of \\fBsalvo\\-pull\\fR(1), and the token for its gated "
        "models\n");
    print_end(
        "\\fBsalvo\\-run\\fR(1), \\fBsalvo\\-chat\\fR(1), \\fBsalvo\\-serve\\fR(1), \\fBsalvo\\-pull\\fR(1)");
}

void man_page_print(const struct command *command)
{
    if (command)
        print_command(command);
    else
        print_overview();
}

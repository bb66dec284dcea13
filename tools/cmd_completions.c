/* Completion scripts for the common shells, written from the tables that also drive parsing and help. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

static void print_command_names(const char *separator)
{
    for (size_t i = 0; all_commands[i]; i++)
        printf("%s%s", i ? separator : "", all_commands[i]->name);
}

static void print_bash(void)
{
    printf(
        "_salvo() {\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=\n"
        "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '");
    print_command_names(" ");
    printf(" --help --version' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; all_commands[i]; i++) {
        printf("    %s) options='--help", all_commands[i]->name);
        const struct option *option;
        for (size_t j = 0; (option = command_option(all_commands[i], j)); j++)
            printf(" --%s", option->name);
        printf("' ;;\n");
    }
    printf("    esac\n    case ${COMP_WORDS[1]}:$before in\n");
    for (size_t i = 0; all_commands[i]; i++) {
        const struct option *option;
        for (size_t j = 0; (option = command_option(all_commands[i], j)); j++) {
            if (option->choices)
                printf("    %s:--%s) COMPREPLY=($(compgen -W '%s' -- \"$word\")) ;;\n", all_commands[i]->name,
                    option->name, option->choices);
        }
    }
    printf("    *:-m|*:--model)\n"
           "        COMPREPLY=($(compgen -W \"$(salvo list 2>/dev/null | cut -d' ' -f1)\" -- \"$word\") "
           "$(compgen -f -- \"$word\")) ;;\n"
           "    *) case $word in\n       -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
           "       *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n       esac ;;\n"
           "    esac\n}\ncomplete -F _salvo salvo\n");
}

/* Help texts go into single quotes, where zsh's _arguments also gives brackets and colons a meaning. */
static void print_zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void print_zsh(void)
{
    printf("#compdef salvo\n_salvo() {\n    if (( CURRENT == 2 )); then\n        compadd -- ");
    print_command_names(" ");
    printf(" --help --version\n        return\n    fi\n    local command=$words[2]\n    shift words; (( "
           "CURRENT-- ))\n"
           "    case $command in\n");
    for (size_t i = 0; all_commands[i]; i++) {
        printf("    %s) _arguments '--help[show help]'", all_commands[i]->name);
        const struct option *option;
        for (size_t j = 0; (option = command_option(all_commands[i], j)); j++) {
            printf(" '--%s[", option->name);
            print_zsh_text(option->help);
            printf("]%s%s", option->value ? ":" : "", option->value ? option->value : "");
            if (option->value && option->choices)
                printf(":(%s)'", option->choices);
            else
                printf("%s'", option->kind == OPTION_FILE ? ":_files" : option->value ? ":" : "");
        }
        printf(" '*:file:_files' ;;\n");
    }
    printf("    esac\n}\ncompdef _salvo salvo\n");
}

/* In fish's single quotes only the quote and the backslash need an escape. */
static void print_fish_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
}

static void print_fish(void)
{
    for (size_t i = 0; all_commands[i]; i++) {
        const struct command *command = all_commands[i];
        printf("complete -c salvo -n __fish_use_subcommand -f -a %s -d '", command->name);
        print_fish_text(command->summary);
        printf("'\n");
        const struct option *option;
        for (size_t j = 0; (option = command_option(command, j)); j++) {
            printf(
                "complete -c salvo -n '__fish_seen_subcommand_from %s' -l %s", command->name, option->name);
            if (option->letter)
                printf(" -s %c", option->letter);
            if (option->value && option->choices)
                printf(" -x -a '%s' -d '", option->choices);
            else
                printf("%s -d '", option->value ? " -r" : "");
            print_fish_text(option->help);
            printf("'\n");
        }
    }
}

static int run(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; count == 1 && i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(arguments[0], shells[i].name) == 0) {
            shells[i].print();
            return EXIT_DONE;
        }
    }
    return usage_error("completions: expected one shell: bash, zsh or fish");
}

const struct command completions_command = {
    .name = "completions",
    .arguments = "bash|zsh|fish",
    .summary = "print a completion script for a shell",
    .options = (const struct option[]){{0}},
    .run = run,
};

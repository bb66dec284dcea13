#include "question.h"

#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool question_possible(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool question_ask(const char *question)
{
    char answer[16];
    print_safely(stderr, question, strlen(question));
    fputs(" [y/N] ", stderr);
    fflush(stderr);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

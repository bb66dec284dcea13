#ifndef TOOLS_MAN_PAGE_H
#define TOOLS_MAN_PAGE_H

#include "command.h"

/* Prints the man page of a command, or of salvo itself if it is NULL, made from the tables of commands and
 * options. */
void man_page_print(const struct command *command);

#endif

/* Files that a command writes by name: what is there is replaced only when that was asked for. */
#ifndef TOOLS_OUTPUT_FILE_H
#define TOOLS_OUTPUT_FILE_H

#include <salvo/salvo.h>

/* A table row that every command with an output file has. */
#define FORCE_OPTION(target)                                                          \
    {                                                                                 \
        0, "force", NULL, OPTION_FLAG, target, "replace the output file if it exists" \
    }

/* This process has read or written the file: it may be replaced. */
void output_file_own(const char *path);

/*
 * Whether `path` may be written: EXIT_DONE, or an exit status after saying why. A file of `model`, which may
 * be NULL, is never written over; any other one when `force` is set or the process owns it. `hint` says how
 * to force it. *out_replace is for salvo_file_open: where nothing has the name now, nothing may have it then.
 */
int output_file_check(
    const char *path, const struct salvo_model *model, bool force, const char *hint, bool *out_replace);

#endif

/* Checks output files: an existing file is replaced only with --force. */
#ifndef TOOLS_OUTPUT_FILE_H
#define TOOLS_OUTPUT_FILE_H

#include <salvo/salvo.h>

/* A table row that every command with an output file has. */
#define FORCE_OPTION(target)                                                          \
    {                                                                                 \
        0, "force", NULL, OPTION_FLAG, target, "replace the output file if it exists" \
    }

/* Allows to replace the file, because this process has read or written it. */
void output_file_own(const char *path);

/*
 * Whether `path` may be written: EXIT_DONE, or an exit status after an error message. A file of `model`,
 * which may be NULL, is never overwritten; other files only if `force` is set or the process owns them.
 * `hint` tells the user how to force it. *out_replace is for salvo_file_open: without `force`, a file that
 * appears after this check is not replaced.
 */
int output_file_check(
    const char *path, const struct salvo_model *model, bool force, const char *hint, bool *out_replace);

#endif

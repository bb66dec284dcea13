/* The commands, one file each. */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

#include "command.h"

extern const struct command bench_command;
extern const struct command chat_command;
extern const struct command completions_command;
extern const struct command detokenize_command;
extern const struct command devices_command;
extern const struct command embed_command;
extern const struct command eval_command;
extern const struct command grammar_command;
extern const struct command help_command;
extern const struct command info_command;
extern const struct command list_command;
extern const struct command perplexity_command;
extern const struct command ps_command;
extern const struct command pull_command;
extern const struct command quantize_command;
extern const struct command rm_command;
extern const struct command run_command;
extern const struct command serve_command;
extern const struct command show_command;
extern const struct command template_command;
extern const struct command tokenize_command;
extern const struct command verify_command;

#endif

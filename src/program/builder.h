/* Shared by the files that build programs; architectures include program.h alone. */
#ifndef PROGRAM_BUILDER_H
#define PROGRAM_BUILDER_H

#include "program/program.h"

/* Keeps a mistake whose message is recorded already. */
void builder_keep(struct builder *builder, enum salvo_status status);

/* Adds an op that op_checks.c has checked. */
void builder_add_op(struct builder *builder, const struct op *op);

/* Whether an earlier op writes the buffer. */
bool builder_has_written(const struct builder *builder, buffer_id buffer);

#endif

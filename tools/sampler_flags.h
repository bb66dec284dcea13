/* The options that say how tokens are chosen, with llama.cpp's names. */
#ifndef TOOLS_SAMPLER_FLAGS_H
#define TOOLS_SAMPLER_FLAGS_H

#include "command.h"

#include <salvo/salvo.h>

extern const struct option sampler_flag_table[];

/* Sets the session's sampler and biases: the model's defaults, changed by the options. *out_seed is the one
 * given, or a random one. EXIT_DONE, or an exit status after saying why. */
int sampler_from_flags(const struct salvo_model *model, struct salvo_session *session, uint64_t *out_seed);

#endif

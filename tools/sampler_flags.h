/* The sampling options, with llama.cpp's names. */
#ifndef TOOLS_SAMPLER_FLAGS_H
#define TOOLS_SAMPLER_FLAGS_H

#include "command.h"

#include <salvo/salvo.h>

extern const struct option sampler_flag_table[];

/* The model's default sampler, changed by the options, without biases; the seed is SALVO_SEED_RANDOM if none
 * is given. */
struct salvo_sampler sampler_default_from_flags(const struct salvo_model *model);
bool sampler_flags_have_bias(void);

/* Sets the session's sampler and biases: the model's defaults, changed by the options; the seed is the one
 * given, or a random one that stays. EXIT_DONE, or an exit status after an error message. */
int sampler_from_flags(
    const struct salvo_model *model, struct salvo_session *session, struct salvo_sampler *out);

/* Changes one option by its name without dashes, and the session's sampler with it. Nothing changes where
 * that fails. */
int sampler_flag_set(const struct salvo_model *model, struct salvo_session *session, const char *name,
    const char *value, struct salvo_sampler *out);

/* Changes the seed for the next use of the options. */
void sampler_flags_next_seed(void);

#endif

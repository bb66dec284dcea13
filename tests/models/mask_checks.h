/* Checks of masks and log-probabilities for engines on any backend. */
#ifndef TESTS_MASK_CHECKS_H
#define TESTS_MASK_CHECKS_H

#include "engine_fixture.h"

/* Steps of several runs, each with its own mask, sampler and log-probabilities, and steps of one token;
 * resident masks; scores of tokens that are given. Ids are compared with the reference's choice from the
 * logits of the same run, log-probabilities with values computed here in float64. The engine has three
 * sessions, one of them open, and a batch of at least 24. */
void check_masks(struct fixture *fixture);

#endif

/* Checks of sampling, of states that move and of queued runs, for engines on any backend. */
#ifndef TESTS_CONVERSATION_CHECKS_H
#define TESTS_CONVERSATION_CHECKS_H

#include "engine_fixture.h"

/* The id that the device chose is the one that the reference chooses from the same logits. */
void check_sampling(const struct fixture *fixture);

/* A bias of 1000 decides which id is chosen, also after it has changed. The session is new. */
void check_bias(const struct fixture *fixture);

/* Conversations that move between the engine and the CPU, are rolled back, begin again and are computed
 * ahead. The engine has a model of `shape` in F32, a context of 128 and a batch of 32. */
void check_conversations(const struct fixture *fixture, const char *shape);

/* A run from SOURCE_LAST that is not at the end of its slot samples nothing; the other run of the step does.
 * The engine has two sessions, one of them open. */
void check_missed_position(const struct fixture *fixture);

#endif

/* Checks of steps whose runs decode several tokens, for engines on any backend. */
#ifndef TESTS_REPEAT_CHECKS_H
#define TESTS_REPEAT_CHECKS_H

#include "engine_fixture.h"

enum { REPEAT_CONTEXT = 32 };

/* Runs of one step end at different moments and for every reason; the others continue with the ids that they
 * get one by one. The engine has five sessions, one of them open, and a context of REPEAT_CONTEXT. */
void check_repeats(struct fixture *fixture);

#endif

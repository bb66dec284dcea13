/* Checks of shared pages and copied states for engines on any backend. */
#ifndef TESTS_COPY_CHECKS_H
#define TESTS_COPY_CHECKS_H

#include "engine_fixture.h"

/* Copies a session, lets both go on and compares them with sessions that were not copied. Then a session
 * begins with what a closed one has left in the prefix cache, and is rolled back to a snapshot. The engine
 * has three sessions, one of them open, a batch of at least 32 and a prefix cache. */
void check_copies(struct fixture *fixture);

#endif

/* Cancels a session in the middle of a step of the CPU backend, at a call of a kernel that is counted, so
 * that a test knows that the cancel came and does not depend on time. */
#ifndef TESTS_CANCEL_HOOK_H
#define TESTS_CANCEL_HOOK_H

#include <stdbool.h>

struct salvo_engine;
struct salvo_session;

/* Cancels at call number `call`, counted from 1, of the kernel that rounds activations to int8: the
 * model must be quantised. One session at a time. */
void cancel_hook_set(struct salvo_engine *engine, struct salvo_session *session, unsigned call);

/* Whether the cancel came. */
bool cancel_hook_remove(struct salvo_engine *engine);

#endif

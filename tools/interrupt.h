/* Ctrl-C, or a request to end, stops work cleanly; a second one ends the program. */
#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <salvo/salvo.h>

/* From now on they are noted and cancel `session`, which may be NULL. */
void interrupt_catch(struct salvo_session *session);

/* The same for Ctrl-C alone, as often as it comes: it never ends the program. A read that waits is ended by
 * it. */
void interrupt_catch_each(struct salvo_session *session);

/* Whether one came since it was last taken. */
bool interrupt_pending(void);
bool interrupt_take(void);

/* Restores what they do otherwise. */
void interrupt_release(void);

/* 0, or as shells have it for what a signal ended: 130 for Ctrl-C. */
int interrupt_status(void);

#endif

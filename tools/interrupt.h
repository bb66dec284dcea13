/* SIGINT, SIGTERM and SIGHUP: the first cancels the session, the second ends the program. */
#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <salvo/salvo.h>

/* Installs the handlers; a signal cancels `session`, which may be NULL. */
void interrupt_catch(struct salvo_session *session);

/* The same for SIGINT only, any number of times: it never ends the program. With NULL it interrupts a waiting
 * read. */
void interrupt_catch_each(struct salvo_session *session);

/* Whether a signal arrived since the last interrupt_take. */
bool interrupt_pending(void);
bool interrupt_take(void);

/* Restores the default handlers. */
void interrupt_release(void);

/* The exit status: 0, or 128 + the signal number: 130 for Ctrl-C. */
int interrupt_status(void);

#endif

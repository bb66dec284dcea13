/* Ctrl-C stops a session cleanly; a second one ends the program. */
#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <salvo/salvo.h>

/* From now on Ctrl-C cancels `session`; NULL restores what Ctrl-C does otherwise. */
void interrupt_cancels(struct salvo_session *session);

bool interrupted(void);

#endif

/* Sessions add their pages and states to the prefix cache. Without a cache these functions do nothing. */
#ifndef ENGINE_SESSION_PUBLISH_H
#define ENGINE_SESSION_PUBLISH_H

#include "engine/engine.h"

/* Keeps the session's computed tokens: their pages, and its recurrent states. The device is idle. */
void session_publish(struct salvo_session *session);

/* Called when the session has computed up to `computed` positions, from `first` on: keeps full pages. */
void session_publish_full_pages(struct salvo_session *session, uint32_t first);

/* Keeps a snapshot of the session's first `position` tokens. */
void session_publish_state(struct salvo_session *session, uint32_t position, uint32_t state);

/* Whether recurrent states are kept at the ends of pages and before the last token of prompts. */
bool session_keeps_states(const struct salvo_session *session);

#endif

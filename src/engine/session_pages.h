/* The KV pages of a session: entries 0 .. page_count - 1 of its page table. Models without KV caches need
 * none, and these functions then do nothing. */
#ifndef ENGINE_SESSION_PAGES_H
#define ENGINE_SESSION_PAGES_H

#include "engine/engine.h"

/* Pages that hold so many positions. */
uint32_t session_pages_of(uint32_t positions);

/*
 * Takes pages for positions `first` to `end` - 1, which are computed next, so that the session alone holds
 * each of them. A page that it shares is replaced; the positions before `first` are copied to the new page,
 * while the device is idle (see session_must_copy_page). SALVO_ERROR_MEMORY, without effect, if there are not
 * enough pages.
 */
enum salvo_status session_take_pages(struct salvo_session *session, uint32_t first, uint32_t end);

/* Whether computing position `first` copies a page. */
bool session_must_copy_page(const struct salvo_session *session, uint32_t first);

/* Gives back the pages that the session's computed positions do not need. */
void session_trim_pages(struct salvo_session *session);

/* Gives back all pages. */
void session_drop_pages(struct salvo_session *session);

/* Replaces the pages of `to` by the pages of the first `positions` positions of `from`; both then hold them.
 */
void session_share_pages(struct salvo_session *to, const struct salvo_session *from, uint32_t positions);

#endif

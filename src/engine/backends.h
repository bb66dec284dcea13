/* The backends built into this library, and the one a name means. */
#ifndef ENGINE_BACKENDS_H
#define ENGINE_BACKENDS_H

#include "backend/backend.h"

/* Best first, ending with NULL. */
extern const struct backend *const all_backends[];

/* NULL or "auto" is the best there is. */
enum salvo_status backend_find(const char *name, const struct backend **out);

/* What "auto" takes when `backend` cannot be opened; NULL when there is none, or one was named. */
const struct backend *backend_after(const char *name, const struct backend *backend);

/* An error unless the backend has a device of this number; it says why when there is none at all. */
enum salvo_status backend_check_device(const struct backend *backend, uint32_t number);

#endif

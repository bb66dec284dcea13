/* The backends in this build, and the choice of one by name. */
#ifndef ENGINE_BACKENDS_H
#define ENGINE_BACKENDS_H

#include "backend/backend.h"

/* Best first, ending with NULL. */
extern const struct backend *const all_backends[];

/* NULL or "auto" is the best available. */
enum salvo_status backend_find(const char *name, const struct backend **out);

/*
 * The backend that "auto" tries after `backend` failed to open; NULL if there is none or the user named one.
 */
const struct backend *backend_after(const char *name, const struct backend *backend);

/* Fails unless the backend has a device of this number; the error says why if it has none. */
enum salvo_status backend_check_device(const struct backend *backend, uint32_t number);

#endif

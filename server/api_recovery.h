/*
 * A device that fails: the requests in flight end with an error, the engine is closed and opened again, and
 * the requests that had not begun are submitted again. All functions belong to the loop.
 */
#ifndef SERVER_API_RECOVERY_H
#define SERVER_API_RECOVERY_H

#include "api_choice.h"
#include "api_server.h"

/* Called for each parked choice when the model is ready again, or cannot be opened (`ok` is false). */
typedef void (*api_resume_function)(struct api_choice *choice, bool ok);

/* Begins to open the engine anew, unless that has begun; false if it cannot begin. If the engine cannot be
 * opened, the server ends. */
bool api_recover(struct api_server *server, struct api_model *model, api_resume_function resume);

/* A parked choice waits until the model is ready again. */
void api_park(struct api_model *model, struct api_choice *choice);
/* Does nothing if it is not parked. */
void api_unpark(struct api_choice *choice);

/* Submits a parked choice of a generation again; api_generation.c. */
void api_generation_resume(struct api_choice *choice, bool ok);

/* The scheduler that a choice was submitted to; NULL if that is closed. */
struct salvo_scheduler *api_choice_scheduler(const struct api_model *model, const struct api_choice *choice);

#endif

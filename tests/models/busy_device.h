/*
 * A device that works by itself, made of the CPU backend and a thread: submissions are queued and done token
 * by token, with pauses of random length, while the caller goes on. It fails the test when it is asked for
 * its state while something is on its way.
 */
#ifndef TESTS_BUSY_DEVICE_H
#define TESTS_BUSY_DEVICE_H

#include <stdint.h>

struct salvo_engine;

enum busy_fate {
    BUSY_GOES_ON,
    BUSY_LOST_BEFORE, /* the submission is lost, and the token not computed */
    BUSY_LOST_AFTER,  /* the submission is lost, but the device's state contains its results */
};

/* Called by the device's thread before it computes tokens from `position` on, or checks for a cancel. */
typedef enum busy_fate (*busy_hook)(void *user, uint32_t position);

/* Puts it in place of the engine's backend, which must be the CPU's; closed with the engine. */
void busy_device_install(struct salvo_engine *engine);

/* While nothing is on its way; NULL: none. */
void busy_device_set_hook(struct salvo_engine *engine, busy_hook hook, void *user);

/* The next submission fails. */
void busy_device_refuse_next(struct salvo_engine *engine);

/* Most submissions that were on their way at once since this was last called. */
unsigned busy_device_most_in_flight(struct salvo_engine *engine);

#endif

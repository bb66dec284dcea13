/*
 * A device that works by itself, made of the CPU backend and a thread: submissions are queued and done token
 * by token, with pauses of random length, while the caller goes on. It fails the test when it is asked for
 * its state while something is on its way.
 */
#ifndef TESTS_BUSY_DEVICE_H
#define TESTS_BUSY_DEVICE_H

struct salvo_engine;

/* Puts it in place of the engine's backend, which must be the CPU's; closed with the engine. */
void busy_device_install(struct salvo_engine *engine);

/* Most submissions that were on their way at once since this was last called. */
unsigned busy_device_most_in_flight(struct salvo_engine *engine);

#endif

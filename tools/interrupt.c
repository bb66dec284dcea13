#include "interrupt.h"

#include <signal.h>

static struct salvo_session *volatile running;
static volatile sig_atomic_t caught;

static void on_interrupt(int signal_number)
{
    caught = signal_number;
    if (running)
        salvo_session_cancel(running); // NOLINT(bugprone-signal-handler): made for it, says salvo.h
    signal(signal_number, SIG_DFL);
}

void interrupt_catch(struct salvo_session *session)
{
    running = session;
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
}

void interrupt_release(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    running = NULL;
}

int interrupt_status(void)
{
    return caught ? 128 + caught : 0;
}

#include "interrupt.h"

#include <signal.h>

static struct salvo_session *volatile running;
static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signal_number)
{
    was_interrupted = 1;
    if (running)
        salvo_session_cancel(running);
    signal(signal_number, SIG_DFL);
}

void interrupt_cancels(struct salvo_session *session)
{
    running = session;
    signal(SIGINT, session ? on_interrupt : SIG_DFL);
}

bool interrupted(void)
{
    return was_interrupted;
}

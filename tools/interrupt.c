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
    if (signal(SIGHUP, on_interrupt) == SIG_IGN) /* nohup asked for it */
        signal(SIGHUP, SIG_IGN);
}

static void note_interrupt(int signal_number)
{
    caught = signal_number;
    if (running)
        salvo_session_cancel(running); // NOLINT(bugprone-signal-handler): made for it, says salvo.h
}

void interrupt_catch_each(struct salvo_session *session)
{
    /* While an answer comes, what is being written goes on; while a line is read, reading it ends. */
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = session ? SA_RESTART : 0};
    sigemptyset(&action.sa_mask);
    running = session;
    sigaction(SIGINT, &action, NULL);
}

bool interrupt_pending(void)
{
    return caught != 0;
}

bool interrupt_take(void)
{
    bool taken = caught != 0;
    caught = 0;
    return taken;
}

void interrupt_release(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (signal(SIGHUP, SIG_DFL) == SIG_IGN)
        signal(SIGHUP, SIG_IGN);
    running = NULL;
}

int interrupt_status(void)
{
    return caught ? 128 + caught : 0;
}

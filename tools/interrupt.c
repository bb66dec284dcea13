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

/* A signal that was ignored from the start stays ignored: nohup and background jobs of scripts ask for it. */
static void set_handler(int signal_number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
    sigemptyset(&action.sa_mask);
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(signal_number, &action, NULL);
}

void interrupt_catch(struct salvo_session *session)
{
    running = session;
    set_handler(SIGINT, on_interrupt, SA_RESTART);
    set_handler(SIGTERM, on_interrupt, SA_RESTART);
    set_handler(SIGHUP, on_interrupt, SA_RESTART);
}

static void note_interrupt(int signal_number)
{
    caught = signal_number;
    if (running)
        salvo_session_cancel(running); // NOLINT(bugprone-signal-handler): made for it, says salvo.h
}

void interrupt_catch_each(struct salvo_session *session)
{
    /* During an answer interrupted writes are restarted; while a line is read, the signal ends the read. */
    running = session;
    set_handler(SIGINT, note_interrupt, session ? SA_RESTART : 0);
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
    set_handler(SIGINT, SIG_DFL, 0);
    set_handler(SIGTERM, SIG_DFL, 0);
    set_handler(SIGHUP, SIG_DFL, 0);
    running = NULL;
}

int interrupt_status(void)
{
    return caught ? 128 + caught : 0;
}

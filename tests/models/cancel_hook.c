#include "cancel_hook.h"

#include "backend/cpu/executor.h"
#include "engine/engine.h"

#include <stdatomic.h>

static const struct cpu_kernels *original;
static struct cpu_kernels hooked;
static struct salvo_session *cancelled;
static unsigned call_to_cancel;
static atomic_uint calls;

static void round_and_cancel(
    const float *x, size_t k, unsigned terms, struct q8_tile q8, size_t width, size_t t)
{
    if (atomic_fetch_add(&calls, 1) + 1 == call_to_cancel)
        salvo_session_cancel(cancelled);
    original->round_q8(x, k, terms, q8, width, t);
}

void cancel_hook_set(struct salvo_engine *engine, struct salvo_session *session, unsigned call)
{
    original = engine->executor->kernels;
    hooked = *original;
    hooked.round_q8 = round_and_cancel;
    cancelled = session;
    call_to_cancel = call;
    atomic_store(&calls, 0);
    engine->executor->kernels = &hooked;
}

bool cancel_hook_remove(struct salvo_engine *engine)
{
    engine->executor->kernels = original;
    return atomic_load(&calls) >= call_to_cancel;
}

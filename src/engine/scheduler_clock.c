#include "base/clock.h"
#include "engine/scheduler.h"

static uint64_t real_now(void)
{
    return clock_ns();
}

uint64_t (*scheduler_now)(void) = real_now;

#include "measure.h"

#include <sys/resource.h>
#include <time.h>

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

uint64_t peak_memory(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
#ifdef __APPLE__
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

struct salvo_counters counters_of(const struct salvo_engine *engine)
{
    struct salvo_counters counters = SALVO_COUNTERS_INIT;
    (void)salvo_engine_counters(engine, &counters);
    return counters;
}

double rate(double count, double seconds)
{
    return seconds > 0 ? count / seconds : 0;
}

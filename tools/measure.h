/* Time, memory and the counters of an engine, for statistics. */
#ifndef TOOLS_MEASURE_H
#define TOOLS_MEASURE_H

#include <salvo/debug.h>

double seconds_now(void);   /* of a monotonic clock */
uint64_t peak_memory(void); /* largest resident size of this process in bytes */
struct salvo_counters counters_of(const struct salvo_engine *engine);
double rate(double count, double seconds); /* 0 when no time has passed */

#endif

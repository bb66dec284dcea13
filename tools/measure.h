/* Time and memory, for statistics. */
#ifndef TOOLS_MEASURE_H
#define TOOLS_MEASURE_H

#include <stdint.h>

double seconds_now(void);                  /* of a clock that only goes forward */
uint64_t peak_memory(void);                /* bytes this process has had at most */
double rate(double count, double seconds); /* 0 when no time has passed */

#endif

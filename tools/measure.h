/* Time, memory and the counters of an engine, for statistics. */
#ifndef TOOLS_MEASURE_H
#define TOOLS_MEASURE_H

#include <salvo/debug.h>
#include <stdbool.h>
#include <stddef.h>

double seconds_now(void);   /* of a monotonic clock */
uint64_t peak_memory(void); /* largest resident size of this process in bytes */
struct salvo_counters counters_of(const struct salvo_engine *engine);
double rate(double count, double seconds); /* 0 when no time has passed */

/* The numbers of a measurement, a list that grows. */
struct number_list {
    double *items;
    size_t count, capacity;
    bool has_failed; /* out of memory: numbers are missing */
};

void number_list_add(struct number_list *list, double number);
void number_list_free(struct number_list *list);

/* The number that this share of all is not above, 0.5: the median; sorts the list. 0 without numbers. */
double number_list_share(struct number_list *list, double share);

/* *out_deviation: the standard deviation of a sample, unless it is NULL. */
double number_list_mean(const struct number_list *list, double *out_deviation);

#endif

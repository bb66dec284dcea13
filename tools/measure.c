#include "measure.h"

#include <math.h>
#include <stdlib.h>
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

void number_list_add(struct number_list *list, double number)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        double *items = realloc(list->items, capacity * sizeof *items);
        if (!items) {
            list->has_failed = true;
            return;
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = number;
}

void number_list_free(struct number_list *list)
{
    free(list->items);
    *list = (struct number_list){0};
}

static int compare_numbers(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double number_list_share(struct number_list *list, double share)
{
    if (!list->count)
        return 0;
    qsort(list->items, list->count, sizeof *list->items, compare_numbers);
    const double rank = ceil(share * (double)list->count);
    return list->items[rank < 1 ? 0 : (size_t)rank - 1];
}

double number_list_mean(const struct number_list *list, double *out_deviation)
{
    const double n = (double)list->count;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < list->count; i++)
        sum += list->items[i];
    const double mean = list->count ? sum / n : 0;
    for (size_t i = 0; i < list->count; i++)
        squares += (list->items[i] - mean) * (list->items[i] - mean);
    if (out_deviation)
        *out_deviation = list->count > 1 ? sqrt(squares / (n - 1)) : 0;
    return mean;
}

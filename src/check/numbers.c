/* numbers.c: see numbers.h. */
#include "check/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void es_numbers_add(es_numbers *numbers, double value)
{
    if (numbers->failed) return;
    if (numbers->count == numbers->capacity) {
        const size_t capacity = numbers->capacity ? 2 * numbers->capacity : 64;
        double *item = realloc(numbers->item, capacity * sizeof *item);
        if (!item) {
            numbers->failed = true;
            return;
        }
        numbers->item = item;
        numbers->capacity = capacity;
    }
    numbers->item[numbers->count++] = value;
}

void es_numbers_free(es_numbers *numbers)
{
    free(numbers->item);
    *numbers = (es_numbers){0};
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double es_numbers_quantile(const es_numbers *numbers, double q)
{
    if (numbers->count == 0) return (double)NAN;
    double *sorted = malloc(numbers->count * sizeof *sorted);
    if (!sorted) return (double)NAN;
    memcpy(sorted, numbers->item, numbers->count * sizeof *sorted);
    qsort(sorted, numbers->count, sizeof *sorted, ascending);
    const double place = fmin(fmax(q, 0), 1) * (double)(numbers->count - 1);
    const size_t below = (size_t)place;
    const size_t above = below + 1 < numbers->count ? below + 1 : below;
    const double value = sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
    free(sorted);
    return value;
}

double es_numbers_max(const es_numbers *numbers)
{
    double most = numbers->count ? numbers->item[0] : (double)NAN;
    for (size_t i = 1; i < numbers->count; i++) most = fmax(most, numbers->item[i]);
    return most;
}

void es_numbers_gaps(const es_numbers *times, double from, double to, es_numbers *gaps, es_numbers *at)
{
    for (size_t i = 1; i < times->count; i++) {
        if (times->item[i] <= from || times->item[i - 1] >= to) continue;
        es_numbers_add(gaps, times->item[i] - times->item[i - 1]);
        if (at) es_numbers_add(at, times->item[i]);
    }
}

/* numbers.h: a list of measurements and the few statistics that a report needs.
 *
 *   es_numbers gaps = {0};
 *   es_numbers_add(&gaps, 0.021);
 *   printf("median %g\n", es_numbers_quantile(&gaps, 0.5));
 *   es_numbers_free(&gaps);
 *
 * Adding never fails loudly: without memory `failed` is set and later values are dropped. */
#ifndef ES_CHECK_NUMBERS_H
#define ES_CHECK_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct es_numbers {
    double *item; /**< owned */
    size_t count, capacity;
    bool failed;
} es_numbers;

void es_numbers_add(es_numbers *numbers, double value);
void es_numbers_free(es_numbers *numbers);
/** The value below which the share q (0 to 1) lies, linear between neighbours; NaN for an empty list. */
double es_numbers_quantile(const es_numbers *numbers, double q);
/** The greatest; NaN for an empty list. */
double es_numbers_max(const es_numbers *numbers);
/** Of ascending times: append to `gaps` each gap between neighbours that overlaps [from, to], and to `at` when it ended
 *  (NULL: not wanted). A gap that only touches the window is left out. */
void es_numbers_gaps(const es_numbers *times, double from, double to, es_numbers *gaps, es_numbers *at);

#endif

/* pages.c: see pages.h. Low numbers are handed out first, so that a short-lived process touches little memory. */
#include "cache/pages.h"

#include <stdlib.h>

es_status es_pages_open(int64_t total, es_pages *pages)
{
    *pages = (es_pages){.total = total, .free_count = total};
    if (total < 0 || total > INT32_MAX) return es_fail(ES_INVALID, "%" PRId64 " pages are too many", total);
    pages->free = malloc((size_t)(total ? total : 1) * sizeof *pages->free);
    pages->holders = calloc((size_t)(total ? total : 1), sizeof *pages->holders);
    pages->pins = calloc((size_t)(total ? total : 1), sizeof *pages->pins);
    if (!pages->free || !pages->holders || !pages->pins) {
        es_pages_close(pages);
        return es_fail(ES_NO_MEMORY, "no memory to number %" PRId64 " pages", total);
    }
    for (int64_t i = 0; i < total; i++) pages->free[i] = (int32_t)(total - 1 - i);
    return ES_OK;
}

void es_pages_close(es_pages *pages)
{
    free(pages->free);
    free(pages->holders);
    free(pages->pins);
    *pages = (es_pages){0};
}

bool es_pages_take(es_pages *pages, int64_t count, int32_t *out)
{
    if (count > pages->free_count) return false;
    for (int64_t i = 0; i < count; i++) {
        out[i] = pages->free[--pages->free_count];
        pages->holders[out[i]] = 1;
    }
    return true;
}

void es_pages_hold(es_pages *pages, int32_t page)
{
    pages->holders[page]++;
}

void es_pages_drop(es_pages *pages, const int32_t *list, int64_t count)
{
    /* Backwards, so that a sequence's first page is the next one taken. */
    for (int64_t i = count - 1; i >= 0; i--)
        if (--pages->holders[list[i]] == 0) pages->free[pages->free_count++] = list[i];
}

void es_pages_pin(es_pages *pages, const int32_t *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++) pages->pinned += pages->pins[list[i]]++ == 0;
}

void es_pages_unpin(es_pages *pages, const int32_t *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++) pages->pinned -= --pages->pins[list[i]] == 0;
}

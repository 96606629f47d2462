/* covering.h: few combinations of many settings, such that every pair (or triple) of values occurs together somewhere.
 *
 * A fault seldom needs more than two or three settings at once to show, while a product of ten axes has millions of
 * combinations. Rows are built greedily: each begins with a tuple that no row has yet, and fills in its other axes one after
 * the other with the value that adds most. The stream of random numbers is fixed, so the rows are the same everywhere. */
#ifndef ES_TESTS_COVERING_H
#define ES_TESTS_COVERING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ES_COVER_AXES = 16, ES_COVER_MOST = 3, ES_COVER_CANDIDATES = 12 };

typedef struct es_covering {
    int axes, values[ES_COVER_AXES]; /**< how many values each axis has */
    int strength;                    /**< 2: pairs, 3: triples */
    /** Whether the values go together; −1 is one not chosen yet, and forbids nothing. What is allowed can be completed. */
    bool (*allowed)(const int *value);
    bool (*dear)(const int *value);  /**< or NULL: values that take long, used where they add more than others only */
    /* made by es_covering_open() */
    unsigned char *open;             /**< tuples that no row has yet */
    int64_t left, sets;
    int (*set)[ES_COVER_MOST];       /**< the axes of each kind of tuple */
    int64_t *base;                   /**< where its tuples start in `open` */
    uint64_t draw;
} es_covering;

static inline int es_cover_draw(es_covering *c, int below)
{
    c->draw = c->draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((c->draw >> 33) % (uint64_t)below);
}

/* The tuple of a set of axes in a row; −1 while some of them is not chosen. */
static inline int64_t es_cover_tuple(const es_covering *c, int64_t set, const int *value)
{
    int64_t at = 0;
    for (int i = 0; i < c->strength; i++) {
        const int axis = c->set[set][i];
        if (value[axis] < 0) return -1;
        at = at * c->values[axis] + value[axis];
    }
    return c->base[set] + at;
}

static inline void es_cover_unpack(const es_covering *c, int64_t set, int64_t tuple, int *value)
{
    for (int i = 0; i < c->axes; i++) value[i] = -1;
    for (int i = c->strength - 1; i >= 0; i--) {
        const int axis = c->set[set][i];
        value[axis] = (int)(tuple % c->values[axis]);
        tuple /= c->values[axis];
    }
}

/** Fills in the rest. False: no memory. es_covering_close() frees it. */
static inline bool es_covering_open(es_covering *c)
{
    int64_t total = 0;
    c->sets = 0, c->left = 0, c->draw = 1;
    c->set = calloc((size_t)(c->axes * c->axes * c->axes), sizeof *c->set);
    c->base = calloc((size_t)(c->axes * c->axes * c->axes) + 1, sizeof *c->base);
    if (!c->set || !c->base) return false;
    for (int a = 0; a < c->axes; a++)
        for (int b = a + 1; b < c->axes; b++)
            for (int k = b + 1; k <= c->axes; k++) { /* for pairs the third is the end, once */
                if (c->strength == 2 ? k != c->axes : k == c->axes) continue;
                const int all[ES_COVER_MOST] = {a, b, k};
                memcpy(c->set[c->sets], all, sizeof all);
                c->base[c->sets++] = total;
                total += (int64_t)c->values[a] * c->values[b] * (c->strength == 3 ? c->values[k] : 1);
            }
    c->base[c->sets] = total;
    c->open = calloc((size_t)total, 1);
    if (!c->open) return false;
    for (int64_t s = 0; s < c->sets; s++)
        for (int64_t t = c->base[s]; t < c->base[s + 1]; t++) {
            int value[ES_COVER_AXES];
            es_cover_unpack(c, s, t - c->base[s], value);
            c->open[t] = c->allowed(value);
            c->left += c->open[t];
        }
    return true;
}

static inline void es_covering_close(es_covering *c)
{
    free(c->open);
    free(c->set);
    free(c->base);
}

/* How many tuples that no row has yet a row brings; takes them out if asked. */
static inline int64_t es_cover_gain(es_covering *c, const int *value, bool take)
{
    int64_t gain = 0;
    for (int64_t s = 0; s < c->sets; s++) {
        const int64_t t = es_cover_tuple(c, s, value);
        if (t < 0 || !c->open[t]) continue;
        gain++;
        if (take) c->open[t] = 0;
    }
    return gain;
}

/* Any tuple that no row has yet, from a drawn place on. */
static inline void es_cover_start(es_covering *c, int *value)
{
    const int64_t total = c->base[c->sets];
    int64_t t = es_cover_draw(c, (int)total);
    while (!c->open[t]) t = (t + 1) % total;
    int64_t s = 0;
    while (c->base[s + 1] <= t) s++;
    es_cover_unpack(c, s, t - c->base[s], value);
}

/* The value that adds most, of those the ones that are not dear, of those by draw. */
static inline void es_cover_fill(es_covering *c, int axis, int *value)
{
    int64_t best = -1;
    int chosen = 0, ties = 0;
    for (int v = 0; v < c->values[axis]; v++) {
        value[axis] = v;
        if (!c->allowed(value)) continue;
        const int64_t gain = 2 * es_cover_gain(c, value, false) + !(c->dear && c->dear(value));
        ties = gain == best ? ties + 1 : 1;
        if (gain > best || (gain == best && es_cover_draw(c, ties) == 0)) chosen = v;
        if (gain > best) best = gain;
    }
    value[axis] = chosen;
}

/** The next row, [axes] values; false when every tuple has been in one. */
static inline bool es_covering_next(es_covering *c, int *row)
{
    if (c->left == 0) return false;
    int64_t best = -1;
    for (int n = 0; n < ES_COVER_CANDIDATES; n++) {
        int value[ES_COVER_AXES], order[ES_COVER_AXES];
        es_cover_start(c, value);
        for (int i = 0; i < c->axes; i++) {
            const int k = es_cover_draw(c, i + 1);
            order[i] = order[k], order[k] = i;
        }
        for (int i = 0; i < c->axes; i++)
            if (value[order[i]] < 0) es_cover_fill(c, order[i], value);
        const int64_t gain = es_cover_gain(c, value, false);
        if (gain <= best) continue;
        best = gain;
        memcpy(row, value, (size_t)c->axes * sizeof *row);
    }
    c->left -= es_cover_gain(c, row, true);
    return true;
}

#endif

/* compare_picks.c: candidates for the next token, as both devices pick them: the very same ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/compare_case.h"
#include "device/pick.h"

enum { P_LOGITS, P_OUT };

static void record_pick(es_compare *c, int d, es_program *p)
{
    es_program_add(p, (es_op){
                          ES_OP_PICK, .as.pick = {.logits = SLICE(P_LOGITS),
                                                  .vocabulary = (int32_t)c->shape[0],
                                                  .most_rows = MOST_SPANS,
                                                  .out = SLICE(P_OUT)}
    });
}

/* Both devices must find the very same: candidates are put in order first, since a device lists them in none. */
static void compare_picks(es_compare *c, const es_pick *pick, int32_t rows)
{
    static es_picked picked[2][MOST_SPANS];
    for (int d = 0; d < 2 && c->status == ES_OK; d++)
        es_compare_fail(c, es_device_read(c->device[d], c->buffer[d][c->b[P_OUT]], 0, picked[d], (size_t)rows * sizeof(es_picked)));
    for (int32_t i = 0; i < rows && c->status == ES_OK; i++) {
        es_picked *a = &picked[0][i], *b = &picked[1][i];
        bool same = a->best == b->best && a->most == b->most && a->total == b->total && a->count == b->count;
        if (!pick[i].wanted) continue;
        if (same && a->count <= ES_PICK_MOST) {
            es_pick_sort(a->candidate, a->count);
            es_pick_sort(b->candidate, b->count);
            same = memcmp(a->candidate, b->candidate, (size_t)a->count * sizeof *a->candidate) == 0;
        }
        if (same || !c->row->equal) continue;
        c->row->equal = false;
        c->row->worst = INFINITY;
        snprintf(c->row->difference, sizeof c->row->difference,
                 "row %d: token %d, %d candidates, weight %llu; the CPU's %d, %d, %llu", (int)i, b->best, b->count,
                 (unsigned long long)b->total, a->best, a->count, (unsigned long long)a->total);
    }
}

/* Logits as peaked as a model's, with ties and what is no number among them, each row picked from in another way. */
void es_compare_picks(es_compare *c)
{
    static const int32_t vocabularies[] = {37, 1000, 151936};
    static const es_pick ways[MOST_SPANS] = {
        {.wanted = 1, .share = 1},
        {.wanted = 1, .share = 0.95, .inverse_temperature = 1.0f},
        {.wanted = 1, .share = 1, .inverse_temperature = 1.25f, .top = 40},
        {.wanted = 1, .share = 0.4375, .inverse_temperature = 0.7f},
        {.wanted = 0},
        {.wanted = 1, .share = 1, .inverse_temperature = 1.0f, .least = 0.05f},
        {.wanted = 1, .share = 0.999, .inverse_temperature = 0.1f},
        {.wanted = 1, .share = 0.5, .inverse_temperature = 100.0f},
    };
    c->record = record_pick;
    for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++) {
        const int64_t n = vocabularies[v];
        float *logits = malloc((size_t)(MOST_SPANS * n) * sizeof *logits);
        if (!logits) {
            es_compare_fail(c, es_fail(ES_NO_MEMORY, "no memory for logits"));
            return;
        }
        for (int64_t i = 0; i < MOST_SPANS * n; i++) {
            const float u = es_compare_between(c, -1, 1);
            logits[i] = (float)(int)(u * u * u * u * u * 1500) / 64;
            if (i % 91 == 17) logits[i] = i % 2 ? NAN : -INFINITY;
        }
        c->shape[0] = n;
        c->b[P_LOGITS] = es_compare_bytes(c, logits, (size_t)(MOST_SPANS * n) * sizeof *logits);
        c->b[P_OUT] = es_compare_zeros(c, MOST_SPANS * sizeof(es_picked));
        free(logits);
        es_compare_steps s;
        es_compare_start(&s);
        for (int q = 0; q < MOST_SPANS; q++) es_compare_span(&s, q, 0, 1);
        s.batch.pick = ways;
        for (int again = 0; again < 2; again++) {
            es_compare_step(c, &s.batch);
            compare_picks(c, ways, MOST_SPANS);
        }
        es_compare_release(c, 0);
    }
}

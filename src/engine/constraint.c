/* constraint.c: see constraint.h. */
#include "engine/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "model/model.h"

void es_constraints_open(const es_model *model, int32_t count, es_constraints *c)
{
    *c = (es_constraints){.model = model, .count = count};
    pthread_mutex_init(&c->lock, NULL);
}

void es_constraints_close(es_constraints *c)
{
    if (!c->model) return;
    for (int32_t i = 0; c->matcher && i < c->count; i++) es_matcher_close(c->matcher[i]);
    es_token_trie_close(c->trie);
    free(c->matcher);
    free(c->owner);
    free(c->read);
    free(c->used);
    free(c->mask);
    pthread_mutex_destroy(&c->lock);
    *c = (es_constraints){0};
}

/* Under the lock. What was made stays when something fails: the next request goes on from there. */
static es_status make(es_constraints *c)
{
    const int32_t vocabulary = c->model->config.vocabulary;
    size_t stop_count;
    const es_token *stops = es_model_stop_tokens(c->model, &stop_count);
    if (!c->trie) ES_TRY(es_token_trie_open(es_model_tokenizer(c->model), stops, stop_count, vocabulary, &c->trie));
    if (!c->matcher) c->matcher = calloc((size_t)c->count, sizeof *c->matcher);
    if (!c->owner) c->owner = calloc((size_t)c->count, sizeof *c->owner);
    if (!c->read) c->read = calloc((size_t)c->count, sizeof *c->read);
    if (!c->used) c->used = calloc((size_t)c->count, sizeof *c->used);
    if (!c->mask) c->mask = calloc(1, ((size_t)vocabulary + 7) / 8);
    if (!c->matcher || !c->owner || !c->read || !c->used || !c->mask) return es_fail(ES_NO_MEMORY, "no memory for grammars");
    for (int32_t i = 0; i < c->count; i++)
        if (!c->matcher[i]) ES_TRY(es_matcher_open(c->trie, &c->matcher[i]));
    c->ready = true;
    return ES_OK;
}

es_status es_constraint_compile(es_constraints *c, const es_request *request, es_sequence *sequence)
{
    pthread_mutex_lock(&c->lock);
    const es_status made = c->ready ? ES_OK : make(c);
    pthread_mutex_unlock(&c->lock);
    ES_TRY(made);
    return es_grammar_compile(request->grammar, request->grammar_bytes, es_token_trie_writable(c->trie),
                              request->grammar_after ? ES_GRAMMAR_LINES_BEFORE : 0, &sequence->grammar);
}

static es_status read_token(const es_constraints *c, const es_sequence *s, es_matcher *matcher, int64_t index, es_token token)
{
    if (index != s->grammar_from || s->grammar_skip == 0) return es_matcher_take(matcher, token);
    size_t bytes = 0;
    const char *text = es_tokenizer_piece(es_model_tokenizer(c->model), token, &bytes);
    return es_matcher_take_bytes(matcher, text + s->grammar_skip, bytes - s->grammar_skip);
}

/* The matcher that stands behind the sequence's last token. */
static es_status borrow(es_constraints *c, const es_sequence *s, int32_t *number)
{
    int32_t at = 0;
    for (int32_t i = 0; i < c->count && c->owner[at] != s->id; i++)
        if (c->owner[i] == s->id || c->used[i] < c->used[at]) at = i;
    es_matcher *matcher = c->matcher[at];
    if (c->owner[at] != s->id) {
        c->owner[at] = s->id;
        c->read[at] = s->grammar_from;
        ES_TRY(es_matcher_start(matcher, s->grammar));
    }
    while (c->read[at] < s->count) {
        ES_TRY(read_token(c, s, matcher, c->read[at], s->tokens[c->read[at]]));
        c->read[at]++;
    }
    c->used[at] = ++c->uses;
    *number = at;
    return ES_OK;
}

static void set_stops(const es_constraints *c, const es_sequence *s, bool allowed)
{
    size_t count = 0;
    const es_token *own = es_model_stop_tokens(c->model, &count);
    for (size_t i = 0; i < count; i++) {
        const uint8_t bit = (uint8_t)(1 << (own[i] % 8));
        if (allowed && !s->request.ignore_eos)
            c->mask[own[i] / 8] |= bit;
        else
            c->mask[own[i] / 8] &= (uint8_t)~bit;
    }
    for (size_t i = 0; allowed && i < s->request.stop_token_count; i++)
        c->mask[s->request.stop_tokens[i] / 8] |= (uint8_t)(1 << (s->request.stop_tokens[i] % 8));
}

es_status es_constraint_allow(es_constraints *c, es_sequence *s, es_allowed *allowed)
{
    if (s->grammar_from < 0) { /* still in front of it: anything, but an end only if the grammar may be left out */
        *allowed = (es_allowed){.mask = s->request.grammar_optional ? NULL : c->mask, .may_stop = s->request.grammar_optional};
        memset(c->mask, 0xFF, ((size_t)c->model->config.vocabulary + 7) / 8);
        set_stops(c, s, false);
        return ES_OK;
    }
    int32_t at;
    ES_TRY(borrow(c, s, &at));
    ES_TRY(es_matcher_mask(c->matcher[at], c->mask));
    *allowed = (es_allowed){
        .mask = c->mask, .may_stop = es_matcher_is_complete(c->matcher[at]), .over = !es_matcher_can_go_on(c->matcher[at])};
    if (allowed->may_stop) set_stops(c, s, true);
    return ES_OK;
}

/* One more byte of the answer: how much of `after` it ends with now. */
static size_t advance_after(const char *after, size_t seen, char byte)
{
    char tail[128];
    memcpy(tail, after, seen);
    tail[seen] = byte;
    for (size_t n = seen + 1; n > 0; n--)
        if (memcmp(tail + seen + 1 - n, after, n) == 0) return n;
    return 0;
}

/* Looks for grammar_after in what comes before the grammar. */
static es_status look_for_begin(es_constraints *c, es_sequence *s, es_token token)
{
    const char *after = s->request.grammar_after;
    const size_t wanted = strlen(after);
    size_t bytes = 0, i = 0;
    const char *text = es_tokenizer_piece(es_model_tokenizer(c->model), token, &bytes);
    while (text && i < bytes && s->after_seen < wanted) s->after_seen = advance_after(after, s->after_seen, text[i++]);
    if (s->after_seen < wanted) return ES_OK;
    s->grammar_from = s->count + 1;
    if (i == bytes) return ES_OK;
    /* A token that reaches over: what is behind counts if it fits, else the grammar begins behind the token. */
    int32_t at;
    es_status status = borrow(c, s, &at);
    if (status == ES_OK && es_matcher_take_bytes(c->matcher[at], text + i, bytes - i) == ES_OK) {
        s->grammar_from = s->count;
        s->grammar_skip = i;
    } /* its being over is seen before the next token */
    if (status == ES_OK) c->read[at] = s->count + 1;
    return status;
}

es_status es_constraint_take(es_constraints *c, es_sequence *s, es_token token, bool *over)
{
    *over = false;
    if (s->grammar_from < 0) return look_for_begin(c, s, token);
    int32_t at;
    ES_TRY(borrow(c, s, &at));
    ES_TRY(read_token(c, s, c->matcher[at], s->count, token));
    c->read[at]++;
    *over = !es_matcher_can_go_on(c->matcher[at]);
    return ES_OK;
}

/* sequence.c: copying requests, and deciding how much of an answer's text can be sent. */
#include "engine/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"
#include "model/model.h"

#define MOST_STOPS 64
#define MOST_STOP_BYTES 1024
#define MOST_AFTER_BYTES 64
#define PIECE_ROOM 8192 /* most bytes that one token can add to the text */

es_status es_request_check(const es_model *model, int64_t context, const es_request *r)
{
    const int32_t vocabulary = model->config.vocabulary;
    if (r->prompt_count == 0) return es_fail(ES_INVALID, "the prompt is empty; it needs at least one token");
    if (r->prompt_count > (size_t)context || (int64_t)r->prompt_count + (r->max_tokens > 0) > context)
        return es_fail(ES_TOO_LONG, "the prompt has %zu tokens, and the context holds %" PRId64, r->prompt_count, context);
    if (r->max_tokens > context - (int64_t)r->prompt_count)
        return es_fail(ES_TOO_LONG, "the prompt has %zu tokens and up to %" PRId64 " more are asked for; the context holds %" PRId64,
                       r->prompt_count, r->max_tokens, context);
    for (size_t i = 0; i < r->prompt_count; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocabulary)
            return es_fail(ES_INVALID, "token %zu of the prompt is %d; the vocabulary has tokens 0 to %d", i, r->prompt[i],
                           vocabulary - 1);
    for (size_t i = 0; i < r->bias_count; i++)
        if (r->bias[i].token < 0 || r->bias[i].token >= vocabulary || r->bias[i].bias != r->bias[i].bias)
            return es_fail(ES_INVALID, "logit_bias names token %d; the vocabulary has tokens 0 to %d", r->bias[i].token,
                           vocabulary - 1);
    if (r->stop_count > MOST_STOPS) return es_fail(ES_INVALID, "%zu stop strings; at most %d are possible", r->stop_count, MOST_STOPS);
    for (size_t i = 0; i < r->stop_count; i++) {
        const size_t bytes = strlen(r->stop[i]);
        if (bytes == 0 || bytes > MOST_STOP_BYTES)
            return es_fail(ES_INVALID, "stop string %zu has %zu bytes; 1 to %d are possible", i, bytes, MOST_STOP_BYTES);
    }
    if (r->stop_count && !es_model_tokenizer(model))
        return es_fail(ES_UNSUPPORTED, "stop strings need a tokenizer, and the model has none");
    if (r->grammar && !es_model_tokenizer(model))
        return es_fail(ES_UNSUPPORTED, "a grammar needs a tokenizer, and the model has none");
    if (r->grammar_after && (strlen(r->grammar_after) == 0 || strlen(r->grammar_after) > MOST_AFTER_BYTES))
        return es_fail(ES_INVALID, "grammar_after has %zu bytes; 1 to %d are possible", strlen(r->grammar_after), MOST_AFTER_BYTES);
    if (r->top_logprobs < 0 || r->top_logprobs > ES_MOST_TOP_LOGPROBS)
        return es_fail(ES_INVALID, "top_logprobs: %d is not between 0 and %d", r->top_logprobs, ES_MOST_TOP_LOGPROBS);
    if ((unsigned)r->pooling > ES_POOLING_LAST) return es_fail(ES_INVALID, "there is no pooling %d", (int)r->pooling);
    if (r->pooling && (r->max_tokens != 0 || r->prompt_logprobs))
        return es_fail(ES_INVALID, "an embedding comes without an answer: max_tokens must be 0, without log-probabilities");
    return es_sampling_check(&r->sampling);
}

/* Hands out parts of one block; with no block yet it only counts. */
typedef struct carver {
    unsigned char *base;
    size_t used;
} carver;

static void *carve(carver *c, size_t count, size_t size)
{
    void *place = c->base ? c->base + c->used : NULL;
    c->used += (count * size + 15) / 16 * 16;
    return place;
}

static void copy_into(carver *c, const void *source, size_t count, size_t size, const void **place)
{
    void *copy = carve(c, count, size);
    if (copy && count) memcpy(copy, source, count * size);
    *place = copy;
}

/* The request's lists move into the block; sizes were bounded by es_request_check(). */
static es_sequence *carve_all(carver *c, const es_request *r, int64_t capacity, int64_t pages, int32_t hidden)
{
    es_sequence *s = carve(c, 1, sizeof *s);
    es_request copy = *r;
    es_token *tokens = carve(c, (size_t)capacity, sizeof *tokens);
    int32_t *table = carve(c, (size_t)pages, sizeof *table);
    copy_into(c, r->bias, r->bias_count, sizeof *r->bias, (const void **)&copy.bias);
    copy_into(c, r->stop_tokens, r->stop_token_count, sizeof *r->stop_tokens, (const void **)&copy.stop_tokens);
    if (r->grammar && r->grammar_after)
        copy_into(c, r->grammar_after, strlen(r->grammar_after) + 1, 1, (const void **)&copy.grammar_after);
    copy.grammar = NULL; /* it was compiled instead */
    const size_t pooled = r->pooling ? (size_t)hidden : 0;
    double *pool = carve(c, pooled, sizeof *pool);
    float *embedding = carve(c, pooled, sizeof *embedding);
    const char **stops = carve(c, r->stop_count, sizeof *stops);
    size_t longest = 0;
    for (size_t i = 0; i < r->stop_count; i++) {
        const size_t bytes = strlen(r->stop[i]);
        const void *place;
        copy_into(c, r->stop[i], bytes + 1, 1, &place);
        if (stops) stops[i] = place;
        if (bytes > longest) longest = bytes;
    }
    copy.stop = stops;
    const size_t held = r->stop_count ? longest + PIECE_ROOM : 0;
    char *text = carve(c, held, 1);
    if (!s) return NULL;
    *s = (es_sequence){.request = copy, .tokens = tokens, .capacity = capacity, .pages = table, .page_capacity = pages,
                       .slot = -1, .logits_next = r->prompt_logprobs ? 0 : r->logits_from, .held = text, .held_capacity = held, .longest_stop = longest};
    s->count = s->prompt_count = (int64_t)r->prompt_count;
    s->grammar_from = r->grammar_after ? -1 : s->prompt_count;
    memcpy(tokens, r->prompt, r->prompt_count * sizeof *tokens);
    s->request.prompt = tokens;
    if (pooled) {
        memset(pool, 0, pooled * sizeof *pool);
        s->pool = pool;
        s->embedding = embedding;
    }
    return s;
}

/* A conversation goes on after a message, and the next turn's history often differs inside the generation prompt (reasoning
 * is left out of it): so the states before the last few message beginnings are kept, and the one at the last-but-one token,
 * for the same prompt again. */
static void choose_stops(es_sequence *s, const es_model *model)
{
    int32_t n = ES_SEQUENCE_STOPS - 1;
    s->stop_at[n] = s->prompt_count - 1;
    for (int64_t i = s->prompt_count - 2; i > 0 && n > 0 && model->message_start != ES_NO_TOKEN; i--)
        if (s->tokens[i] == model->message_start) s->stop_at[--n] = i;
}

int64_t es_sequence_pages(const es_sequence *s, int32_t page)
{
    const int64_t next = s->count < s->capacity ? s->count + 1 : s->capacity;
    const int64_t pages = ((s->promised > next ? s->promised : next) + page - 1) / page;
    return pages < s->page_capacity ? pages : s->page_capacity;
}

bool es_sequence_reads_prompt(const es_sequence *s)
{
    const es_pooling pooling = s->request.pooling;
    if (pooling == ES_POOLING_CLS && s->logits_next == 0) return true;
    return (s->request.on_logits || s->request.prompt_logprobs || pooling == ES_POOLING_MEAN) && s->logits_next < s->prompt_count;
}

bool es_sequence_pools(const es_sequence *s, int64_t position)
{
    switch (s->request.pooling) {
    case ES_POOLING_MEAN: return position >= s->logits_next;
    case ES_POOLING_CLS: return position == 0 && s->logits_next == 0;
    case ES_POOLING_LAST: return position == s->prompt_count - 1;
    case ES_POOLING_NONE: break;
    }
    return false;
}

void es_sequence_pool(es_sequence *s, int64_t position, const float *state, int32_t hidden)
{
    const bool mean = s->request.pooling == ES_POOLING_MEAN;
    const double share = mean ? (double)s->prompt_count : 1;
    s->logits_next = position + 1;
    for (int32_t i = 0; i < hidden; i++) s->pool[i] += (double)state[i];
    if (mean && position + 1 < s->prompt_count) return;
    for (int32_t i = 0; i < hidden; i++) s->embedding[i] = (float)(s->pool[i] / share);
}

bool es_sequence_decodes(const es_sequence *s)
{
    return s->count > s->prompt_count && s->computed == s->count - 1;
}

int64_t es_sequence_until(const es_sequence *s, bool recurrent)
{
    if (!recurrent || es_sequence_decodes(s)) return s->count;
    int64_t until = (s->computed / ES_SEQUENCE_STRIDE + 1) * ES_SEQUENCE_STRIDE;
    if (until > s->count) until = s->count;
    for (int i = 0; i < ES_SEQUENCE_STOPS; i++)
        if (s->stop_at[i] > s->computed && s->stop_at[i] < until) until = s->stop_at[i];
    return until;
}

static bool at_stop(const es_sequence *s)
{
    for (int i = 0; i < ES_SEQUENCE_STOPS; i++)
        if (s->stop_at[i] == s->computed) return true;
    return false;
}

bool es_sequence_worth_keeping(const es_sequence *s)
{
    return s->computed % ES_SEQUENCE_STRIDE == 0 || s->computed - s->kept_at >= ES_SEQUENCE_SPACING || at_stop(s);
}

es_status es_sequence_open(const es_request *request, const es_sequence_limits *limits, es_sequence **sequence)
{
    ES_TRY(es_request_check(limits->model, limits->context, request));
    es_request r = *request;
    const int64_t rest = limits->context - (int64_t)r.prompt_count;
    const int64_t promise = r.max_tokens >= 0 ? r.max_tokens : limits->reserve < rest ? limits->reserve : rest;
    if (r.max_tokens < 0) r.max_tokens = rest;
    const int64_t capacity = (int64_t)r.prompt_count + r.max_tokens;
    const int64_t pages = limits->has_pages ? (capacity + limits->page - 1) / limits->page : 0;
    carver counter = {0};
    const int32_t hidden = limits->model->config.hidden;
    carve_all(&counter, &r, capacity, pages, hidden);
    carver c = {.base = calloc(1, counter.used)};
    if (!c.base) return es_fail(ES_NO_MEMORY, "no memory for a request of %" PRId64 " tokens", capacity);
    es_sequence *s = carve_all(&c, &r, capacity, pages, hidden);
    s->promised = s->prompt_count + promise;
    choose_stops(s, limits->model);
    const es_tokenizer *tokenizer = es_model_tokenizer(limits->model);
    if (tokenizer) {
        const es_status status = es_detokenizer_open(tokenizer, r.keep_special, &s->detokenizer);
        if (status != ES_OK) {
            free(s);
            return status;
        }
    }
    *sequence = s;
    return ES_OK;
}

void es_sequence_close(es_sequence *sequence)
{
    if (!sequence) return;
    es_grammar_close(sequence->grammar);
    if (sequence->detokenizer) es_detokenizer_close(sequence->detokenizer);
    free(sequence);
}

static const char *find_stop(const es_sequence *s, size_t *at)
{
    const char *found = NULL;
    for (size_t i = 0; i < s->request.stop_count; i++) {
        const char *stop = s->request.stop[i];
        const char *place = memmem(s->held, s->held_bytes, stop, strlen(stop));
        if (place && (!found || (size_t)(place - s->held) < *at)) {
            *at = (size_t)(place - s->held);
            found = stop;
        }
    }
    return found;
}

/* Bytes at the end of the held text that some stop string begins with. */
static size_t undecided(const es_sequence *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->request.stop_count; i++) {
        const char *stop = s->request.stop[i];
        size_t n = strlen(stop) - 1;
        if (n > s->held_bytes) n = s->held_bytes;
        while (n > most && memcmp(s->held + s->held_bytes - n, stop, n) != 0) n--;
        if (n > most) most = n;
    }
    return most;
}

es_status es_sequence_add_text(es_sequence *s, es_token token, bool visible, const char **text, size_t *bytes,
                               const char **stop)
{
    *text = "", *bytes = 0, *stop = NULL;
    if (!s->detokenizer || !visible) return ES_OK;
    const char *piece;
    size_t piece_bytes;
    ES_TRY(es_detokenizer_add(s->detokenizer, token, &piece, &piece_bytes));
    if (s->request.stop_count == 0) {
        *text = piece, *bytes = piece_bytes;
        return ES_OK;
    }
    /* What was sent by the last call leaves the buffer now: its caller had it until here. */
    const size_t keep = undecided(s);
    memmove(s->held, s->held + s->held_bytes - keep, keep);
    s->held_bytes = keep;
    if (piece_bytes > s->held_capacity - s->held_bytes)
        return es_fail(ES_INTERNAL, "a token of %zu bytes does not fit the stop-string buffer", piece_bytes);
    memcpy(s->held + s->held_bytes, piece, piece_bytes);
    s->held_bytes += piece_bytes;
    size_t at = 0;
    *stop = find_stop(s, &at);
    *text = s->held;
    *bytes = *stop ? at : s->held_bytes - undecided(s);
    return ES_OK;
}

void es_sequence_rest(es_sequence *s, const char **text, size_t *bytes)
{
    *text = "", *bytes = 0;
    if (!s->detokenizer) return;
    const size_t keep = s->request.stop_count ? undecided(s) : 0;
    const char *piece;
    size_t piece_bytes;
    if (es_detokenizer_finish(s->detokenizer, &piece, &piece_bytes) != ES_OK) piece_bytes = 0;
    if (s->request.stop_count == 0) {
        *text = piece_bytes ? piece : "", *bytes = piece_bytes;
        return;
    }
    if (piece_bytes > s->held_capacity - s->held_bytes) piece_bytes = 0;
    memcpy(s->held + s->held_bytes, piece, piece_bytes);
    *text = s->held + s->held_bytes - keep;
    *bytes = keep + piece_bytes;
    s->held_bytes += piece_bytes;
}

void es_sequence_send(const es_sequence *s, es_event *event)
{
    event->request = s->id;
    if (s->request.on_event) s->request.on_event(s->request.user, event);
}

void es_sequence_send_progress(const es_sequence *s)
{
    if (!s->request.progress) return;
    es_sequence_send(s, &(es_event){.kind = ES_EVENT_PROGRESS,
                                    .prompt_done = s->computed,
                                    .text = "",
                                    .prompt_tokens = s->prompt_count,
                                    .cached_tokens = s->cached});
}

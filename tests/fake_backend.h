/* fake_backend.h: an engine that is only arithmetic, for tests of what stands in front of one.
 *
 * A token is a byte. The answer to any prompt is "abc...z", one letter per token, then the end; with ignore_eos the alphabet
 * goes round. A prompt with "[[[some text]]]" in it is answered with that text (the last one), a byte per token. One thread makes a token for every live request, then sleeps `step_microseconds`. Templates print
 * "[role]content\n", reasoning behind "~" and names of called functions behind "!"; a part list is printed as JSON, as templates that know only strings would. */
#ifndef ES_TESTS_FAKE_BACKEND_H
#define ES_TESTS_FAKE_BACKEND_H

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "serve/backend.h"

enum { FAKE_MAX = 512 };

typedef struct fake_request {
    bool live, cancelled, paused;
    uint64_t key;
    int64_t prompt, most, made;
    bool ignore_eos, logprobs;
    int top;
    char *script; /* NULL: the alphabet */
} fake_request;

typedef struct fake_backend {
    es_backend_info info;
    es_event_fn on_event;
    void *user;
    pthread_mutex_t lock;
    pthread_t thread;
    bool started, closing;
    int step_microseconds, capacity;
    bool reads_parts; /* the template prints the texts of a part list */
    int fail_after; /* requests end in an error after this many tokens; 0 = never */
    fake_request requests[FAKE_MAX];
    es_engine_stats stats;
    int stats_asked; /* how often */
    int pauses;      /* how often a request was */
} fake_backend;

static const es_backend_info *fake_info(void *self)
{
    return &((fake_backend *)self)->info;
}

static es_status fake_render(void *self, const char *variables_json, char **text)
{
    const bool reads_parts = ((fake_backend *)self)->reads_parts;
    json_t *variables = json_loads(variables_json, 0, NULL);
    es_text out = {0};
    size_t i;
    json_t *message;
    json_array_foreach(json_object_get(variables, "messages"), i, message)
    {
        json_t *content = json_object_get(message, "content");
        es_text_printf(&out, "[%s]", json_string_value(json_object_get(message, "role")));
        char *printed = json_is_string(content) || reads_parts ? NULL : json_dumps(content, JSON_ENCODE_ANY);
        if (printed) es_text_puts(&out, printed);
        else if (json_is_string(content)) es_text_puts(&out, json_string_value(content));
        size_t part;
        json_t *value;
        json_array_foreach(printed ? NULL : content, part, value)
            es_text_puts(&out, json_string_value(json_object_get(value, "text")));
        free(printed);
        const char *reasoning = json_string_value(json_object_get(message, "reasoning_content"));
        if (reasoning) es_text_printf(&out, "~%s", reasoning);
        json_array_foreach(json_object_get(message, "tool_calls"), part, value)
            es_text_printf(&out, "!%s", json_string_value(json_object_get(json_object_get(value, "function"), "name")));
        es_text_putc(&out, '\n');
    }
    if (json_object_get(variables, "tools")) es_text_puts(&out, "[tools]\n");
    if (json_is_true(json_object_get(variables, "enable_thinking"))) es_text_puts(&out, "[think]\n");
    if (json_is_true(json_object_get(variables, "refuse"))) {
        json_decref(variables);
        es_text_free(&out);
        return es_fail(ES_INVALID, "the template refuses");
    }
    json_decref(variables);
    *text = out.data ? out.data : strdup("");
    return ES_OK;
}

static es_status fake_encode(void *self, const char *text, size_t bytes, unsigned flags, es_token **tokens, size_t *count)
{
    (void)self, (void)flags;
    *tokens = malloc((bytes + 1) * sizeof **tokens);
    for (size_t i = 0; i < bytes; i++) (*tokens)[i] = (unsigned char)text[i];
    *count = bytes;
    return ES_OK;
}

static const char *fake_piece(void *self, es_token token, size_t *bytes)
{
    (void)self;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    if (token < 'a' || token > 'z') return NULL;
    *bytes = 1;
    return &letters[token - 'a'];
}

static void fake_listen(void *self, es_event_fn on_event, void *user)
{
    fake_backend *fake = self;
    fake->on_event = on_event;
    fake->user = user;
}

/* What stands between the last "[[[" and "]]]" of a prompt; NULL without. */
static char *fake_script(const es_request *request)
{
    char *prompt = malloc(request->prompt_count + 1);
    for (size_t i = 0; i < request->prompt_count; i++) prompt[i] = (char)request->prompt[i];
    prompt[request->prompt_count] = '\0';
    char *begin = NULL, *script = NULL;
    for (char *at = prompt; (at = strstr(at, "[[[")); at += 3) begin = at + 3;
    char *end = begin ? strstr(begin, "]]]") : NULL;
    if (end) script = strndup(begin, (size_t)(end - begin));
    free(prompt);
    return script;
}

static es_status fake_submit(void *self, uint64_t key, const es_request *request)
{
    fake_backend *fake = self;
    es_status status = es_fail(ES_BUSY, "the fake engine is full");
    pthread_mutex_lock(&fake->lock);
    for (int i = 0; i < fake->capacity; i++) {
        if (fake->requests[i].live) continue;
        fake->requests[i] = (fake_request){true, false, false, key, (int64_t)request->prompt_count, request->max_tokens, 0,
                                           request->ignore_eos, request->logprobs, request->top_logprobs, fake_script(request)};
        fake->stats.running++;
        status = ES_OK;
        break;
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static void fake_cancel(void *self, uint64_t key)
{
    fake_backend *fake = self;
    pthread_mutex_lock(&fake->lock);
    for (int i = 0; i < FAKE_MAX; i++)
        if (fake->requests[i].live && fake->requests[i].key == key) fake->requests[i].cancelled = true;
    pthread_mutex_unlock(&fake->lock);
}

static void fake_pause(void *self, uint64_t key, bool paused)
{
    fake_backend *fake = self;
    pthread_mutex_lock(&fake->lock);
    for (int i = 0; i < FAKE_MAX; i++)
        if (fake->requests[i].live && fake->requests[i].key == key) fake->requests[i].paused = paused;
    if (paused) fake->pauses++;
    pthread_mutex_unlock(&fake->lock);
}

static es_engine_stats fake_stats(void *self)
{
    fake_backend *fake = self;
    pthread_mutex_lock(&fake->lock);
    const es_engine_stats stats = fake->stats;
    fake->stats_asked++;
    pthread_mutex_unlock(&fake->lock);
    return stats;
}

static void fake_end(fake_backend *fake, fake_request *r, es_event_kind kind, es_finish finish)
{
    es_event event = {.kind = kind, .request = r->key, .finish = finish, .prompt_tokens = r->prompt, .text = "",
                      .completion_tokens = r->made, .cached_tokens = r->prompt / 2, .status = ES_INTERNAL,
                      .message = kind == ES_EVENT_ERROR ? "the fake engine broke" : NULL};
    fake->on_event(fake->user, &event);
    free(r->script);
    r->live = false;
    fake->stats.running--;
    if (finish == ES_FINISH_CANCELLED) fake->stats.cancelled++;
    else if (kind == ES_EVENT_ERROR) fake->stats.failed++;
    else fake->stats.finished++;
}

static void fake_step(fake_backend *fake, fake_request *r)
{
    const es_token token = r->script ? (unsigned char)r->script[r->made] : 'a' + (es_token)(r->made % 26);
    const char letter = (char)token;
    const es_token_logprob top[2] = {{token, -0.25f}, {'z', -1.5f}};
    if (r->cancelled) fake_end(fake, r, ES_EVENT_DONE, ES_FINISH_CANCELLED);
    else if (r->paused) return;
    else if (fake->fail_after && r->made >= fake->fail_after) fake_end(fake, r, ES_EVENT_ERROR, ES_FINISH_STOP);
    else if (r->most >= 0 && r->made >= r->most) fake_end(fake, r, ES_EVENT_DONE, ES_FINISH_LENGTH);
    else if (r->script ? !token : !r->ignore_eos && r->made == 26) fake_end(fake, r, ES_EVENT_DONE, ES_FINISH_STOP);
    else {
        es_event event = {.kind = ES_EVENT_TOKEN, .request = r->key, .token = token, .text = &letter, .text_bytes = 1,
                          .logprob = -0.25f, .top = r->top ? top : NULL, .top_count = r->top > 2 ? 2 : r->top};
        r->made++;
        fake->stats.completion_tokens++;
        fake->on_event(fake->user, &event);
    }
}

static void *fake_run(void *self)
{
    fake_backend *fake = self;
    for (;;) {
        pthread_mutex_lock(&fake->lock);
        if (fake->closing) {
            for (int i = 0; i < FAKE_MAX; i++)
                if (fake->requests[i].live) fake_end(fake, &fake->requests[i], ES_EVENT_DONE, ES_FINISH_CANCELLED);
            pthread_mutex_unlock(&fake->lock);
            return NULL;
        }
        for (int i = 0; i < FAKE_MAX; i++)
            if (fake->requests[i].live) fake_step(fake, &fake->requests[i]);
        fake->stats.steps++;
        pthread_mutex_unlock(&fake->lock);
        usleep((useconds_t)fake->step_microseconds);
    }
}

static es_backend fake_open(fake_backend *fake)
{
    *fake = (fake_backend){
        .info = {.model = "fake", .fingerprint = "fp_fake", .kv_type = "q8_0", .context = 4096, .vocabulary = 256, .has_chat = true,
                 .has_tokenizer = true, .sampling = {.temperature = 0.7f, .top_p = 1, .repetition_penalty = 1}},
        .step_microseconds = 200, .capacity = FAKE_MAX};
    pthread_mutex_init(&fake->lock, NULL);
    return (es_backend){fake, fake_info, fake_render, fake_encode, fake_piece, fake_listen, fake_submit, fake_cancel,
                        fake_stats, fake_pause, NULL};
}

static inline void fake_start(fake_backend *fake)
{
    fake->started = pthread_create(&fake->thread, NULL, fake_run, fake) == 0;
}

static inline void fake_close(fake_backend *fake)
{
    pthread_mutex_lock(&fake->lock);
    fake->closing = true;
    pthread_mutex_unlock(&fake->lock);
    if (fake->started) pthread_join(fake->thread, NULL);
    pthread_mutex_destroy(&fake->lock);
}

#endif

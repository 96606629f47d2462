/* ask.c: requests as the phases need them, and what must be known of a server to make them: its context, whether it can be
 * kept from ending an answer, how many tokens a word is, how busy it says it is. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "check/phases.h"

double es_time_left(const es_trial *c)
{
    const double left = c->deadline - es_client_now(c->client);
    return left > 0 ? left : 0;
}

static void trace(const es_trial *c, const char *what, const char *data, size_t bytes)
{
    if (!c->options.trace) return;
    es_text line = {0};
    es_text_printf(&line, "%s %.*s", what, (int)(bytes < 4000 ? bytes : 4000), data ? data : "");
    if (line.data) c->options.trace(c->options.user, line.data);
    es_text_free(&line);
}

/* ---- questions ---- */

static void add_message(json_t *messages, const char *role, const char *content)
{
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", role, "content", content));
}

static json_t *prompt_of(const es_trial *c, const es_question *q)
{
    if (c->completions) {
        es_text text = {0};
        es_text_puts(&text, q->text);
        if (q->then) es_text_printf(&text, "%s\n%s", q->answered, q->then);
        json_t *prompt = json_stringn(text.data ? text.data : "", text.bytes);
        es_text_free(&text);
        return prompt;
    }
    json_t *messages = json_array();
    add_message(messages, "user", q->text);
    if (q->then) {
        add_message(messages, "assistant", q->answered);
        add_message(messages, "user", q->then);
    }
    return messages;
}

static char *body_of(const es_trial *c, const es_question *q)
{
    json_t *body = json_object();
    json_object_set_new(body, "model", json_string(c->model[0] ? c->model : "default"));
    json_object_set_new(body, c->completions ? "prompt" : "messages", prompt_of(c, q));
    json_object_set_new(body, "max_tokens", json_integer((json_int_t)q->max_tokens));
    json_object_set_new(body, "temperature", json_integer(0));
    if (q->stream) json_object_set_new(body, "stream", json_true());
    if (q->stream && !q->no_usage) json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    if (q->ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
    if (q->logprobs) json_object_set_new(body, "logprobs", c->completions ? json_integer(0) : json_true());
    if (q->stop) json_object_set_new(body, "stop", json_pack("[s]", q->stop));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

es_reply *es_trial_ask(es_trial *c, const es_question *question)
{
    char *body = body_of(c, question);
    es_message message = {.method = "POST",
                          .path = c->completions ? "/v1/completions" : "/v1/chat/completions",
                          .body = body ? body : "",
                          .bytes = body ? strlen(body) : 0,
                          .chat = !c->completions};
    trace(c, ">", message.body, message.bytes);
    es_reply *reply = es_client_send(c->client, &message);
    free(body);
    return reply;
}

es_reply *es_trial_fetch(es_trial *c, const char *path)
{
    return es_client_send(c->client, &(es_message){.method = "GET", .path = path});
}

bool es_trial_await(es_trial *c, es_trial_result *r, es_reply *reply)
{
    const bool ended = es_client_finish(c->client, reply, es_time_left(c));
    if (reply->status) c->reached = true;
    const es_text *text = reply->streamed ? &reply->transcript.text : &reply->body;
    trace(c, "<", text->data, text->bytes);
    if (!ended)
        es_fail_phase(r, "no whole answer within the phase's %.0f s", r->limit);
    else if (reply->problem[0])
        es_fail_phase(r, "%s broke off: %s", reply->status ? "an answer" : "a request", reply->problem);
    return ended && !reply->problem[0];
}

bool es_trial_await_answer(es_trial *c, es_trial_result *r, es_reply *reply)
{
    if (!es_trial_await(c, r, reply)) return false;
    const es_transcript *t = &reply->transcript;
    if (reply->status != 200)
        es_fail_phase(r, "status %d%s%s where an answer was due", reply->status, t->error_code[0] ? ", code " : "",
                      t->error_code);
    else if (t->fault[0])
        es_fail_phase(r, "%s", t->fault);
    return reply->status == 200 && !t->fault[0];
}

bool es_same_text(const es_text *a, const es_text *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

/* ---- what the server can do ---- */

bool es_can_ignore_eos(es_trial *c)
{
    if (c->asked_ignore_eos) return c->can_ignore_eos;
    c->asked_ignore_eos = true;
    es_reply *reply = es_trial_ask(c, &(es_question){.text = "Say yes.", .max_tokens = 40, .ignore_eos = true});
    es_client_finish(c->client, reply, es_time_left(c));
    /* a server that ignores the name ends with "stop" as soon as the model likes */
    c->can_ignore_eos = reply->status == 200 && strcmp(reply->transcript.finish, "length") == 0;
    es_client_drop(c->client, reply);
    return c->can_ignore_eos;
}

static int64_t member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) > 0 ? json_integer_value(value) : 0;
}

static json_t *get_json(es_trial *c, const char *path)
{
    es_reply *reply = es_trial_fetch(c, path);
    json_t *root = NULL;
    if (es_client_finish(c->client, reply, fmin(es_time_left(c), 10)) && reply->status == 200)
        root = json_loadb(reply->body.data ? reply->body.data : "", reply->body.bytes, 0, NULL);
    es_client_drop(c->client, reply);
    return root;
}

int64_t es_find_context(es_trial *c)
{
    if (c->asked_context) return c->context;
    c->asked_context = true;
    json_t *props = get_json(c, "/props"); /* where it is served, it tells one slot's share */
    c->context = member(json_object_get(props, "default_generation_settings"), "n_ctx");
    json_decref(props);
    if (c->context) return c->context;
    json_t *models = get_json(c, "/v1/models");
    const json_t *model = json_array_get(json_object_get(models, "data"), 0);
    static const char *const names[] = {"max_model_len", "context_length", "context_window", "max_context_length"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !c->context; i++) c->context = member(model, names[i]);
    json_decref(models);
    return c->context;
}

/* A line of Prometheus text: "name{labels} value". */
static int64_t metric(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n) {
        if (at != text && at[-1] != '\n') continue;
        const char *value = at + n;
        if (*value == '{') value = strchr(value, '}');
        if (!value || (*value != ' ' && *value != '}')) continue;
        const double x = strtod(value + 1, NULL);
        if (x >= 0 && x < 1e9) return (int64_t)x;
    }
    return -1;
}

static int64_t running_in_metrics(es_trial *c)
{
    static const char *const names[] = {"evenshare_requests_running", "vllm:num_requests_running", "sglang:num_running_reqs",
                                        "llamacpp:requests_processing"};
    es_reply *reply = es_trial_fetch(c, "/metrics");
    int64_t running = -1;
    if (es_client_finish(c->client, reply, fmin(es_time_left(c), 10)) && reply->status == 200 && reply->body.data)
        for (size_t i = 0; i < sizeof names / sizeof *names && running < 0; i++) running = metric(reply->body.data, names[i]);
    es_client_drop(c->client, reply);
    return running;
}

int64_t es_count_running(es_trial *c)
{
    json_t *health = get_json(c, "/health");
    const json_t *count = json_object_get(health, "running");
    int64_t running = json_is_integer(count) ? json_integer_value(count) : -1;
    json_decref(health);
    if (running >= 0) return running;
    json_t *slots = get_json(c, "/slots");
    if (json_is_array(slots)) {
        running = 0;
        for (size_t i = 0; i < json_array_size(slots); i++)
            running += json_is_true(json_object_get(json_array_get(slots, i), "is_processing"));
    }
    json_decref(slots);
    return running >= 0 ? running : running_in_metrics(c);
}

/* ---- documents ---- */

static const char *const who[] = {"miller", "captain", "gardener", "baker", "teacher", "smith", "weaver", "doctor"};
static const char *const did[] = {"counted", "carried", "found", "sold", "mended", "painted", "borrowed", "measured"};
static const char *const what[] = {"baskets", "lanterns", "ropes", "letters", "barrels", "candles", "apples", "stones"};
static const char *const where[] = {"bridge", "harbour", "market", "orchard", "tower", "station", "river", "library"};
enum { WORDS_OF_SENTENCE = 11 };

static void put_sentence(es_text *out, uint32_t seed, uint32_t number)
{
    const uint32_t key[2] = {seed, 0x6368656B}, counter[4] = {number, 0, 0, 0};
    const es_philox_block random = es_philox(key, counter);
    const uint32_t a = random.word[0], b = random.word[1];
    es_text_printf(out, "On day %u the %s %s %u %s near the %s. ", 1 + random.word[2] % 900, who[a % 8], did[a >> 8 & 7],
                   2 + random.word[3] % 90, what[b % 8], where[b >> 8 & 7]);
}

static void put_sentences(es_trial *c, int64_t sentences, es_text *out)
{
    const uint32_t seed = c->seed++;
    for (int64_t i = 0; i < sentences; i++) put_sentence(out, seed, (uint32_t)i);
}

static int64_t count_prompt(es_trial *c, int64_t sentences)
{
    es_text text = {0};
    put_sentences(c, sentences, &text);
    es_reply *reply = es_trial_ask(c, &(es_question){.text = text.data ? text.data : "", .max_tokens = 1});
    es_client_finish(c->client, reply, es_time_left(c));
    const int64_t tokens = reply->status == 200 ? reply->transcript.prompt_tokens : -1;
    es_client_drop(c->client, reply);
    es_text_free(&text);
    return tokens;
}

/* Two prompts tell what a sentence takes and what the template adds. */
static bool measure_words(es_trial *c)
{
    if (c->tokens_per_word > 0) return true;
    enum { FEW = 2, MANY = 12 };
    const int64_t few = count_prompt(c, FEW), many = count_prompt(c, MANY);
    if (few <= 0 || many <= few) return false;
    c->tokens_per_word = (double)(many - few) / ((MANY - FEW) * WORDS_OF_SENTENCE);
    c->tokens_around = fmax((double)few - FEW * WORDS_OF_SENTENCE * c->tokens_per_word, 0);
    return true;
}

bool es_write_document(es_trial *c, int64_t tokens, es_text *out)
{
    if (!measure_words(c)) return false;
    const double words = ((double)tokens - c->tokens_around) / c->tokens_per_word;
    put_sentences(c, (int64_t)fmax(words / WORDS_OF_SENTENCE, 1), out);
    return !out->failed;
}

int64_t es_long_prompt(es_trial *c, int64_t room)
{
    const int64_t context = es_find_context(c);
    int64_t tokens = c->options.prompt;
    /* sentences differ by a few tokens, so a tenth is left over */
    if (context > 0 && tokens > (context - room) * 9 / 10) tokens = (context - room) * 9 / 10;
    return tokens > 64 ? tokens : 64;
}

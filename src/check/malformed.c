/* malformed.c: bodies that no server can answer. Each must get a 4xx with an error object, in time, and harm nobody. */
#include <stdlib.h>
#include <string.h>

#include "check/phases.h"

typedef struct nonsense {
    const char *name, *body;
    size_t bytes; /* 0: strlen(body) */
    int repeat;   /* write the body so often */
} nonsense;

#define SAY "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"prompt\":\"Hi\",\"max_tokens\":2"

static const nonsense table[] = {
    {"nothing", "", 0, 1},
    {"a word", "hello", 0, 1},
    {"a lone brace", "{", 0, 1},
    {"an array", "[]", 0, 1},
    {"null", "null", 0, 1},
    {"a number", "17", 0, 1},
    {"JSON cut short", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi", 0, 1},
    {"text after the JSON", "{" SAY "} and more", 0, 1},
    {"two objects", "{" SAY "}{" SAY "}", 0, 1},
    {"no messages", "{\"max_tokens\":2}", 0, 1},
    {"messages as a string", "{\"messages\":\"Hi\",\"prompt\":{},\"max_tokens\":2}", 0, 1},
    {"messages as a number", "{\"messages\":7,\"prompt\":true,\"max_tokens\":2}", 0, 1},
    {"a message as a string", "{\"messages\":[\"Hi\"],\"prompt\":[{}],\"max_tokens\":2}", 0, 1},
    {"a message without a role", "{\"messages\":[{\"content\":\"Hi\"}],\"prompt\":[[{}]],\"max_tokens\":2}", 0, 1},
    {"a role that is a number", "{\"messages\":[{\"role\":1,\"content\":\"Hi\"}],\"prompt\":{},\"max_tokens\":2}", 0, 1},
    {"content as a number", "{\"messages\":[{\"role\":\"user\",\"content\":5}],\"prompt\":{},\"max_tokens\":2}", 0, 1},
    {"max_tokens as a word",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"prompt\":\"Hi\",\"max_tokens\":\"many\"}", 0, 1},
    {"max_tokens as an object",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"prompt\":\"Hi\",\"max_tokens\":{}}", 0, 1},
    {"temperature as a word", "{" SAY ",\"temperature\":\"hot\"}", 0, 1},
    {"temperature past every number", "{" SAY ",\"temperature\":1e999}", 0, 1},
    {"top_p as an array", "{" SAY ",\"top_p\":[1]}", 0, 1},
    {"stop as an object", "{" SAY ",\"stop\":{\"a\":1}}", 0, 1},
    {"stream as an object", "{" SAY ",\"stream\":{\"a\":1}}", 0, 1},
    {"bytes that are no UTF-8",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\xc0\"}],\"prompt\":\"\xff\xfe\",\"max_tokens\":2}", 0, 1},
    {"a zero byte", "{\"messages\":\0[]}", 16, 1},
    {"brackets 200,000 deep", "[", 0, 200000},
    {"objects 100,000 deep", "{\"messages\":", 0, 100000},
};
enum { TABLE = sizeof table / sizeof *table };
#undef SAY

static es_reply *send_nonsense(es_trial *c, const nonsense *row)
{
    es_text body = {0};
    const size_t bytes = row->bytes ? row->bytes : strlen(row->body);
    for (int i = 0; i < row->repeat; i++) es_text_append(&body, row->body, bytes);
    es_reply *reply =
        es_client_send(c->client, &(es_message){.method = "POST",
                                                .path = c->completions ? "/v1/completions" : "/v1/chat/completions",
                                                .body = body.data ? body.data : "",
                                                .bytes = body.bytes,
                                                .chat = !c->completions});
    es_text_free(&body);
    return reply;
}

static bool judge(es_trial *c, es_trial_result *r, const nonsense *row)
{
    es_reply *reply = send_nonsense(c, row);
    const bool ended = es_client_finish(c->client, reply, es_time_left(c) < 20 ? es_time_left(c) : 20);
    bool good = false;
    if (!ended)
        es_fail_phase(r, "no answer to this body: %s", row->name);
    else if (!reply->status)
        es_fail_phase(r, "the connection broke at this body: %s (%s)", row->name, reply->problem);
    else if (reply->status < 400 || reply->status >= 500)
        es_fail_phase(r, "status %d for this body: %s", reply->status, row->name);
    else if (!reply->transcript.error || !reply->transcript.error_message)
        es_fail_phase(r, "status %d without an error object for this body: %s", reply->status, row->name);
    else
        good = true;
    es_client_drop(c->client, reply);
    return good;
}

void es_phase_malformed(es_trial *c, es_trial_result *r)
{
    int good = 0;
    for (size_t i = 0; i < TABLE && es_time_left(c) > 0; i++) good += judge(c, r, &table[i]);
    es_trial_figure_add(r, "bodies", TABLE);
    es_trial_figure_add(r, "refused_well", good);
    es_reply *reply = es_trial_ask(c, &(es_question){.text = "Say yes.", .max_tokens = 2});
    es_trial_await_answer(c, r, reply);
}

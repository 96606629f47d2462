/* endpoints.c: what each path does. The small ones answer at once; all that reads a body goes to a worker first. */
#include <stdlib.h>
#include <string.h>

#include "serve/page.h"
#include "serve/server_state.h"
#include "serve/strict_json.h"

/* The page asks for the key itself, so anybody may have it. It may not be framed, and knows no other server. */
void es_serve_index(es_server *server, es_http_connection *connection)
{
    (void)server;
    es_http_add_header(connection, "Content-Security-Policy", es_page_policy);
    es_http_add_header(connection, "X-Frame-Options", "DENY");
    es_http_add_header(connection, "Referrer-Policy", "no-referrer");
    es_http_add_header(connection, "Cross-Origin-Opener-Policy", "same-origin");
    es_http_add_header(connection, "Cross-Origin-Resource-Policy", "same-origin");
    es_http_add_header(connection, "Cache-Control", "no-cache");
    es_http_reply(connection, 200, "text/html; charset=utf-8", (const char *)es_page_html, es_page_bytes);
}

static json_t *model_json(const es_server *server)
{
    const int64_t context = server->backend.info(server->backend.self)->context;
    json_t *model = json_object();
    json_object_set_new(model, "id", es_json_text(server->api.alias, strlen(server->api.alias)));
    json_object_set_new(model, "object", json_string("model"));
    json_object_set_new(model, "created", json_integer((json_int_t)server->started));
    json_object_set_new(model, "owned_by", json_string("evenshare"));
    /* what Anthropic's clients read of a model */
    char since[32];
    struct tm t;
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&server->started, &t));
    json_object_set_new(model, "type", json_string("model"));
    json_object_set_new(model, "display_name", es_json_text(server->api.alias, strlen(server->api.alias)));
    json_object_set_new(model, "created_at", json_string(since));
    json_object_set_new(model, "max_model_len", json_integer(context));
    return model;
}

void es_serve_models(es_server *server, es_http_connection *connection)
{
    json_t *data = json_array();
    json_array_append_new(data, model_json(server));
    json_t *list = json_object();
    json_object_set_new(list, "object", json_string("list"));
    json_object_set_new(list, "data", data);
    json_object_set_new(list, "has_more", json_false());
    json_object_set_new(list, "first_id", es_json_text(server->api.alias, strlen(server->api.alias)));
    json_object_set_new(list, "last_id", es_json_text(server->api.alias, strlen(server->api.alias)));
    es_server_reply_json(connection, 200, list);
}

void es_serve_model(es_server *server, es_http_connection *connection)
{
    const char *name = es_http_get_request(connection)->path + strlen("/v1/models/");
    if (strcmp(name, server->api.alias) == 0) {
        es_server_reply_json(connection, 200, model_json(server));
        return;
    }
    es_api_error error;
    es_api_refuse(&error, "model", "there is no such model here; the one that is: \"%s\"", server->api.alias);
    error.status = 404;
    error.code = "model_not_found";
    es_server_reply_error(server, connection, &error);
}

/* On a worker. */
static void read_call(es_task *task)
{
    es_reading *reading = (es_reading *)task;
    const es_api_context *api = &reading->server->api;
    const char *body = reading->body.data ? reading->body.data : "";
    if (reading->kind >= ES_CALL_COUNT_TOKENS)
        reading->reply = es_query_run(api, reading->kind, body, reading->body.bytes, &reading->error);
    else
        reading->parsed = es_call_parse(api, reading->kind, body, reading->body.bytes, &reading->call, &reading->error);
    es_text_free(&reading->body);
    es_inbox_put_letter(reading->server->inbox, &reading->letter);
}

void es_serve_call(es_server *server, es_http_connection *connection, es_call_kind kind)
{
    es_answer *answer = es_answer_new(&server->api, &server->metrics, connection, kind, server->next_serial, server->unique);
    es_reading *reading = calloc(1, sizeof *reading);
    es_status status = answer && reading ? ES_OK : es_fail(ES_NO_MEMORY, "out of memory");
    if (status == ES_OK) {
        *reading = (es_reading){.task = {NULL, read_call}, .server = server, .kind = kind, .serial = server->next_serial};
        es_text *body = es_http_get_body(connection);
        reading->body = *body;
        *body = (es_text){0};
        status = es_workers_put(server->workers, &reading->task);
        if (status != ES_OK) es_text_free(&reading->body);
    }
    if (status != ES_OK) {
        es_api_error error;
        es_api_refuse_status(&error, status);
        es_answer_free(answer);
        free(reading);
        es_server_reply_error(server, connection, &error);
        return;
    }
    server->next_serial++;
    es_http_set_user(connection, answer);
    es_server_add_answer(server, answer);
    atomic_fetch_add_explicit(&server->metrics.received, 1, memory_order_relaxed);
}

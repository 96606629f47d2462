/* props.c: /props, what clients of llama.cpp's server ask before they begin: the context, the defaults, the template. */
#include <string.h>

#include "serve/server_state.h"
#include "serve/strict_json.h"
#include "text/answer_format.h"

static json_t *params_json(const es_sampling *s)
{
    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i}", "temperature", (double)s->temperature, "top_k", (int)s->top_k,
                     "top_p", (double)s->top_p, "min_p", (double)s->min_p, "repeat_penalty", (double)s->repetition_penalty,
                     "presence_penalty", (double)s->presence_penalty, "frequency_penalty", (double)s->frequency_penalty,
                     "max_tokens", -1);
}

static json_t *text_or_null(const char *text)
{
    return text ? es_json_text(text, strlen(text)) : json_null();
}

void es_serve_props(es_server *server, es_http_connection *connection)
{
    const es_backend_info *info = server->backend.info(server->backend.self);
    json_t *settings = json_object(), *props = json_object();
    json_object_set_new(settings, "n_ctx", json_integer(info->context));
    json_object_set_new(settings, "params", params_json(&info->sampling));
    json_object_set_new(props, "default_generation_settings", settings);
    json_object_set_new(props, "model_alias", text_or_null(server->api.alias));
    json_object_set_new(props, "model_path", text_or_null(info->model));
    json_object_set_new(props, "n_vocab", json_integer(info->vocabulary));
    json_object_set_new(props, "chat_template", text_or_null(info->chat_template));
    json_object_set_new(props, "reasoning_parser", json_string(es_reasoning_form_name(server->api.format.reasoning)));
    json_object_set_new(props, "tool_parser", json_string(es_tool_form_name(server->api.format.tools)));
    json_object_set_new(props, "modalities", json_pack("{s:b, s:b}", "vision", 0, "audio", 0));
    json_object_set_new(props, "build_info", json_string("evenshare " ES_VERSION));
    json_object_set_new(props, "system_fingerprint", text_or_null(info->fingerprint));
    json_object_set_new(props, "kv_type", text_or_null(info->kv_type));
    es_server_reply_json(connection, 200, props);
}

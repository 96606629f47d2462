/* answer_messages.c: answers in the shapes of Anthropic's Messages API. A block of the message is a block here too. */
#include <string.h>

#include "serve/answer.h"
#include "serve/strict_json.h"

static const char *error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

json_t *es_messages_error_json(const es_api_error *error)
{
    json_t *inner = json_object();
    json_object_set_new(inner, "type", json_string(error_type(error->status)));
    json_object_set_new(inner, "message", es_json_text(error->message, strlen(error->message)));
    json_t *outer = json_object();
    json_object_set_new(outer, "type", json_string("error"));
    json_object_set_new(outer, "error", inner);
    return outer;
}

static const char *stop_reason(const es_choice *choice)
{
    if (choice->finish == ES_FINISH_LENGTH) return "max_tokens";
    if (choice->stop_string) return "stop_sequence";
    return choice->message.call_count ? "tool_use" : "end_turn";
}

/* What was found in the cache counts apart here. */
static json_t *usage_json(const es_answer *answer)
{
    const es_usage u = es_answer_usage(answer);
    json_t *usage = json_object();
    json_object_set_new(usage, "input_tokens", json_integer(u.prompt - u.cached));
    json_object_set_new(usage, "cache_creation_input_tokens", json_integer(0));
    json_object_set_new(usage, "cache_read_input_tokens", json_integer(u.cached));
    json_object_set_new(usage, "output_tokens", json_integer(u.completion));
    return usage;
}

static json_t *block_text(const es_block *block)
{
    return es_json_text(block->text.data ? block->text.data : "", block->text.bytes);
}

/* A block as it begins, or with all that it holds. */
static json_t *block_json(const es_block *block, bool begins)
{
    json_t *json = json_object();
    if (block->kind == ES_PART_CALL) {
        /* arguments that were cut off are no object: then there are none, and stop_reason says why */
        json_t *input = begins || !block->text.bytes ? NULL : json_loadb(block->text.data, block->text.bytes, 0, NULL);
        json_object_set_new(json, "type", json_string("tool_use"));
        json_object_set_new(json, "id", json_string(block->id));
        json_object_set_new(json, "name", es_json_text(block->name.data, block->name.bytes));
        json_object_set_new(json, "input", input ? input : json_object());
        return json;
    }
    const bool thinks = block->kind == ES_PART_REASONING;
    json_object_set_new(json, "type", json_string(thinks ? "thinking" : "text"));
    json_object_set_new(json, thinks ? "thinking" : "text", begins ? json_string("") : block_text(block));
    if (thinks) json_object_set_new(json, "signature", json_string(""));
    return json;
}

static json_t *message_json(const es_answer *answer, json_t *content, const es_choice *ended)
{
    json_t *message = json_object();
    json_object_set_new(message, "id", json_string(answer->id));
    json_object_set_new(message, "type", json_string("message"));
    json_object_set_new(message, "role", json_string("assistant"));
    json_object_set_new(message, "model", es_json_text(answer->api->alias, strlen(answer->api->alias)));
    json_object_set_new(message, "content", content);
    json_object_set_new(message, "stop_reason", ended ? json_string(stop_reason(ended)) : json_null());
    json_object_set_new(message, "stop_sequence", ended && ended->stop_string ? json_string(ended->stop_string) : json_null());
    json_object_set_new(message, "usage", usage_json(answer));
    return message;
}

static json_t *event(const char *type)
{
    json_t *json = json_object();
    json_object_set_new(json, "type", json_string(type));
    return json;
}

static void send_event(es_answer *answer, json_t *json)
{
    es_answer_send(answer, json_string_value(json_object_get(json, "type")), json);
}

static void start(es_answer *answer)
{
    json_t *json = event("message_start");
    json_object_set_new(json, "message", message_json(answer, json_array(), NULL));
    send_event(answer, json);
}

static json_t *block_event(const char *type, size_t index)
{
    json_t *json = event(type);
    json_object_set_new(json, "index", json_integer((json_int_t)index));
    return json;
}

static void close_block(es_answer *answer, es_choice *choice)
{
    if (choice->open_blocks > choice->closed_blocks)
        send_event(answer, block_event("content_block_stop", choice->closed_blocks++));
}

static void open_block(es_answer *answer, es_choice *choice, size_t index)
{
    close_block(answer, choice);
    json_t *json = block_event("content_block_start", index);
    json_object_set_new(json, "content_block", block_json(&choice->message.blocks[index], true));
    choice->open_blocks = index + 1;
    send_event(answer, json);
}

static void send_piece(es_answer *answer, es_choice *choice, const es_piece *piece)
{
    static const char *const types[] = {"thinking_delta", "text_delta", NULL, "input_json_delta", NULL};
    static const char *const names[] = {"thinking", "text", NULL, "partial_json", NULL};
    if (piece->block >= choice->open_blocks) open_block(answer, choice, piece->block);
    if (!types[piece->part]) return;
    json_t *delta = event(types[piece->part]);
    json_object_set_new(delta, names[piece->part], es_json_text(es_piece_text(&choice->message, piece), piece->bytes));
    json_t *json = block_event("content_block_delta", piece->block);
    json_object_set_new(json, "delta", delta);
    send_event(answer, json);
}

static void more(es_answer *answer, size_t index)
{
    es_choice *choice = &answer->choices[index];
    for (size_t i = 0; i < choice->message.piece_count; i++) send_piece(answer, choice, &choice->message.pieces[i]);
}

static void end(es_answer *answer, size_t index)
{
    es_choice *choice = &answer->choices[index];
    close_block(answer, choice);
    json_t *delta = json_object();
    json_object_set_new(delta, "stop_reason", json_string(stop_reason(choice)));
    json_object_set_new(delta, "stop_sequence", choice->stop_string ? json_string(choice->stop_string) : json_null());
    json_t *json = event("message_delta");
    json_object_set_new(json, "delta", delta);
    json_object_set_new(json, "usage", usage_json(answer));
    send_event(answer, json);
}

static void finish(es_answer *answer)
{
    send_event(answer, event("message_stop"));
}

static void fail(es_answer *answer, const es_api_error *error)
{
    send_event(answer, es_messages_error_json(error));
}

static json_t *whole(const es_answer *answer)
{
    const es_choice *choice = &answer->choices[0];
    json_t *content = json_array();
    for (size_t i = 0; i < choice->message.block_count; i++)
        json_array_append_new(content, block_json(&choice->message.blocks[i], false));
    return message_json(answer, content, choice);
}

const es_shape es_shape_messages = {start, NULL, more, end, finish, fail, whole, es_messages_error_json, NULL};

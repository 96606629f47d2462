/* answer_responses.c: answers in the shapes of OpenAI's Responses API. A block of the message is an item of the output. */
#include <stdio.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/strict_json.h"

static json_t *usage_json(const es_answer *answer)
{
    const es_usage u = es_answer_usage(answer);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u.prompt, "input_tokens_details",
                     "cached_tokens", (json_int_t)u.cached, "output_tokens", (json_int_t)u.completion, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)u.reasoning, "total_tokens", (json_int_t)(u.prompt + u.completion));
}

/* "msg_", "rs_" or "fc_" and the answer's own digits. */
static json_t *item_id(const es_answer *answer, const es_block *block, size_t index)
{
    char id[64];
    const char *prefix = block->kind == ES_PART_CALL ? "fc" : block->kind == ES_PART_REASONING ? "rs" : "msg";
    snprintf(id, sizeof id, "%s_%s%02zx", prefix, strchr(answer->id, '_') + 1, index);
    return json_string(id);
}

static json_t *text_json(const es_text *text)
{
    return es_json_text(text->data ? text->data : "", text->bytes);
}

static json_t *part_json(const es_block *block, bool begins)
{
    json_t *part = json_object();
    const bool thinks = block->kind == ES_PART_REASONING;
    json_object_set_new(part, "type", json_string(thinks ? "reasoning_text" : "output_text"));
    json_object_set_new(part, "text", begins ? json_string("") : text_json(&block->text));
    if (thinks) return part;
    json_object_set_new(part, "annotations", json_array());
    json_object_set_new(part, "logprobs", json_array());
    return part;
}

/* An item as it begins, or with all that it holds. */
static json_t *item_json(const es_answer *answer, const es_block *block, size_t index, bool begins)
{
    json_t *item = json_object();
    const bool whole = answer->choices[0].finish != ES_FINISH_LENGTH || index + 1 < answer->choices[0].message.block_count;
    json_object_set_new(item, "id", item_id(answer, block, index));
    if (block->kind == ES_PART_CALL) {
        json_object_set_new(item, "type", json_string("function_call"));
        json_object_set_new(item, "call_id", json_string(block->id));
        json_object_set_new(item, "name", text_json(&block->name));
        json_object_set_new(item, "arguments", begins ? json_string("") : text_json(&block->text));
    } else {
        json_t *content = json_array();
        if (!begins) json_array_append_new(content, part_json(block, false));
        json_object_set_new(item, "type", json_string(block->kind == ES_PART_REASONING ? "reasoning" : "message"));
        if (block->kind == ES_PART_REASONING)
            json_object_set_new(item, "summary", json_array());
        else
            json_object_set_new(item, "role", json_string("assistant"));
        json_object_set_new(item, "content", content);
    }
    json_object_set_new(item, "status", json_string(begins ? "in_progress" : whole ? "completed" : "incomplete"));
    return item;
}

/* The response as it stands; `status` "in_progress" has no output yet. */
static json_t *response_json(const es_answer *answer, const char *status, const es_api_error *error)
{
    const bool ended = strcmp(status, "completed") == 0 || strcmp(status, "incomplete") == 0;
    json_t *response = json_object(), *output = json_array();
    json_object_set_new(response, "id", json_string(answer->id));
    json_object_set_new(response, "object", json_string("response"));
    json_object_set_new(response, "created_at", json_integer(answer->created));
    json_object_set_new(response, "status", json_string(status));
    json_object_set_new(response, "error",
                        error ? json_pack("{s:s, s:o}", "code", "server_error", "message",
                                          es_json_text(error->message, strlen(error->message)))
                              : json_null());
    json_object_set_new(response, "incomplete_details",
                        strcmp(status, "incomplete") == 0 ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    json_object_set_new(response, "model", es_json_text(answer->api->alias, strlen(answer->api->alias)));
    const es_message *message = &answer->choices[0].message;
    for (size_t i = 0; ended && i < message->block_count; i++)
        json_array_append_new(output, item_json(answer, &message->blocks[i], i, false));
    json_object_set_new(response, "output", output);
    json_object_update(response, answer->call.echo);
    json_object_set_new(response, "usage", ended ? usage_json(answer) : json_null());
    return response;
}

static const char *status_of(const es_answer *answer)
{
    return answer->choices[0].finish == ES_FINISH_LENGTH ? "incomplete" : "completed";
}

/* ---- a stream ---- */

static json_t *new_event(es_answer *answer, const char *type)
{
    json_t *json = json_object();
    json_object_set_new(json, "type", json_string(type));
    json_object_set_new(json, "sequence_number", json_integer(answer->events++));
    return json;
}

static void send_event(es_answer *answer, json_t *json)
{
    es_answer_send(answer, json_string_value(json_object_get(json, "type")), json);
}

static void send_response(es_answer *answer, const char *type, const char *status, const es_api_error *error)
{
    json_t *json = new_event(answer, type);
    json_object_set_new(json, "response", response_json(answer, status, error));
    send_event(answer, json);
}

static void start(es_answer *answer)
{
    send_response(answer, "response.created", "in_progress", NULL);
    send_response(answer, "response.in_progress", "in_progress", NULL);
}

/* An event about item number `index`. */
static json_t *item_event(es_answer *answer, const char *type, size_t index)
{
    const es_block *block = &answer->choices[0].message.blocks[index];
    json_t *json = new_event(answer, type);
    json_object_set_new(json, "item_id", item_id(answer, block, index));
    json_object_set_new(json, "output_index", json_integer((json_int_t)index));
    if (block->kind != ES_PART_CALL) json_object_set_new(json, "content_index", json_integer(0));
    return json;
}

static void send_item(es_answer *answer, const char *type, size_t index, bool begins)
{
    json_t *json = new_event(answer, type);
    json_object_set_new(json, "output_index", json_integer((json_int_t)index));
    json_object_set_new(json, "item", item_json(answer, &answer->choices[0].message.blocks[index], index, begins));
    send_event(answer, json);
}

static void send_part(es_answer *answer, const char *type, size_t index, bool begins)
{
    json_t *json = item_event(answer, type, index);
    json_object_set_new(json, "part", part_json(&answer->choices[0].message.blocks[index], begins));
    send_event(answer, json);
}

static void close_item(es_answer *answer)
{
    es_choice *choice = &answer->choices[0];
    if (choice->closed_blocks == choice->open_blocks) return;
    const size_t index = choice->closed_blocks++;
    const es_block *block = &choice->message.blocks[index];
    if (block->kind == ES_PART_CALL) {
        json_t *json = item_event(answer, "response.function_call_arguments.done", index);
        json_object_set_new(json, "name", text_json(&block->name));
        json_object_set_new(json, "arguments", text_json(&block->text));
        send_event(answer, json);
    } else {
        const bool thinks = block->kind == ES_PART_REASONING;
        json_t *json = item_event(answer, thinks ? "response.reasoning_text.done" : "response.output_text.done", index);
        json_object_set_new(json, "text", text_json(&block->text));
        if (!thinks) json_object_set_new(json, "logprobs", json_array());
        send_event(answer, json);
        send_part(answer, "response.content_part.done", index, false);
    }
    send_item(answer, "response.output_item.done", index, false);
}

static void open_item(es_answer *answer, size_t index)
{
    es_choice *choice = &answer->choices[0];
    close_item(answer);
    choice->open_blocks = index + 1;
    send_item(answer, "response.output_item.added", index, true);
    if (choice->message.blocks[index].kind != ES_PART_CALL) send_part(answer, "response.content_part.added", index, true);
}

static void more(es_answer *answer, size_t index)
{
    static const char *const types[] = {"response.reasoning_text.delta", "response.output_text.delta", NULL,
                                        "response.function_call_arguments.delta", NULL};
    es_choice *choice = &answer->choices[index];
    for (size_t i = 0; i < choice->message.piece_count; i++) {
        const es_piece *piece = &choice->message.pieces[i];
        if (piece->block >= choice->open_blocks) open_item(answer, piece->block);
        if (!types[piece->part]) continue;
        json_t *json = item_event(answer, types[piece->part], piece->block);
        json_object_set_new(json, "delta", es_json_text(es_piece_text(&choice->message, piece), piece->bytes));
        if (piece->part == ES_PART_CONTENT) json_object_set_new(json, "logprobs", json_array());
        send_event(answer, json);
    }
}

static void end(es_answer *answer, size_t index)
{
    (void)index;
    close_item(answer);
}

static void finish(es_answer *answer)
{
    const char *status = status_of(answer);
    send_response(answer, strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete", status, NULL);
}

static void fail(es_answer *answer, const es_api_error *error)
{
    send_response(answer, "response.failed", "failed", error);
}

static json_t *whole(const es_answer *answer)
{
    return response_json(answer, status_of(answer), NULL);
}

const es_shape es_shape_responses = {start, NULL, more, end, finish, fail, whole, es_api_error_json, NULL};

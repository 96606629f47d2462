/* call.h: a request of the API, read and checked: from JSON to what the engine needs.
 *
 *   es_call call;
 *   es_api_error error;
 *   if (!es_call_parse(&context, ES_CALL_CHAT, body, bytes, &call, &error)) ... // answer error.status with its sentence
 *   ...
 *   es_call_free(&call);
 *
 * Reading, templating and tokenising can take long for a long conversation, so all of it happens here, on a worker thread,
 * and touches neither sockets nor the engine's step thread. */
#ifndef ES_SERVE_CALL_H
#define ES_SERVE_CALL_H

#include <jansson.h>

#include "base/error.h"
#include "base/text.h"
#include "serve/backend.h"
#include "text/answer_parser.h"

enum { ES_CALL_STOPS_MAX = 16, ES_CALL_CHOICES_MAX = 256, ES_CALL_TEXTS_MAX = 1024, ES_CALL_TOP_MAX = 20, ES_CALL_BIAS_MAX = 4096 };

typedef enum es_call_kind {
    ES_CALL_CHAT,
    ES_CALL_COMPLETION,
    ES_CALL_RESPONSE,     /**< OpenAI's Responses API: a chat in other words */
    ES_CALL_MESSAGE,      /**< Anthropic's Messages API: a chat in other words */
    ES_CALL_EMBEDDING,
    ES_CALL_COUNT_TOKENS, /**< from here on: answered by a worker alone, see es_query_run() */
    ES_CALL_TOKENIZE,
    ES_CALL_DETOKENIZE,
    ES_CALL_TEMPLATE,
} es_call_kind;

/** Why a call is refused, in OpenAI's terms. */
typedef struct es_api_error {
    int status;       /**< HTTP */
    const char *type; /**< "invalid_request_error" */
    const char *code; /**< "context_length_exceeded", or NULL */
    char param[64];   /**< the parameter at fault, or "" */
    char message[700];
    int retry_after;  /**< seconds; 0 = no such header */
} es_api_error;

/** What a call is read against. */
typedef struct es_api_context {
    const es_backend *backend;
    const char *alias;  /**< the model's name */
    bool strict;        /**< refuse unknown parameters and other model names */
    bool content_parts; /**< the template reads arrays of content parts itself */
    es_answer_format format; /**< how the model marks reasoning and calls */
    es_pooling pooling;      /**< how embeddings are made; NONE: there are none */
} es_api_context;

typedef struct es_prompt {
    es_token *tokens;
    size_t count;
    es_text text; /**< what it says, where the answer begins with it (echo) */
} es_prompt;

/** A call. Choice c of prompt p is number p·n + c. */
typedef struct es_call {
    es_call_kind kind;
    es_request request; /**< all but prompt, bias and stop, whose memory is below: see es_call_request() */
    es_prompt *prompts;
    size_t prompt_count;
    int n;
    bool stream, include_usage, return_token_ids, return_progress;
    bool heartbeat; /**< white space before a reply that takes long */
    es_answer_format format; /**< chat: how the answer is taken apart */
    int32_t dimensions; /**< embeddings: how many numbers of each are wanted */
    bool base64;        /**< embeddings: as the bytes of floats, not as a list */
    bool one_call;      /**< the answer ends with its first call of a tool */
    es_text ignored;    /**< names of parameters that nobody here knows, comma-separated */
    /* owned */
    json_t *echo;       /**< ES_CALL_RESPONSE: members of the request that the response says again */
    json_t *tools;      /**< chat: those that may be called; NULL: none */
    es_text grammar;    /**< GBNF that the answer follows; empty: none */
    const char *grammar_name; /**< the parameter it comes from */
    bool may_think;     /**< chat: the answer may open its reasoning itself, and is to follow the grammar behind it */
    es_logit_bias *bias;
    char *stops[ES_CALL_STOPS_MAX];
} es_call;

/** Read a body. False with `error` filled in; then `call` needs no freeing. */
bool es_call_parse(const es_api_context *context, es_call_kind kind, const char *body, size_t bytes, es_call *call,
                   es_api_error *error);
void es_call_free(es_call *call);
/** The reply to a call that needs no engine (ES_CALL_COUNT_TOKENS and those behind it); NULL with `error` filled in. */
json_t *es_query_run(const es_api_context *context, es_call_kind kind, const char *body, size_t bytes, es_api_error *error);
/** The engine's request for choice number `choice`; points into `call`. */
es_request es_call_request(const es_call *call, size_t choice);

/** Fill in a 400 invalid_request_error about `param` ("" = the whole body); returns false. */
bool es_api_refuse(es_api_error *error, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));
/** Fill in the error that belongs to a failed es_status, with es_error_message(); returns false. */
bool es_api_refuse_status(es_api_error *error, es_status status);
/** {"error": {...}} */
void es_api_error_write(const es_api_error *error, es_text *out);
json_t *es_api_error_json(const es_api_error *error);

/* The pieces of es_call_parse(), one file each. */

/** parameters.c: parameters that are refused, or unknown to this kind of call. */
bool es_parameters_check_names(const es_api_context *context, json_t *root, es_call *call, es_api_error *error);
/** parameters.c: note a name for the header that says what was ignored. */
void es_call_ignore(es_call *call, const char *name);
/** parameters.c: a whole number between two bounds; *value stays where it is not given. */
bool es_parameter_integer(json_t *root, const char *name, int64_t min, int64_t max, int64_t *value, es_api_error *error);
/** parameters.c: everything that chat and completions share. */
bool es_parameters_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error);
/** structured.c: response_format and its relatives, into call->grammar; and, once the prompt is known, whether the grammar can be
 *  followed and where in the answer it begins. */
bool es_structured_parse(json_t *root, es_call *call, es_api_error *error);
bool es_structured_finish(es_call *call, es_api_error *error);
/** api_chat.c: messages, tools and the template; fills in the one prompt. */
bool es_chat_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error);
/** api_chat.c: the first part of that, the prompt as text (the caller's, free()). */
bool es_chat_render(const es_api_context *context, json_t *root, es_call *call, char **text, es_api_error *error);
/** api_responses.c, api_messages.c: the members of `root` in the words of a chat, into `chat`. */
bool es_responses_convert(const es_api_context *context, json_t *root, json_t *chat, es_call *call, es_api_error *error);
bool es_messages_convert(const es_api_context *context, json_t *root, json_t *chat, es_call *call, es_api_error *error);
/** chat_tools.c: a tool that others run for their models ("web_search"): left out and noted, refused by strict servers. */
bool es_chat_tools_leave_out(const es_api_context *context, const char *type, size_t index, es_call *call, es_api_error *error);
/** answer_messages.c: an error in Anthropic's shape. */
json_t *es_messages_error_json(const es_api_error *error);
/** chat_messages.c: `messages` brought into the shape that templates were written for. */
bool es_chat_messages_normalise(const es_api_context *context, json_t *root, es_api_error *error);
/** chat_tools.c: the tools that the template shall see and the answer may call, into call->tools. */
bool es_chat_tools_choose(const es_api_context *context, json_t *root, es_call *call, es_api_error *error);
/** tool_grammar.c: append the rule `calls`, an answer that calls a function of `tools` (that named `only`, where that is not NULL)
 *  in a form, or `several` times one, and the rules it needs. */
bool es_tool_grammar_put(es_tool_form form, const json_t *tools, const char *only, bool several, es_text *gbnf, es_api_error *error);
/** api_completions.c: the prompts in the parameter `name`, as text (encoded with `flags`) or token numbers, into call->prompts. */
bool es_prompts_parse(const es_api_context *context, json_t *root, const char *name, unsigned flags, size_t most, es_call *call,
                      es_api_error *error);
/** api_embeddings.c: the texts whose embeddings are wanted, and in which shape. */
bool es_embeddings_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error);
/** api_completions.c: prompts as text or token numbers. */
bool es_completions_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error);
/** api_chat.c: whether the model's template reads content parts itself, found out by trying. */
bool es_chat_template_reads_parts(const es_backend *backend);

/** The member `name`, or NULL when it is absent or null. */
json_t *es_json_member(const json_t *object, const char *name);

/** For APIs that are read as a chat: copies the parameter `from`, if there, into the chat as `to`. */
void es_api_take(const json_t *root, const char *from, json_t *chat, const char *to);
/** Copies the parameters that those APIs call as the chat does: streaming, sampling and the template's. */
void es_api_take_common(const json_t *root, json_t *chat);

#endif

/* messages.h: messages on their way into a model's chat template. */
#ifndef ES_CLI_MESSAGES_H
#define ES_CLI_MESSAGES_H

#include <jansson.h>

#include "base/error.h"
#include "base/text.h"
#include "evenshare/model.h"

typedef struct es_messages {
    json_t *list;         /**< owned: [{"role", "content"}, ...] */
    char *system;         /**< owned, or NULL */
    const char *thinking; /**< "on", "off" or NULL */
} es_messages;

es_status es_messages_open(const char *system, const char *thinking, es_messages *messages);
void es_messages_close(es_messages *messages);
/** Forget the messages, keep the instructions. */
void es_messages_clear(es_messages *messages);
void es_messages_set_system(es_messages *messages, const char *system);
/** ES_INVALID when `content` is no UTF-8. */
es_status es_messages_add(es_messages *messages, const char *role, const char *content);
/** Beside the last message: what the model thought before it. Templates decide what becomes of it. */
es_status es_messages_add_reasoning(es_messages *messages, const char *reasoning);
void es_messages_drop_last(es_messages *messages);
/** The text that the model reads, up to where its answer begins; appends to `out`. */
es_status es_messages_render(const es_messages *messages, const es_model *model, es_text *out);

#endif

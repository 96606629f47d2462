/* stream.c: open a model, ask it something, print the answer as it comes.
 *
 *   example_stream MODEL.gguf "Why is the sky blue?" */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evenshare/engine.h"

static void on_event(void *user, const es_event *event)
{
    (void)user;
    if (event->kind == ES_EVENT_TOKEN || event->kind == ES_EVENT_DONE) fwrite(event->text, 1, event->text_bytes, stdout);
    if (event->kind == ES_EVENT_ERROR) fprintf(stderr, "error: %s\n", event->message);
    fflush(stdout);
}

static es_status answer(const es_model *model, es_engine *engine, const char *text)
{
    es_token *tokens;
    size_t count;
    es_status status = es_tokenizer_encode(es_model_tokenizer(model), text, strlen(text), ES_ENCODE_BOS, &tokens, &count);
    if (status != ES_OK) return status;
    es_request request = es_request_defaults(model);
    request.prompt = tokens, request.prompt_count = count, request.max_tokens = 64, request.on_event = on_event;
    uint64_t id;
    status = es_engine_submit(engine, &request, &id);
    if (status == ES_OK) es_engine_wait(engine, id);
    free(tokens);
    return status;
}

int main(int argc, char **argv)
{
    es_model *model = NULL;
    es_engine *engine = NULL;
    es_status status = es_model_open(argc > 1 ? argv[1] : NULL, &model);
    if (status == ES_OK) status = es_engine_open(model, NULL, &engine);
    if (status == ES_OK) status = answer(model, engine, argc > 2 ? argv[2] : "The sky is blue because");
    if (status != ES_OK) fprintf(stderr, "error: %s\n", es_error_message());
    else putchar('\n');
    if (engine) es_engine_close(engine);
    if (model) es_model_close(model);
    return es_status_exit_code(status);
}

/* model.c: opening a model: find out what it is, read its shape, check that every tensor is there, and its words. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "hub/store.h"
#include "model/network.h"

/* PREFIX/share/evenshare/ of the program in PREFIX/bin, wherever PREFIX is. */
static const char *installed_model(void)
{
    static char path[4200];
    char program[4096];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return NULL;
    program[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (!slash) return NULL;
        *slash = '\0';
    }
    snprintf(path, sizeof path, "%s/share/evenshare/evenshare-default.gguf", program);
    return es_path_exists(path) ? path : NULL;
}

const char *es_model_default_path(void)
{
    const char *asked = getenv("ES_MODEL");
    if (asked && *asked) return asked;
    static const char *const places[] = {
        ES_DEFAULT_MODEL,
#ifdef ES_SOURCE_DIR
        ES_SOURCE_DIR "/models/evenshare-default.gguf",
        ES_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
#endif
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i][0] && es_path_exists(places[i])) return places[i];
    return installed_model();
}

es_status es_model_add_stop(es_model *model, es_token token)
{
    if (token < 0 || token >= model->config.vocabulary) return ES_OK;
    for (size_t i = 0; i < model->stop_count; i++)
        if (model->stop[i] == token) return ES_OK;
    es_token *grown = realloc(model->stop, (model->stop_count + 1) * sizeof *grown);
    if (!grown) return es_fail(ES_NO_MEMORY, "no memory for stop tokens");
    model->stop = grown;
    model->stop[model->stop_count++] = token;
    return ES_OK;
}

void es_model_set_chat(es_model *model, const char *source, size_t bytes)
{
    if (es_chat_template_parse(model->name, source, bytes, &model->chat) != ES_OK) {
        model->chat = NULL;
        es_log(ES_LOG_NOTICE, "the chat template cannot be used, text can still be completed: %s", es_error_message());
    }
}

/* Control tokens that end a turn in the formats that models are trained on: a file's metadata often name only one. */
static es_status add_known_stops(es_model *model)
{
    static const char *const known[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"};
    static const char *const starts[] = {"<|im_start|>", "<|start_header_id|>"};
    model->message_start = ES_NO_TOKEN;
    if (!model->tokenizer) return ES_OK;
    for (size_t i = 0; i < sizeof starts / sizeof *starts && model->message_start == ES_NO_TOKEN; i++)
        model->message_start = es_tokenizer_find(model->tokenizer, starts[i]);
    ES_TRY(es_model_add_stop(model, es_tokenizer_eos(model->tokenizer)));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const es_token token = es_tokenizer_find(model->tokenizer, known[i]);
        if (token != ES_NO_TOKEN && es_tokenizer_is_special(model->tokenizer, token)) ES_TRY(es_model_add_stop(model, token));
    }
    return ES_OK;
}

/* Tensors nobody asks for: vision towers and multi-token prediction come with published hybrids. */
static void notice_unused(const es_model *model)
{
    size_t vision = 0, mtp = 0;
    for (size_t i = 0; i < es_tensor_count(model->tensors); i++) {
        const char *name = es_tensor_at(model->tensors, i)->name;
        int layer = -1;
        if (strncmp(name, "model.visual.", 13) == 0 || strncmp(name, "visual.", 7) == 0 || strncmp(name, "v.", 2) == 0)
            vision++;
        else if (strncmp(name, "mtp.", 4) == 0 || (sscanf(name, "blk.%d.", &layer) == 1 && layer >= model->config.layers))
            mtp++;
    }
    if (vision || mtp)
        es_log(ES_LOG_NOTICE, "%s: skipped %zu tensors for images and %zu for multi-token prediction, which are not used",
               model->name, vision, mtp);
}

static void describe(es_model *model, const es_loader *counts)
{
    const es_config *c = &model->config;
    es_dtype most = ES_F32;
    for (es_dtype t = 0; t < ES_DTYPES; t++)
        if (counts->type_bytes[t] > counts->type_bytes[most]) most = t;
    model->weights = most;
    model->info = (es_model_info){
        .path = model->path, .name = model->name, .family = c->family->name,
        .format = c->from_gguf ? "gguf" : "safetensors", .quantisation = es_dtype_get_info(most)->name,
        .parameters = counts->parameters, .weight_bytes = counts->bytes, .context = c->context,
        .vocabulary = c->vocabulary, .hidden = c->hidden, .layers = c->layers, .attention_layers = c->attention_layers,
        .query_heads = c->query_heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim,
        .experts = c->family->moe ? c->experts : 0, .experts_used = c->family->moe ? c->experts_used : 0,
        .pooling = c->pooling,
        .kv_bytes_per_token = (int64_t)es_network_page_bytes(c, 16, ES_KV_F32) / 16,
        .state_bytes = (int64_t)es_network_slot_bytes(c),
    };
}

/* "folder/Name-Q8_0.gguf" is called "Name-Q8_0" until its metadata say otherwise. */
static char *name_from_path(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    if (end - start > 5 && strncmp(path + end - 5, ".gguf", 5) == 0) end -= 5;
    return strndup(path + start, end - start);
}

static es_status open_parts(es_model *model)
{
    if (es_path_is_folder(model->path))
        ES_TRY(es_model_open_hf(model));
    else
        ES_TRY(es_model_open_gguf(model));
    es_loader counts = {0};
    ES_TRY(es_network_check(model, &counts));
    if (model->tokenizer && es_tokenizer_size(model->tokenizer) > model->config.vocabulary)
        es_log(ES_LOG_NOTICE, "%s: the tokenizer knows %d tokens, the model %d; the others are never used", model->name,
               es_tokenizer_size(model->tokenizer), model->config.vocabulary);
    ES_TRY(add_known_stops(model));
    describe(model, &counts);
    notice_unused(model);
    return ES_OK;
}

es_status es_model_find(const char *named, char **path)
{
    const char *where = named ? named : es_model_default_path();
    if (!where)
        return es_fail(ES_NOT_FOUND, "no model was named and there is no default model; name one with -m MODEL or $ES_MODEL "
                       "(./dev serve fetches the default one)");
    if (es_hub_is_name(where)) {
        es_hub_name name;
        ES_TRY(es_hub_name_parse(where, &name));
        return es_hub_find(&name, path);
    }
    if (!es_path_exists(where)) return es_fail(ES_NOT_FOUND, "%s: there is no such model file or folder", where);
    *path = strdup(where);
    return *path ? ES_OK : es_fail(ES_NO_MEMORY, "no memory for a path");
}

static es_status open_at(const char *where, es_model **out)
{
    es_model *model = calloc(1, sizeof *model);
    if (!model) return es_fail(ES_NO_MEMORY, "no memory for a model");
    model->defaults = (es_model_defaults){NAN, NAN, NAN, NAN, -1};
    model->path = strdup(where);
    model->name = name_from_path(where);
    const es_status status = model->path && model->name ? open_parts(model) : es_fail(ES_NO_MEMORY, "no memory for a model");
    if (status != ES_OK) {
        es_model_close(model);
        return status;
    }
    *out = model;
    return ES_OK;
}

es_status es_model_open(const char *path, es_model **out)
{
    char *where;
    ES_TRY(es_model_find(path, &where));
    const es_status status = open_at(where, out);
    free(where);
    return status;
}

void es_model_close(es_model *model)
{
    if (!model) return;
    es_chat_template_free(model->chat);
    es_tokenizer_close(model->tokenizer);
    if (model->gguf) es_gguf_close(model->gguf);
    if (model->safetensors) es_tensor_set_close(model->safetensors);
    free(model->stop);
    free(model->path);
    free(model->name);
    free(model);
}

static const char *const pooling_names[] = {"none", "mean", "cls", "last"};

es_status es_pooling_parse(const char *name, es_pooling *pooling)
{
    for (size_t i = 0; i < sizeof pooling_names / sizeof *pooling_names; i++)
        if (strcmp(name, pooling_names[i]) == 0) return *pooling = (es_pooling)i, ES_OK;
    return es_fail(ES_INVALID, "there is no pooling \"%.40s\"; there are none, mean, cls and last", name);
}

const char *es_pooling_name(es_pooling pooling)
{
    return pooling_names[pooling];
}

const es_model_info *es_model_get_info(const es_model *model)
{
    return &model->info;
}

const es_model_defaults *es_model_get_defaults(const es_model *model)
{
    return &model->defaults;
}

const es_tokenizer *es_model_tokenizer(const es_model *model)
{
    return model->tokenizer;
}

const es_token *es_model_stop_tokens(const es_model *model, size_t *count)
{
    *count = model->stop_count;
    return model->stop;
}

bool es_model_has_chat(const es_model *model)
{
    return model->chat != NULL;
}

const char *es_model_chat_template(const es_model *model)
{
    return model->chat ? es_chat_template_source(model->chat) : NULL;
}

static json_t *piece_json(const es_model *model, es_token token)
{
    size_t bytes = 0;
    const char *piece = token == ES_NO_TOKEN ? NULL : es_tokenizer_piece(model->tokenizer, token, &bytes);
    json_t *text = piece ? json_stringn(piece, bytes) : NULL;
    return text ? text : json_string("");
}

/* What every template expects to find, unless the caller says otherwise. */
static bool add_defaults(const es_model *model, json_t *variables)
{
    int failed = 0;
    if (!json_object_get(variables, "add_generation_prompt"))
        failed |= json_object_set_new(variables, "add_generation_prompt", json_true());
    if (model->tokenizer && !json_object_get(variables, "bos_token"))
        failed |= json_object_set_new(variables, "bos_token", piece_json(model, es_tokenizer_bos(model->tokenizer)));
    if (model->tokenizer && !json_object_get(variables, "eos_token"))
        failed |= json_object_set_new(variables, "eos_token", piece_json(model, es_tokenizer_eos(model->tokenizer)));
    return failed == 0;
}

es_status es_model_render_chat(const es_model *model, const char *variables_json, char **text)
{
    if (!model->chat)
        return es_fail(ES_UNSUPPORTED, "%s has no chat template; complete plain text instead", model->name);
    json_error_t error;
    json_t *variables = json_loads(variables_json, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(variables)) {
        json_decref(variables);
        return es_fail(ES_INVALID, "chat variables are not a JSON object: %s", error.text);
    }
    es_text out = {0};
    es_status status = add_defaults(model, variables) ? ES_OK : es_fail(ES_NO_MEMORY, "no memory for chat variables");
    if (status == ES_OK) status = es_chat_template_render(model->chat, variables, (int64_t)time(NULL), NULL, &out);
    json_decref(variables);
    if (status == ES_OK && !out.data) es_text_puts(&out, "");
    if (status == ES_OK && out.failed) status = es_fail(ES_NO_MEMORY, "no memory for the rendered conversation");
    if (status != ES_OK) {
        es_text_free(&out);
        return status;
    }
    *text = out.data;
    return ES_OK;
}

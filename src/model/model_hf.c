/* model_hf.c: a model as a Hugging Face folder: config.json, generation_config.json, tokenizer.json, a chat template, and
 * safetensors. Only the configuration and the tensors must be there. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define JSON_BYTES ((size_t)64 << 20)
#define TEMPLATE_BYTES ((size_t)4 << 20)

/* *root is NULL where the file does not exist. */
static es_status read_json(const es_model *model, const char *name, json_t **root)
{
    char *path = es_path_join(model->path, name), *data = NULL;
    size_t bytes = 0;
    *root = NULL;
    if (!path) return es_fail(ES_NO_MEMORY, "no memory for a path");
    es_status status = es_path_exists(path) ? es_file_read(path, JSON_BYTES, &data, &bytes) : ES_OK;
    if (status == ES_OK && data) {
        json_error_t error;
        *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
        if (!*root) status = es_fail(ES_BAD_FILE, "%s: is not valid JSON: line %d: %s", path, error.line, error.text);
    }
    free(data);
    free(path);
    return status;
}

static es_status add_stops(es_model *model, const json_t *value)
{
    if (json_is_integer(value)) return es_model_add_stop(model, (es_token)json_integer_value(value));
    for (size_t i = 0; i < json_array_size(value); i++)
        ES_TRY(add_stops(model, json_is_integer(json_array_get(value, i)) ? json_array_get(value, i) : NULL));
    return ES_OK;
}

static void number_into(const json_t *root, const char *key, float *value)
{
    const json_t *v = json_object_get(root, key);
    if (json_is_number(v)) *value = (float)json_number_value(v);
}

static es_status read_generation(es_model *model, const json_t *config)
{
    const json_t *text = json_object_get(config, "text_config");
    ES_TRY(add_stops(model, json_object_get(config, "eos_token_id")));
    ES_TRY(add_stops(model, json_object_get(text, "eos_token_id")));
    json_t *root;
    ES_TRY(read_json(model, "generation_config.json", &root));
    const es_status status = add_stops(model, json_object_get(root, "eos_token_id"));
    number_into(root, "temperature", &model->defaults.temperature);
    number_into(root, "top_p", &model->defaults.top_p);
    number_into(root, "min_p", &model->defaults.min_p);
    number_into(root, "repetition_penalty", &model->defaults.repetition_penalty);
    const json_t *top_k = json_object_get(root, "top_k");
    if (json_is_integer(top_k) && json_integer_value(top_k) >= 0 && json_integer_value(top_k) < INT32_MAX)
        model->defaults.top_k = (int32_t)json_integer_value(top_k);
    if (json_is_false(json_object_get(root, "do_sample"))) model->defaults.temperature = 0;
    json_decref(root);
    return status;
}

static es_status read_tokenizer(es_model *model)
{
    char *path = es_path_join(model->path, "tokenizer.json"), *config = es_path_join(model->path, "tokenizer_config.json");
    es_status status = ES_OK;
    if (!path || !config)
        status = es_fail(ES_NO_MEMORY, "no memory for a path");
    else if (es_path_exists(path))
        status = es_tokenizer_open_json(path, es_path_exists(config) ? config : NULL, &model->tokenizer);
    free(config);
    free(path);
    return status;
}

/* The template is a string, or a list of named ones of which "default" is meant. */
static const char *template_in(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    if (json_is_string(value)) return json_string_value(value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) return json_string_value(json_object_get(entry, "template"));
    }
    return NULL;
}

static es_status read_chat(es_model *model)
{
    char *path = es_path_join(model->path, "chat_template.jinja"), *source = NULL;
    size_t bytes = 0;
    if (!path) return es_fail(ES_NO_MEMORY, "no memory for a path");
    const bool own_file = es_path_exists(path);
    es_status status = own_file ? es_file_read(path, TEMPLATE_BYTES, &source, &bytes) : ES_OK;
    free(path);
    if (status == ES_OK && source) es_model_set_chat(model, source, bytes);
    free(source);
    if (own_file || status != ES_OK) return status;
    json_t *config;
    ES_TRY(read_json(model, "tokenizer_config.json", &config));
    const char *text = template_in(config);
    if (text) es_model_set_chat(model, text, strlen(text));
    json_decref(config);
    return ES_OK;
}

es_status es_model_open_hf(es_model *model)
{
    json_t *config;
    ES_TRY(read_json(model, "config.json", &config));
    if (!config)
        return es_fail(ES_NOT_FOUND, "%s: the folder has no config.json; a model is a folder with config.json and "
                       "safetensors, or a .gguf file", model->path);
    es_status status = es_config_from_hf(config, model->path, &model->config);
    if (status == ES_OK) status = read_generation(model, config);
    json_decref(config);
    ES_TRY(status);
    ES_TRY(es_safetensors_open(model->path, &model->safetensors));
    model->tensors = model->safetensors;
    ES_TRY(read_tokenizer(model));
    return read_chat(model);
}

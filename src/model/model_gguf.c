/* model_gguf.c: a model as a GGUF file, which carries its tokenizer and chat template in its metadata. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ggml's token types */
enum { GGUF_TOKEN_UNKNOWN = 2, GGUF_TOKEN_CONTROL = 3, GGUF_TOKEN_USER = 4, GGUF_TOKEN_UNUSED = 5 };

static bool text_is(es_gguf_string s, const char *word)
{
    return s.bytes == strlen(word) && memcmp(s.data, word, s.bytes) == 0;
}

static es_token token_of(const es_gguf *gguf, const char *key)
{
    int64_t id;
    return es_gguf_integer(gguf, key, &id) && id >= 0 && id < INT32_MAX ? (es_token)id : ES_NO_TOKEN;
}

static es_status fill_tokens(const es_model *model, es_token_source *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        es_gguf_string text;
        int64_t kind = 1;
        if (!es_gguf_array_text(model->gguf, "tokenizer.ggml.tokens", i, &text))
            return es_fail(ES_BAD_FILE, "%s: token %" PRId64 " of the vocabulary is not a string", model->path, i);
        es_gguf_array_integer(model->gguf, "tokenizer.ggml.token_type", i, &kind);
        tokens[i] = (es_token_source){.text = text.data, .bytes = text.bytes, .kind = ES_TOKEN_NORMAL};
        if (kind == GGUF_TOKEN_CONTROL || kind == GGUF_TOKEN_UNKNOWN) tokens[i].kind = ES_TOKEN_CONTROL;
        if (kind == GGUF_TOKEN_USER) tokens[i].kind = ES_TOKEN_USER;
        if (kind == GGUF_TOKEN_UNUSED) tokens[i].kind = ES_TOKEN_UNUSED;
    }
    return ES_OK;
}

/* "left right": the space that separates them is the first one after the first byte. */
static es_status fill_merges(const es_model *model, es_merge_source *merges, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        es_gguf_string text;
        const bool got = es_gguf_array_text(model->gguf, "tokenizer.ggml.merges", i, &text);
        const char *space = got && text.bytes > 2 ? memchr(text.data + 1, ' ', text.bytes - 1) : NULL;
        if (!space || space + 1 == text.data + text.bytes)
            return es_fail(ES_BAD_FILE, "%s: merge %" PRId64 " of the tokenizer is not two words", model->path, i);
        const size_t left = (size_t)(space - text.data);
        merges[i] = (es_merge_source){text.data, space + 1, left, text.bytes - left - 1};
    }
    return ES_OK;
}

static es_status build_tokenizer(es_model *model, es_token_source *tokens, int64_t token_count, es_merge_source *merges,
                                 int64_t merge_count)
{
    const es_gguf *gguf = model->gguf;
    ES_TRY(fill_tokens(model, tokens, token_count));
    ES_TRY(fill_merges(model, merges, merge_count));
    es_tokenizer_source source = {
        .where = model->path, .tokens = tokens, .size = (int32_t)token_count, .merges = merges,
        .merge_count = (size_t)merge_count, .bos = token_of(gguf, "tokenizer.ggml.bos_token_id"),
        .eos = token_of(gguf, "tokenizer.ggml.eos_token_id"),
    };
    es_gguf_string pre = {NULL, 0};
    char name[64];
    const bool named = es_gguf_text(gguf, "tokenizer.ggml.pre", &pre);
    snprintf(name, sizeof name, "%.*s", (int)(pre.bytes < sizeof name ? pre.bytes : sizeof name - 1), named ? pre.data : "");
    ES_TRY(es_split_from_gguf(named ? name : NULL, &source.split));
    source.ignore_merges = source.split == ES_SPLIT_LLAMA3;
    source.nfc = source.split == ES_SPLIT_QWEN2 || source.split == ES_SPLIT_QWEN35;
    source.add_bos = source.split == ES_SPLIT_LLAMA3; /* unless the file says otherwise */
    es_gguf_boolean(gguf, "tokenizer.ggml.add_bos_token", &source.add_bos);
    es_gguf_boolean(gguf, "tokenizer.ggml.add_eos_token", &source.add_eos);
    return es_tokenizer_build(&source, &model->tokenizer);
}

static es_status read_tokenizer(es_model *model)
{
    const es_gguf *gguf = model->gguf;
    es_gguf_string kind;
    if (!es_gguf_text(gguf, "tokenizer.ggml.model", &kind) || text_is(kind, "none")) return ES_OK;
    if (!text_is(kind, "gpt2"))
        return es_fail(ES_UNSUPPORTED, "%s: tokenizer \"%.*s\" is not supported; byte-level BPE (\"gpt2\") is", model->path,
                       (int)(kind.bytes < 64 ? kind.bytes : 64), kind.data);
    const int64_t tokens = es_gguf_array_length(gguf, "tokenizer.ggml.tokens");
    const int64_t merges = es_gguf_array_length(gguf, "tokenizer.ggml.merges");
    if (tokens < 1 || tokens > INT32_MAX)
        return es_fail(ES_BAD_FILE, "%s: the metadata lack a usable tokenizer.ggml.tokens", model->path);
    es_token_source *token_list = calloc((size_t)tokens, sizeof *token_list);
    es_merge_source *merge_list = calloc(merges > 0 ? (size_t)merges : 1, sizeof *merge_list);
    const es_status status = token_list && merge_list
        ? build_tokenizer(model, token_list, tokens, merge_list, merges > 0 ? merges : 0)
        : es_fail(ES_NO_MEMORY, "no memory for a vocabulary of %" PRId64 " tokens", tokens);
    free(token_list);
    free(merge_list);
    return status;
}

es_status es_model_open_gguf(es_model *model)
{
    ES_TRY(es_gguf_open(model->path, &model->gguf));
    model->tensors = es_gguf_tensors(model->gguf);
    ES_TRY(es_config_from_gguf(model->gguf, model->path, &model->config));
    es_gguf_string text;
    if (es_gguf_text(model->gguf, "general.name", &text) && text.bytes > 0 && text.bytes < 256) {
        char *name = strndup(text.data, text.bytes);
        if (!name) return es_fail(ES_NO_MEMORY, "no memory for a name");
        free(model->name);
        model->name = name;
    }
    ES_TRY(read_tokenizer(model));
    static const char *const stops[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) ES_TRY(es_model_add_stop(model, token_of(model->gguf, stops[i])));
    if (es_gguf_text(model->gguf, "tokenizer.chat_template", &text)) es_model_set_chat(model, text.data, text.bytes);
    return ES_OK;
}

/* inspect.c: what a model file holds, and what it would take to run it.
 *
 * A model that this engine cannot run is still worth a look: the file is read on its own, what could not be read is named,
 * and the exit code says whether the model would open. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "model/gguf.h"
#include "model/tensor_file.h"

enum { CONFIG_MAX = 16 << 20, ARRAY_SHOWN = 8, TEXT_SHOWN = 100 };

typedef struct settings {
    es_model_settings model;
    int64_t context;
    bool tensors, metadata, json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const es_option rows[] = {
    {"ctx", 'c', ES_OPTION_SIZE, "N", FIELD(context), .min = 1, .max = ES_ANY,
     .help = "memory for one sequence of N tokens [the model's context]"},
    {"tensors", 0, ES_OPTION_FLAG, NULL, FIELD(tensors), .help = "list every tensor: name, type, shape, bytes"},
    {"metadata", 0, ES_OPTION_FLAG, NULL, FIELD(metadata), .help = "list the metadata (GGUF) or configuration (folder)"},
    {"json", 0, ES_OPTION_FLAG, NULL, FIELD(json), .help = "print one JSON object, metadata always in it"},
    {0}};
#undef FIELD
static const es_option_group groups[] = {
    {NULL, rows, 0}, {"Model", es_model_options, offsetof(settings, model)}, {0}};

/* What was opened: the file, and the model where it would run. */
typedef struct subject {
    char *path;
    es_gguf *gguf;              /* or NULL */
    es_tensor_set *owned;       /* of a folder, or NULL */
    const es_tensor_set *set;
    json_t *metadata;           /* object */
    es_model *model;            /* or NULL */
    es_status model_status;
    char *model_message;        /* why there is no model */
} subject;

static json_t *text_value(es_gguf_string text)
{
    json_t *value = json_stringn(text.data, text.bytes);
    return value ? value : json_string("(not UTF-8)");
}

static json_t *element_value(const es_gguf *gguf, const char *key, int64_t i)
{
    int64_t integer;
    double number;
    bool boolean;
    es_gguf_string text;
    switch (es_gguf_get_array_kind(gguf, key)) {
    case ES_GGUF_INTEGER: return es_gguf_array_integer(gguf, key, i, &integer) ? json_integer(integer) : json_null();
    case ES_GGUF_NUMBER: return es_gguf_array_number(gguf, key, i, &number) ? json_real(number) : json_null();
    case ES_GGUF_BOOLEAN: return es_gguf_array_boolean(gguf, key, i, &boolean) ? json_boolean(boolean) : json_null();
    case ES_GGUF_TEXT: return es_gguf_array_text(gguf, key, i, &text) ? text_value(text) : json_null();
    case ES_GGUF_ABSENT:
    case ES_GGUF_ARRAY: break;
    }
    return json_null();
}

/* A metadata value; of a long array its length and its first elements. */
static json_t *metadata_value(const es_gguf *gguf, const char *key)
{
    int64_t integer;
    double number;
    bool boolean;
    es_gguf_string text;
    switch (es_gguf_get_kind(gguf, key)) {
    case ES_GGUF_INTEGER: return es_gguf_integer(gguf, key, &integer) ? json_integer(integer) : json_string("(past 2^63)");
    case ES_GGUF_NUMBER: return es_gguf_number(gguf, key, &number) ? json_real(number) : json_null();
    case ES_GGUF_BOOLEAN: return es_gguf_boolean(gguf, key, &boolean) ? json_boolean(boolean) : json_null();
    case ES_GGUF_TEXT: return es_gguf_text(gguf, key, &text) ? text_value(text) : json_null();
    case ES_GGUF_ABSENT: return json_null();
    case ES_GGUF_ARRAY: break;
    }
    const int64_t length = es_gguf_array_length(gguf, key);
    json_t *list = json_array();
    for (int64_t i = 0; i < length && i < ARRAY_SHOWN; i++) json_array_append_new(list, element_value(gguf, key, i));
    if (length <= ARRAY_SHOWN) return list;
    return json_pack("{s:I, s:o}", "length", (json_int_t)length, "first", list);
}

static json_t *gguf_metadata(const es_gguf *gguf)
{
    json_t *object = json_object();
    const char *key;
    for (size_t i = 0; (key = es_gguf_key(gguf, i)); i++)
        if (json_object_set_new(object, key, metadata_value(gguf, key)) != 0)
            json_object_set_new(object, "(unreadable key)", json_null());
    return object;
}

static es_status open_folder(subject *s)
{
    ES_TRY(es_safetensors_open(s->path, &s->owned));
    s->set = s->owned;
    if (!es_path_is_folder(s->path)) return ES_OK;
    char *path = es_path_join(s->path, "config.json"), *text = NULL;
    if (!path) return es_fail(ES_NO_MEMORY, "out of memory");
    size_t bytes;
    /* A folder without one has tensors to show all the same; es_model_open() says what is wrong with it. */
    if (es_file_read(path, CONFIG_MAX, &text, &bytes) == ES_OK) {
        json_t *config = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(config)) json_object_update(s->metadata, config);
        json_decref(config);
        free(text);
    }
    free(path);
    return ES_OK;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t bytes = strlen(text), tail = strlen(end);
    return bytes >= tail && strcmp(text + bytes - tail, end) == 0;
}

static es_status open_subject(const settings *wanted, subject *s)
{
    ES_TRY(es_model_find(wanted->model.path, &s->path));
    s->metadata = json_object();
    if (es_path_is_folder(s->path) || ends_with(s->path, ".safetensors")) {
        ES_TRY(open_folder(s));
    } else {
        ES_TRY(es_gguf_open(s->path, &s->gguf));
        s->set = es_gguf_tensors(s->gguf);
        json_decref(s->metadata);
        s->metadata = gguf_metadata(s->gguf);
    }
    s->model_status = es_model_open(s->path, &s->model);
    if (s->model_status != ES_OK) s->model_message = strdup(es_error_message());
    return ES_OK;
}

static void close_subject(subject *s)
{
    if (s->model) es_model_close(s->model);
    es_tensor_set_close(s->owned);
    if (s->gguf) es_gguf_close(s->gguf);
    json_decref(s->metadata);
    free(s->model_message);
    free(s->path);
}

static int64_t elements_of(const es_tensor *tensor)
{
    int64_t count = 1; /* the reader checked that this does not overflow */
    for (int axis = 0; axis < tensor->rank; axis++) count *= tensor->shape[axis];
    return count;
}

/* What is stored in one type. */
typedef struct share {
    int64_t tensors, elements, bytes;
} share;

static void count_types(const es_tensor_set *set, share shares[ES_DTYPES])
{
    for (size_t i = 0; i < es_tensor_count(set); i++) {
        const es_tensor *tensor = es_tensor_at(set, i);
        shares[tensor->type].tensors++;
        shares[tensor->type].elements += elements_of(tensor);
        shares[tensor->type].bytes += (int64_t)tensor->bytes;
    }
}

/* What one sequence of `context` tokens takes in numeric mode f32. */
typedef struct memory {
    int64_t context, weights, kv, state;
} memory;

static memory memory_at(const es_model_info *info, int64_t context)
{
    memory out = {.context = context != ES_UNSET ? context : info->context,
                  .weights = info->weight_bytes, .state = info->state_bytes};
    if (__builtin_mul_overflow(out.context, info->kv_bytes_per_token, &out.kv)) out.kv = INT64_MAX;
    return out;
}

static json_t *tensors_json(const es_tensor_set *set)
{
    json_t *list = json_array();
    for (size_t i = 0; i < es_tensor_count(set); i++) {
        const es_tensor *tensor = es_tensor_at(set, i);
        json_t *shape = json_array();
        for (int axis = 0; axis < tensor->rank; axis++) json_array_append_new(shape, json_integer(tensor->shape[axis]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I}", "name", tensor->name, "type",
                                              es_dtype_get_info(tensor->type)->name, "shape", shape, "bytes",
                                              (json_int_t)tensor->bytes));
    }
    return list;
}

static json_t *unreadable_json(const es_tensor_set *set)
{
    json_t *list = json_array();
    const char *name, *type;
    for (size_t i = 0; (name = es_tensor_unreadable_at(set, i, &type)); i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "type", type));
    return list;
}

static json_t *model_json(const es_model *model, int64_t context)
{
    const es_model_info *info = es_model_get_info(model);
    const memory m = memory_at(info, context);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:{s:I, s:I, s:I, s:I}}",
        "name", info->name, "family", info->family, "format", info->format, "quantisation", info->quantisation, "parameters",
        (json_int_t)info->parameters, "weight_bytes", (json_int_t)info->weight_bytes, "context", (json_int_t)info->context,
        "vocabulary", info->vocabulary, "hidden", info->hidden, "layers", info->layers, "attention_layers",
        info->attention_layers, "query_heads", info->query_heads, "kv_heads", info->kv_heads, "head_dim", info->head_dim,
        "experts", info->experts, "experts_used", info->experts_used, "tokenizer", es_model_tokenizer(model) != NULL,
        "chat_template", es_model_has_chat(model), "memory", "context", (json_int_t)m.context, "weights",
        (json_int_t)m.weights, "kv", (json_int_t)m.kv, "state", (json_int_t)m.state);
}

static es_status print_json(const settings *wanted, const subject *s)
{
    share shares[ES_DTYPES] = {{0, 0, 0}};
    count_types(s->set, shares);
    json_t *types = json_object();
    for (int type = 0; type < ES_DTYPES; type++)
        if (shares[type].tensors)
            json_object_set_new(types, es_dtype_get_info((es_dtype)type)->name,
                                json_pack("{s:I, s:I, s:I}", "tensors", (json_int_t)shares[type].tensors, "elements",
                                          (json_int_t)shares[type].elements, "bytes", (json_int_t)shares[type].bytes));
    json_t *object = json_pack("{s:s, s:s, s:o?, s:s?, s:o, s:o, s:O}", "path", s->path, "format",
                               s->gguf ? "gguf" : "safetensors", "model",
                               s->model ? model_json(s->model, wanted->context) : NULL, "refused", s->model_message,
                               "types", types, "unreadable", unreadable_json(s->set), "metadata", s->metadata);
    if (!object) return es_fail(ES_INTERNAL, "the model's names cannot be written as JSON (not UTF-8?)");
    if (wanted->tensors) json_object_set_new(object, "tensors", tensors_json(s->set));
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
    return ES_OK;
}

/* Names come from a file nobody vouches for: a terminal gets no control characters from them. */
static void print_name(const char *text, size_t most)
{
    size_t i = 0;
    for (; text[i] && i < most; i++) putchar(iscntrl((unsigned char)text[i]) ? ' ' : text[i]);
    if (text[i]) fputs("...", stdout);
}

static void print_bytes(int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++) value /= 1024;
    printf(unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static void print_model(const es_model *model, int64_t context)
{
    const es_model_info *info = es_model_get_info(model);
    const memory m = memory_at(info, context);
    fputs("name:        ", stdout);
    print_name(info->name, TEXT_SHOWN);
    printf("\nfamily:      %s\n", info->family);
    printf("weights:     %.1f million parameters, ", (double)info->parameters / 1e6);
    print_bytes(info->weight_bytes);
    printf(", mostly %s\n", info->quantisation);
    printf("layers:      %d: %d attention, %d Gated DeltaNet\n", info->layers, info->attention_layers,
           info->layers - info->attention_layers);
    printf("attention:   hidden size %d, %d query heads, %d KV heads of %d\n", info->hidden, info->query_heads, info->kv_heads,
           info->head_dim);
    if (info->experts) printf("experts:     %d, of which %d answer each token\n", info->experts, info->experts_used);
    printf("vocabulary:  %d tokens, %s, %s\n", info->vocabulary,
           es_model_tokenizer(model) ? "with a tokenizer" : "no tokenizer",
           es_model_has_chat(model) ? "with a chat template" : "no chat template");
    printf("context:     %" PRId64 " tokens\n", info->context);
    printf("memory:      ");
    print_bytes(m.weights);
    fputs(" weights + ", stdout);
    print_bytes(m.kv);
    fputs(" KV + ", stdout);
    print_bytes(m.state);
    printf(" state, for one sequence of %" PRId64 " tokens in numeric mode f32\n", m.context);
}

static void print_tensors(const es_tensor_set *set)
{
    puts("tensors:");
    for (size_t i = 0; i < es_tensor_count(set); i++) {
        const es_tensor *tensor = es_tensor_at(set, i);
        printf("  %-6s [", es_dtype_get_info(tensor->type)->name);
        for (int axis = 0; axis < tensor->rank; axis++) printf("%s%" PRId64, axis ? ", " : "", tensor->shape[axis]);
        printf("] %zu bytes  ", tensor->bytes);
        print_name(tensor->name, 4096);
        putchar('\n');
    }
}

static void print_metadata(const json_t *metadata)
{
    puts("metadata:");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        fputs("  ", stdout);
        print_name(key, 200);
        fputs(" = ", stdout);
        print_name(text ? text : "(unreadable)", TEXT_SHOWN);
        putchar('\n');
        free(text);
    }
}

static void print_table(const settings *wanted, const subject *s)
{
    printf("path:        %s\nformat:      %s\n", s->path, s->gguf ? "gguf" : "safetensors");
    if (s->model) print_model(s->model, wanted->context);
    share shares[ES_DTYPES] = {{0, 0, 0}};
    count_types(s->set, shares);
    for (int type = 0; type < ES_DTYPES; type++) {
        if (!shares[type].tensors) continue;
        printf("%-12s %" PRId64 " tensors, %" PRId64 " elements, ", es_dtype_get_info((es_dtype)type)->name,
               shares[type].tensors, shares[type].elements);
        print_bytes(shares[type].bytes);
        putchar('\n');
    }
    const char *name, *type;
    for (size_t i = 0; (name = es_tensor_unreadable_at(s->set, i, &type)); i++) {
        fputs("cannot read: ", stdout);
        print_name(name, 200);
        printf(" (%s)\n", type);
    }
    if (wanted->tensors) print_tensors(s->set);
    if (wanted->metadata) print_metadata(s->metadata);
}

static int inspect(int argc, char **argv)
{
    settings wanted;
    const int done = es_options_parse(&es_command_inspect, argc, argv, &wanted);
    if (done != ES_GO_ON) return done;

    subject s = {.path = NULL};
    es_status status = open_subject(&wanted, &s);
    if (status == ES_OK && wanted.json) status = print_json(&wanted, &s);
    else if (status == ES_OK) print_table(&wanted, &s);
    int code = status == ES_OK ? 0 : es_command_fail(&es_command_inspect, status);
    if (status == ES_OK && s.model_status != ES_OK) {
        fflush(stdout);
        fprintf(stderr, "evenshare inspect: this model cannot be run: %s\n", s.model_message ? s.model_message : "");
        code = es_status_exit_code(s.model_status);
    }
    close_subject(&s);
    return code;
}

const es_command es_command_inspect = {
    "inspect", "what a model holds: architecture, tensors, types, memory at a context length",
    "What cannot be read is named. The exit code is 0 when the model can be run, and 2 when it is looked at only.", groups,
    inspect};

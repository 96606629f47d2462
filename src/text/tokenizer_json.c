/* tokenizer_json.c: reads Hugging Face's tokenizer.json.
 *
 * The file describes a pipeline of freely combined parts. Language models of the families served here use few of its
 * combinations: byte-level BPE behind at most a digit splitter and one pattern. Those are recognised; anything else is refused
 * by its name, since a tokenizer that is nearly right makes a model quietly worse. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/split.h"
#include "text/tokenizer_source.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define NESTING_MAX 4
/* Numbers may leave holes, but a handful of entries cannot ask for a table of billions. */
#define SPARE_NUMBERS 4096

typedef struct reader {
    const char *where;
    json_t *root, *config;    /* config: NULL without one */
    json_t *vocabulary;       /* borrowed from root */
    es_token_source *tokens;  /* owned; texts borrowed from root */
    es_merge_source *merges;  /* owned; texts borrowed from root */
    es_tokenizer_source source;
    bool digits, byte_level, use_regex; /* what the pre-tokenizers turned out to be */
    const char *pattern;
    bool removes;             /* the pattern keeps only its matches */
    const char *first;        /* the token that the template puts before the text, or NULL */
} reader;

static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "(no type)";
}

static bool is_true(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static es_status parse(const char *where, const char *data, size_t bytes, json_t **root)
{
    json_error_t error;
    json_t *json = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) return es_fail(ES_BAD_FILE, "%s: line %d is not JSON: %s", where, error.line, error.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return es_fail(ES_BAD_FILE, "%s: not a JSON object", where);
    }
    *root = json;
    return ES_OK;
}

/* ---- the model: vocabulary and merges ---- */

static es_status check_model(const reader *r, const json_t *model)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model)) return es_fail(ES_BAD_FILE, "%s: there is no \"model\"", r->where);
    if (type ? strcmp(type, "BPE") != 0 : !json_object_get(model, "merges"))
        return es_fail(ES_UNSUPPORTED, "%s: tokenizer model %.50s is not supported; byte-level BPE is", r->where,
                       type ? type : "without a type");
    if (is_true(model, "byte_fallback", false))
        return es_fail(ES_UNSUPPORTED, "%s: a BPE with byte_fallback (SentencePiece) is not supported; byte-level BPE is",
                       r->where);
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
        const char *affix = json_string_value(json_object_get(model, affixes[i]));
        if (affix && *affix)
            return es_fail(ES_UNSUPPORTED, "%s: %s \"%.50s\" is not supported; byte-level BPE without one is", r->where,
                           affixes[i], affix);
    }
    return ES_OK;
}

/* Whether a token's number is an integer this many entries could need. */
static es_status check_number(const reader *r, const json_t *number, size_t entries, const char *text, json_int_t *id)
{
    *id = json_is_integer(number) ? json_integer_value(number) : -1;
    if (*id < 0 || *id > INT32_MAX - 1 || (size_t)*id > entries * 2 + SPARE_NUMBERS)
        return es_fail(ES_BAD_FILE, "%s: token \"%.100s\" has no sensible number (%zu tokens in all)", r->where, text,
                       entries);
    return ES_OK;
}

static es_status place_vocabulary(reader *r, size_t entries)
{
    const char *text;
    size_t bytes;
    json_t *number;
    json_object_keylen_foreach(r->vocabulary, text, bytes, number) {
        json_int_t id;
        ES_TRY(check_number(r, number, entries, text, &id));
        if (r->tokens[id].text)
            return es_fail(ES_BAD_FILE, "%s: tokens \"%.100s\" and \"%.100s\" are both number %d", r->where,
                           r->tokens[id].text, text, (int)id);
        r->tokens[id] = (es_token_source){.text = text, .bytes = bytes, .kind = ES_TOKEN_NORMAL};
        if (id >= r->source.size) r->source.size = (int32_t)id + 1;
    }
    return ES_OK;
}

static es_status place_added(reader *r, const json_t *added, size_t entries)
{
    size_t index;
    json_t *token;
    json_array_foreach(added, index, token) {
        const json_t *content = json_object_get(token, "content");
        if (!json_is_string(content)) return es_fail(ES_BAD_FILE, "%s: added token %zu has no content", r->where, index);
        const char *text = json_string_value(content);
        json_int_t id;
        ES_TRY(check_number(r, json_object_get(token, "id"), entries, text, &id));
        const json_t *listed = json_object_get(r->vocabulary, text);
        es_token_source *place = &r->tokens[id];
        if ((place->text && strcmp(place->text, text) != 0) || (listed && json_integer_value(listed) != id))
            return es_fail(ES_BAD_FILE, "%s: added token \"%.100s\" says it is number %d, the vocabulary says otherwise",
                           r->where, text, (int)id);
        const bool special = is_true(token, "special", false);
        *place = (es_token_source){
            .text = text,
            .bytes = json_string_length(content),
            .kind = special ? ES_TOKEN_CONTROL : ES_TOKEN_USER,
            .lstrip = is_true(token, "lstrip", false),
            .rstrip = is_true(token, "rstrip", false),
            .single_word = is_true(token, "single_word", false),
            .normalized = is_true(token, "normalized", !special),
        };
        if (id >= r->source.size) r->source.size = (int32_t)id + 1;
    }
    return ES_OK;
}

static es_status read_tokens(reader *r, const json_t *model)
{
    r->vocabulary = json_object_get(model, "vocab");
    const json_t *added = json_object_get(r->root, "added_tokens");
    if (!json_is_object(r->vocabulary)) return es_fail(ES_BAD_FILE, "%s: the model has no \"vocab\" object", r->where);
    if (added && !json_is_array(added) && !json_is_null(added))
        return es_fail(ES_BAD_FILE, "%s: \"added_tokens\" is not a list", r->where);

    const size_t entries = json_object_size(r->vocabulary) + json_array_size(added);
    r->tokens = calloc(entries * 2 + SPARE_NUMBERS + 1, sizeof *r->tokens);
    if (!r->tokens) return es_fail(ES_NO_MEMORY, "%s: no memory for %zu tokens", r->where, entries);
    ES_TRY(place_vocabulary(r, entries));
    ES_TRY(place_added(r, added, entries));
    r->source.tokens = r->tokens;
    return ES_OK;
}

/* "left right", or ["left", "right"] in newer files. */
static bool read_merge(const json_t *entry, es_merge_source *merge)
{
    if (json_is_array(entry) && json_array_size(entry) == 2) {
        const json_t *left = json_array_get(entry, 0), *right = json_array_get(entry, 1);
        if (!json_is_string(left) || !json_is_string(right)) return false;
        *merge = (es_merge_source){.left = json_string_value(left), .left_bytes = json_string_length(left),
                                   .right = json_string_value(right), .right_bytes = json_string_length(right)};
        return true;
    }
    const char *text = json_string_value(entry);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return false;
    *merge = (es_merge_source){.left = text, .left_bytes = (size_t)(space - text), .right = space + 1,
                               .right_bytes = json_string_length(entry) - (size_t)(space + 1 - text)};
    return true;
}

static es_status read_merges(reader *r, const json_t *model)
{
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_array(merges)) return es_fail(ES_BAD_FILE, "%s: the model has no list of merges", r->where);
    const size_t count = json_array_size(merges);
    r->merges = calloc(count + 1, sizeof *r->merges);
    if (!r->merges) return es_fail(ES_NO_MEMORY, "%s: no memory for %zu merges", r->where, count);
    for (size_t i = 0; i < count; i++)
        if (!read_merge(json_array_get(merges, i), &r->merges[i]))
            return es_fail(ES_BAD_FILE, "%s: merge %zu is not a pair of tokens", r->where, i);
    r->source.merges = r->merges;
    r->source.merge_count = count;
    return ES_OK;
}

static es_token find_token(const reader *r, const char *text)
{
    const json_t *listed = json_object_get(r->vocabulary, text);
    if (json_is_integer(listed)) return (es_token)json_integer_value(listed);
    size_t index;
    json_t *token;
    json_array_foreach(json_object_get(r->root, "added_tokens"), index, token) {
        const char *content = json_string_value(json_object_get(token, "content"));
        if (content && strcmp(content, text) == 0) return (es_token)json_integer_value(json_object_get(token, "id"));
    }
    return ES_NO_TOKEN;
}

static es_status read_model(reader *r)
{
    const json_t *model = json_object_get(r->root, "model");
    ES_TRY(check_model(r, model));
    ES_TRY(read_tokens(r, model));
    ES_TRY(read_merges(r, model));
    r->source.ignore_merges = is_true(model, "ignore_merges", false);
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    if (unknown) {
        r->source.unknown = find_token(r, unknown);
        r->source.has_unknown = r->source.unknown != ES_NO_TOKEN;
        r->source.fuse_unknown = is_true(model, "fuse_unk", false);
    }
    return ES_OK;
}

/* ---- the parts around it; each may be a Sequence of parts ---- */

typedef es_status part_reader(reader *r, const json_t *part);

static es_status each_part(reader *r, const json_t *part, const char *list, part_reader *read, int depth)
{
    if (!part || json_is_null(part)) return ES_OK;
    if (!json_is_object(part)) return es_fail(ES_BAD_FILE, "%s: a part of the pipeline is not an object", r->where);
    if (strcmp(type_of(part), "Sequence") != 0) return read(r, part);
    const json_t *parts = json_object_get(part, list);
    if (!json_is_array(parts) || depth >= NESTING_MAX)
        return es_fail(ES_BAD_FILE, "%s: a Sequence without \"%s\", or too deep", r->where, list);
    size_t index;
    json_t *inner;
    json_array_foreach(parts, index, inner) ES_TRY(each_part(r, inner, list, read, depth + 1));
    return ES_OK;
}

static es_status read_normalizer(reader *r, const json_t *part)
{
    if (strcmp(type_of(part), "NFC") != 0)
        return es_fail(ES_UNSUPPORTED, "%s: normalizer %.50s is not supported; NFC is, or none", r->where, type_of(part));
    r->source.nfc = true;
    return ES_OK;
}

static es_status read_split(reader *r, const json_t *part)
{
    const char *pattern = json_string_value(json_object_get(json_object_get(part, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(part, "behavior"));
    if (!pattern) return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer Split is supported with a Regex only", r->where);
    if (!behavior) return es_fail(ES_BAD_FILE, "%s: pre-tokenizer Split has no behavior", r->where);
    if (strcmp(pattern, "\\p{N}") == 0 && strcmp(behavior, "Isolated") == 0 && !r->digits && !r->pattern) {
        r->digits = true;
        return ES_OK;
    }
    if (r->pattern) return es_fail(ES_UNSUPPORTED, "%s: more than one pre-tokenizer Split is not supported", r->where);
    r->pattern = pattern;
    r->removes = strcmp(behavior, "Removed") == 0 && is_true(part, "invert", false);
    if (!r->removes && strcmp(behavior, "Isolated") != 0)
        return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer Split with behavior %.50s is not supported; Isolated is", r->where,
                       behavior);
    return ES_OK;
}

static es_status read_pre_tokenizer(reader *r, const json_t *part)
{
    const char *type = type_of(part);
    if (r->byte_level)
        return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer %.50s after ByteLevel is not supported", r->where, type);
    if (strcmp(type, "ByteLevel") == 0) {
        if (is_true(part, "add_prefix_space", true))
            return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer ByteLevel with add_prefix_space is not supported", r->where);
        r->byte_level = true;
        r->use_regex = is_true(part, "use_regex", true);
        return ES_OK;
    }
    if (strcmp(type, "Digits") == 0) {
        if (!is_true(part, "individual_digits", false))
            return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer Digits is supported with individual_digits only", r->where);
        r->digits = true;
        return ES_OK;
    }
    if (strcmp(type, "Split") == 0) return read_split(r, part);
    return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer %.50s is not supported; ByteLevel, Digits and Split are", r->where,
                   type);
}

/* What the pre-tokenizers mean together. */
static es_status choose_split(reader *r)
{
    if (!r->byte_level)
        return es_fail(ES_UNSUPPORTED, "%s: a tokenizer without the pre-tokenizer ByteLevel is not supported", r->where);
    const es_split split = r->pattern ? es_split_from_pattern(r->pattern) : ES_SPLIT_GPT2;
    if (r->pattern && r->use_regex)
        return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer Split before a ByteLevel with use_regex is not supported", r->where);
    if (r->removes && split == ES_SPLIT_REGEX)
        return es_fail(ES_UNSUPPORTED, "%s: pre-tokenizer Split with behavior Removed is supported for known patterns only",
                       r->where);
    if (r->digits && split != ES_SPLIT_GPT2)
        return es_fail(ES_UNSUPPORTED, "%s: single digits before any but GPT-2's pattern are not supported", r->where);
    if (r->pattern || r->use_regex) {
        r->source.split = r->digits ? ES_SPLIT_SMOLLM : split;
        r->source.pattern = r->pattern;
    } else {
        /* No pattern at all: a text is one word, or digits and what lies between them. */
        r->source.split = ES_SPLIT_REGEX;
        r->source.pattern = r->digits ? "\\p{N}|\\P{N}+" : "[\\s\\S]+";
    }
    return ES_OK;
}

static es_status read_template(reader *r, const json_t *part)
{
    size_t index;
    json_t *piece;
    bool text_seen = false;
    json_array_foreach(json_object_get(part, "single"), index, piece) {
        const json_t *token = json_object_get(piece, "SpecialToken");
        if (!token) {
            text_seen = true;
            continue;
        }
        const char *id = json_string_value(json_object_get(token, "id"));
        if (!id) return es_fail(ES_BAD_FILE, "%s: the template names a special token without an id", r->where);
        if (text_seen || r->first)
            return es_fail(ES_UNSUPPORTED, "%s: a template that adds \"%.50s\" is not supported; one token before the text is",
                           r->where, id);
        r->first = id;
    }
    return ES_OK;
}

static es_status read_post_processor(reader *r, const json_t *part)
{
    const char *type = type_of(part);
    if (strcmp(type, "ByteLevel") == 0) return ES_OK; /* about offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(r, part);
    return es_fail(ES_UNSUPPORTED, "%s: post-processor %.50s is not supported; ByteLevel and TemplateProcessing are", r->where,
                   type);
}

/* A token of tokenizer_config.json: a string, or an object with its content. */
static es_token configured_token(const reader *r, const char *key)
{
    const json_t *value = json_object_get(r->config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_is_string(value) ? find_token(r, json_string_value(value)) : ES_NO_TOKEN;
}

static es_status read_ends(reader *r)
{
    r->source.bos = configured_token(r, "bos_token");
    r->source.eos = configured_token(r, "eos_token");
    if (!r->first) return ES_OK;
    r->source.bos = find_token(r, r->first);
    r->source.add_bos = true;
    if (r->source.bos == ES_NO_TOKEN)
        return es_fail(ES_BAD_FILE, "%s: the template puts \"%.100s\" first, which is no token", r->where, r->first);
    return ES_OK;
}

static es_status read_all(reader *r)
{
    ES_TRY(read_model(r));
    ES_TRY(each_part(r, json_object_get(r->root, "normalizer"), "normalizers", read_normalizer, 0));
    ES_TRY(each_part(r, json_object_get(r->root, "pre_tokenizer"), "pretokenizers", read_pre_tokenizer, 0));
    ES_TRY(choose_split(r));
    ES_TRY(each_part(r, json_object_get(r->root, "post_processor"), "processors", read_post_processor, 0));
    return read_ends(r);
}

es_status es_tokenizer_read_json(const char *where, const char *data, size_t bytes, const char *config, size_t config_bytes,
                                 es_tokenizer **tokenizer)
{
    reader r = {.where = where, .source = {.where = where}};
    es_status status = parse(where, data, bytes, &r.root);
    if (status == ES_OK && config) status = parse("tokenizer_config.json", config, config_bytes, &r.config);
    if (status == ES_OK) status = read_all(&r);
    if (status == ES_OK) status = es_tokenizer_build(&r.source, tokenizer);
    free(r.tokens);
    free(r.merges);
    json_decref(r.config);
    json_decref(r.root);
    return status;
}

es_status es_tokenizer_open_json(const char *path, const char *config_path, es_tokenizer **tokenizer)
{
    char *data = NULL, *config = NULL;
    size_t bytes = 0, config_bytes = 0;
    ES_TRY(es_file_read(path, FILE_BYTES_MAX, &data, &bytes));
    es_status status = config_path ? es_file_read(config_path, FILE_BYTES_MAX, &config, &config_bytes) : ES_OK;
    if (status == ES_OK) status = es_tokenizer_read_json(path, data, bytes, config, config_bytes, tokenizer);
    free(data);
    free(config);
    return status;
}

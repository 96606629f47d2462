/* split.c: which splitter a model's file asks for.
 *
 * tokenizer.json spells the pattern out; GGUF names it. Either way the known ones go to hand-written functions, which are
 * several times faster than any regular-expression engine and are tested to equal it. */
#include "text/split.h"

#include <string.h>

#include "base/text.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* What llama.cpp does where a file says "default": four patterns, each of which cuts the pieces that the one before it left. In one:
 * between runs of marks GPT-2's pattern, which sees each of these runs as an end, without contractions (an apostrophe is a mark); then
 * numbers stand alone, and lose three ASCII digits at a time. Source: llama.cpp's src/llama-vocab.cpp, llm_tokenizer_bpe. */
#define MARKS "\\p{P}$+<=>^~|"
#define DEFAULT_PATTERN                                                                                                       \
    "[" MARKS "]+|\\s+(?=[" MARKS "])| ?\\p{L}+| (?=\\p{N})|[0-9]{3}|(?:(?![0-9]{3})\\p{N})+| ?[^\\s\\p{L}\\p{N}" MARKS "]+" \
    "|\\s+(?!\\S)|\\s+"

#define QWEN35_WORDS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
#define WORDS(digits) "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"

static const struct {
    const char *pattern;
    es_split_function *next;
} known[] = {
    [ES_SPLIT_GPT2] = {GPT2_PATTERN, es_split_gpt2},
    [ES_SPLIT_SMOLLM] = {GPT2_PATTERN, es_split_smollm},
    [ES_SPLIT_LLAMA3] = {CONTRACTIONS WORDS("{1,3}") SPACES, es_split_llama3},
    [ES_SPLIT_QWEN2] = {CONTRACTIONS WORDS("") SPACES, es_split_qwen2},
    [ES_SPLIT_QWEN35] = {CONTRACTIONS QWEN35_WORDS SPACES, es_split_qwen35},
    [ES_SPLIT_DEFAULT] = {DEFAULT_PATTERN, NULL}, /* too rare to be written by hand */
};

/* GGUF's names for these ways of cutting: one name per family of models, so several mean one pattern. */
static const struct {
    const char *pre;
    es_split split;
} gguf_names[] = {
    {"gpt-2", ES_SPLIT_GPT2},       {"gpt2", ES_SPLIT_GPT2},     {"olmo", ES_SPLIT_GPT2},
    {"mellum", ES_SPLIT_GPT2},      {"a.x-4.0", ES_SPLIT_GPT2},  {"smollm", ES_SPLIT_SMOLLM},
    {"starcoder", ES_SPLIT_SMOLLM}, {"refact", ES_SPLIT_SMOLLM}, {"llama-bpe", ES_SPLIT_LLAMA3},
    {"llama3", ES_SPLIT_LLAMA3},    {"llama-v3", ES_SPLIT_LLAMA3}, {"falcon3", ES_SPLIT_LLAMA3},
    {"smaug-bpe", ES_SPLIT_LLAMA3}, {"qwen2", ES_SPLIT_QWEN2},   {"deepseek-r1-qwen", ES_SPLIT_QWEN2},
    {"megrez", ES_SPLIT_QWEN2},     {"stablelm2", ES_SPLIT_QWEN2}, {"kormo", ES_SPLIT_QWEN2},
    {"qwen35", ES_SPLIT_QWEN35},    {"default", ES_SPLIT_DEFAULT},
};

static const size_t gguf_name_count = sizeof gguf_names / sizeof *gguf_names;

es_status es_split_from_gguf(const char *pre, es_split *split)
{
    es_text list = {0};
    for (size_t i = 0; i < gguf_name_count; i++) {
        if (pre && strcmp(pre, gguf_names[i].pre) == 0) {
            es_text_free(&list);
            *split = gguf_names[i].split;
            return ES_OK;
        }
        es_text_printf(&list, "%s%s", i ? ", " : "", gguf_names[i].pre);
    }
    const char *names = list.data && !list.failed ? list.data : "";
    es_status status;
    if (!pre)
        /* Such files were made before the key existed; whatever is guessed for them, some words come out cut wrongly. */
        status = es_fail(ES_UNSUPPORTED,
                         "the file does not say how its tokenizer cuts words (tokenizer.ggml.pre is missing); convert "
                         "the model again with a current converter (known: %s)",
                         names);
    else
        status = es_fail(ES_UNSUPPORTED, "tokenizer.ggml.pre is \"%.100s\", which is not supported; known are %s", pre, names);
    es_text_free(&list);
    return status;
}

const char *es_split_pattern(es_split kind)
{
    return kind == ES_SPLIT_REGEX ? NULL : known[kind].pattern;
}

es_split es_split_from_pattern(const char *pattern)
{
    static const es_split kinds[] = {ES_SPLIT_GPT2, ES_SPLIT_LLAMA3, ES_SPLIT_QWEN2, ES_SPLIT_QWEN35};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(pattern, known[kinds[i]].pattern) == 0) return kinds[i];
    return ES_SPLIT_REGEX;
}

es_status es_splitter_open(es_split kind, const char *pattern, const char *where, es_splitter *splitter)
{
    *splitter = (es_splitter){0};
    if (kind == ES_SPLIT_REGEX) return es_split_regex_open(pattern, where, splitter);
    if ((size_t)kind >= sizeof known / sizeof *known)
        return es_fail(ES_INVALID, "%s: %d names no way of cutting words", where, (int)kind);
    splitter->next = known[kind].next;
    return splitter->next ? ES_OK : es_split_regex_open(known[kind].pattern, where, splitter);
}

void es_splitter_close(es_splitter *splitter)
{
    es_split_regex_close(splitter);
    *splitter = (es_splitter){0};
}

es_status es_split_start(const es_splitter *splitter, const unsigned char *text, size_t bytes, es_split_run *run)
{
    *run = (es_split_run){.splitter = splitter, .text = text, .bytes = bytes};
    return splitter->next ? ES_OK : es_split_regex_start(run);
}

es_status es_split_next(es_split_run *run)
{
    if (!run->splitter->next) return es_split_regex_next(run);
    run->at = run->splitter->next(run->text, run->bytes, run->at);
    return ES_OK;
}

void es_split_stop(es_split_run *run)
{
    es_split_regex_stop(run);
}

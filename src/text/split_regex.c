/* split_regex.c: any other split pattern of a tokenizer.json, through PCRE2.
 *
 * Those patterns are written for Oniguruma. The two agree on what such patterns use, except for `\s`, where PCRE2 adds
 * U+180E, and for `^` and `$`, which always see lines there: the first is rewritten to the property, the second is a flag.
 * A pattern is foreign code of a kind: matching is bounded in steps and memory. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/text.h"
#include "text/split.h"
#include "text/utf8.h"

#define PATTERN_BYTES_MAX 65536
#define MATCH_LIMIT 1000000
#define HEAP_LIMIT_KB 65536
#define JIT_STACK_BYTES (1u << 20)

/* `\s` and `\S` as the property White_Space, inside brackets or not; everything else as it is. */
static void translate(const char *pattern, es_text *out)
{
    for (const char *p = pattern; *p; p++) {
        if (*p != '\\' || !p[1]) {
            es_text_putc(out, *p);
            continue;
        }
        p++;
        if (*p == 's')
            es_text_puts(out, "\\p{White_Space}");
        else if (*p == 'S')
            es_text_puts(out, "\\P{White_Space}");
        else
            es_text_append(out, p - 1, 2);
    }
}

es_status es_split_regex_open(const char *pattern, const char *where, es_splitter *splitter)
{
    if (!pattern || !*pattern) return es_fail(ES_BAD_FILE, "%s: the split pattern is empty", where);
    if (strlen(pattern) > PATTERN_BYTES_MAX)
        return es_fail(ES_UNSUPPORTED, "%s: the split pattern has %zu bytes, at most %d are supported", where, strlen(pattern),
                       PATTERN_BYTES_MAX);
    es_text text = {0};
    translate(pattern, &text);
    if (text.failed) {
        es_text_free(&text);
        return es_fail(ES_NO_MEMORY, "%s: no memory for the split pattern", where);
    }

    int error = 0;
    PCRE2_SIZE at = 0;
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text.data, text.bytes, options, &error, &at, NULL);
    es_text_free(&text);
    if (!code) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(error, why, sizeof why);
        return es_fail(ES_UNSUPPORTED, "%s: the split pattern \"%.200s\" is not one that PCRE2 understands: %s", where,
                       pattern, (const char *)why);
    }
    /* Where no just-in-time compiler exists the interpreter does the same, more slowly. */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    splitter->regex = code;
    return ES_OK;
}

void es_split_regex_close(es_splitter *splitter)
{
    pcre2_code_free(splitter->regex);
    splitter->regex = NULL;
}

es_status es_split_regex_start(es_split_run *run)
{
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_jit_stack *stack = pcre2_jit_stack_create(32768, JIT_STACK_BYTES, NULL);
    run->limits = limits;
    run->stack = stack;
    run->match = pcre2_match_data_create_from_pattern(run->splitter->regex, NULL);
    if (!limits || !run->match) {
        es_split_regex_stop(run);
        return es_fail(ES_NO_MEMORY, "no memory to cut a text into words");
    }
    pcre2_set_match_limit(limits, MATCH_LIMIT);
    pcre2_set_heap_limit(limits, HEAP_LIMIT_KB);
    if (stack) pcre2_jit_stack_assign(limits, NULL, stack);
    return ES_OK;
}

/* Words are the matches and whatever lies between them. */
es_status es_split_regex_next(es_split_run *run)
{
    size_t from = run->at;
    while (run->found_end <= run->at) {
        const int rc = from > run->bytes ? PCRE2_ERROR_NOMATCH
                                         : pcre2_match(run->splitter->regex, run->text, run->bytes, from, PCRE2_NO_UTF_CHECK,
                                                       run->match, run->limits);
        if (rc == PCRE2_ERROR_NOMATCH) {
            run->found_begin = run->found_end = run->bytes;
            break;
        }
        if (rc < 0) {
            PCRE2_UCHAR why[128] = "";
            pcre2_get_error_message(rc, why, sizeof why);
            return es_fail(ES_INVALID, "the model's split pattern gave up on this text at byte %zu: %s", from,
                           (const char *)why);
        }
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(run->match);
        run->found_begin = span[0] < run->at ? run->at : span[0];
        run->found_end = span[1];
        if (span[1] > run->at && span[1] > span[0]) break;

        /* An empty match cuts nothing: look again one character further on. */
        size_t length;
        from = span[1] > from ? span[1] : from;
        es_char_at(run->text, run->bytes, from, &length);
        from += length ? length : 1;
        run->found_end = 0;
    }
    run->at = run->found_begin > run->at ? run->found_begin : run->found_end;
    return ES_OK;
}

void es_split_regex_stop(es_split_run *run)
{
    pcre2_match_data_free(run->match);
    pcre2_match_context_free(run->limits);
    pcre2_jit_stack_free(run->stack);
    run->match = run->limits = run->stack = NULL;
}

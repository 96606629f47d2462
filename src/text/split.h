/* split.h: cutting text into words before merges apply.
 *
 *   es_splitter splitter = {0};
 *   ES_TRY(es_splitter_open(ES_SPLIT_QWEN2, NULL, where, &splitter));
 *   es_split_run run = {0};
 *   ES_TRY(es_split_start(&splitter, text, bytes, &run));       // text: valid UTF-8
 *   while (run.at < bytes) {
 *       size_t begin = run.at;
 *       if ((st = es_split_next(&run)) != ES_OK) break;          // the word is [begin, run.at)
 *   }
 *   es_split_stop(&run);
 *
 * A splitter is immutable and shared by threads; a run belongs to one. */
#ifndef ES_TEXT_SPLIT_H
#define ES_TEXT_SPLIT_H

#include "text/tokenizer_source.h"

/** The end (> at) of the word that begins at `at` < bytes. Pure; one pass over a text costs O(bytes) in all. */
typedef size_t es_split_function(const unsigned char *text, size_t bytes, size_t at);

es_split_function es_split_gpt2, es_split_smollm, es_split_llama3, es_split_qwen2, es_split_qwen35;

typedef struct es_splitter {
    es_split_function *next; /**< hand-written; NULL when `regex` is used */
    void *regex;             /**< pcre2_code, owned */
} es_splitter;

typedef struct es_split_run {
    const es_splitter *splitter;
    const unsigned char *text;
    size_t bytes;
    size_t at;                          /**< where the next word begins */
    size_t found_begin, found_end;      /**< the match already looked up; found_begin ≥ at, or found_end = 0 */
    void *match, *limits, *stack;       /**< PCRE2's, owned */
} es_split_run;

es_status es_splitter_open(es_split kind, const char *pattern, const char *where, es_splitter *splitter);
void es_splitter_close(es_splitter *splitter);

es_status es_split_start(const es_splitter *splitter, const unsigned char *text, size_t bytes, es_split_run *run);
es_status es_split_next(es_split_run *run);
void es_split_stop(es_split_run *run);

/** The regular expression of a known kind, as tokenizer.json files spell it; NULL for ES_SPLIT_REGEX. For ES_SPLIT_SMOLLM it
 *  is the pattern used after single digits are set apart; for ES_SPLIT_DEFAULT no such file has it. */
const char *es_split_pattern(es_split kind);
/** The known kind with exactly this pattern (never ES_SPLIT_SMOLLM), else ES_SPLIT_REGEX. */
es_split es_split_from_pattern(const char *pattern);

/* split_regex.c: the PCRE2 half of the functions above. */
es_status es_split_regex_open(const char *pattern, const char *where, es_splitter *splitter);
void es_split_regex_close(es_splitter *splitter);
es_status es_split_regex_start(es_split_run *run);
es_status es_split_regex_next(es_split_run *run);
void es_split_regex_stop(es_split_run *run);

#endif

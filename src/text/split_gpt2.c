/* split_gpt2.c: GPT-2's pattern, and SmolLM's, which sets single digits apart first.
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * With digits set apart, the pattern sees each stretch between them as a text of its own: a number ends it. */
#include "text/split.h"
#include "text/split_run.h"

/* Past a contraction at `at`, or `at`. */
static size_t contraction(const unsigned char *text, size_t bytes, size_t at)
{
    const size_t left = bytes - at;
    if (left < 2 || text[at] != '\'') return at;
    const unsigned char a = text[at + 1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if (left < 3) return at;
    const unsigned char b = text[at + 2];
    if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l')) return at + 3;
    return at;
}

static inline size_t next_word(const unsigned char *text, size_t bytes, size_t at, bool single_digits)
{
    size_t length;
    const unsigned here = es_char_at(text, bytes, at, &length);
    if (single_digits && here & ES_CHAR_NUMBER) return at + length;
    const size_t past = contraction(text, bytes, at);
    if (past > at) return past;

    /* ` ?` and then a run of one class: a space counts only if such a run follows it. */
    const size_t start = text[at] == ' ' ? at + 1 : at;
    const unsigned first = start == at ? here : es_char_at(text, bytes, start, &length);
    if (first & (ES_CHAR_LETTER | (single_digits ? 0u : ES_CHAR_NUMBER))) return es_run_of(text, bytes, start, first);
    if (first & (ES_CHAR_MARK | ES_CHAR_OTHER)) return es_run_of(text, bytes, start, ES_CHAR_MARK | ES_CHAR_OTHER);
    return es_run_of_space(text, bytes, at, single_digits ? ES_CHAR_NUMBER : 0);
}

size_t es_split_gpt2(const unsigned char *text, size_t bytes, size_t at)
{
    return next_word(text, bytes, at, false);
}

size_t es_split_smollm(const unsigned char *text, size_t bytes, size_t at)
{
    return next_word(text, bytes, at, true);
}

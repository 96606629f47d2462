/* split_llama3.c: the pattern of Llama 3, and its variants of Qwen 2 and Qwen 3.5.
 *
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)         1  a contraction
 *   |[^\r\n\p{L}\p{N}]?\p{L}+            2  letters, with one character before them (Qwen 3.5: [\p{L}\p{M}]+)
 *   |\p{N}{1,3}                          3  digits in threes (Qwen: \p{N}, one by one)
 *   | ?[^\s\p{L}\p{N}]+[\r\n]*           4  symbols, with the line ends behind them (Qwen 3.5: without \p{M})
 *   |\s*[\r\n]+                          5  space up to the last line end of its run
 *   |\s+(?!\S)|\s+                       6  other space */
#include "text/split.h"
#include "text/split_run.h"

/* `(?i)`: either case, and U+017F, the long s, whose capital is S. */
static size_t contraction(const unsigned char *text, size_t bytes, size_t at)
{
    const size_t left = bytes - at;
    if (left < 2 || text[at] != '\'') return at;
    const unsigned char a = text[at + 1] | 32;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if (left < 3) return at;
    if (text[at + 1] == 0xC5 && text[at + 2] == 0xBF) return at + 3;
    const unsigned char b = text[at + 2] | 32;
    if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l')) return at + 3;
    return at;
}

/* Alternatives 5 and 6, at a space: through the last line end of the run if there is one. */
static size_t space(const unsigned char *text, size_t bytes, size_t at)
{
    size_t end = at, after_newline = 0, length;
    for (unsigned class; (class = es_char_at(text, bytes, end, &length)) & ES_CHAR_SPACE;) {
        end += length;
        if (class & ES_CHAR_NEWLINE) after_newline = end;
    }
    return after_newline ? after_newline : es_run_of_space(text, bytes, at, 0);
}

static inline size_t next_word(const unsigned char *text, size_t bytes, size_t at, int digits, unsigned word)
{
    const size_t past = contraction(text, bytes, at);
    if (past > at) return past;

    size_t length, second_length;
    const unsigned first = es_char_at(text, bytes, at, &length);
    if (first & word) {
        /* A mark may be the one character before the letters or the first of the word: the same cut. */
        return es_run_of(text, bytes, at, word);
    }
    if (first & ES_CHAR_NUMBER) {
        size_t end = at;
        for (int i = 0; i < digits && es_char_at(text, bytes, end, &length) & ES_CHAR_NUMBER; i++) end += length;
        return end;
    }
    const unsigned second = es_char_at(text, bytes, at + length, &second_length);
    if (!(first & ES_CHAR_NEWLINE) && second & word) return es_run_of(text, bytes, at + length, word);

    const unsigned symbol = (ES_CHAR_OTHER | ES_CHAR_MARK) & ~word;
    if (first & symbol || (text[at] == ' ' && second & symbol))
        return es_run_of(text, bytes, es_run_of(text, bytes, first & symbol ? at : at + 1, symbol), ES_CHAR_NEWLINE);
    return space(text, bytes, at);
}

size_t es_split_llama3(const unsigned char *text, size_t bytes, size_t at)
{
    return next_word(text, bytes, at, 3, ES_CHAR_LETTER);
}

size_t es_split_qwen2(const unsigned char *text, size_t bytes, size_t at)
{
    return next_word(text, bytes, at, 1, ES_CHAR_LETTER);
}

size_t es_split_qwen35(const unsigned char *text, size_t bytes, size_t at)
{
    return next_word(text, bytes, at, 1, ES_CHAR_LETTER | ES_CHAR_MARK);
}

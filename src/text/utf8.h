/* utf8.h: reading characters out of bytes nobody vouches for, and what kind of character each is.
 *
 * The splitters, the normaliser and the detokenizer all walk UTF-8; they share this one reader, so they agree on where a
 * character ends and on which bytes are none. */
#ifndef ES_TEXT_UTF8_H
#define ES_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Read the character at text[0..bytes), bytes ≥ 1. Returns
 *    1 to 4   its length; *codepoint is set
 *    0        the bytes are a good beginning, the end is missing
 *   −1 to −3  that many bytes can be no part of a character (the longest such beginning, as Unicode recommends for U+FFFD) */
int es_utf8_step(const unsigned char *text, size_t bytes, uint32_t *codepoint);

/** Bytes of the longest valid beginning; an unfinished character is not part of it. */
size_t es_utf8_valid(const unsigned char *text, size_t bytes);

/** What the split patterns ask of a character. */
enum {
    ES_CHAR_LETTER = 1,   /**< \p{L} */
    ES_CHAR_NUMBER = 2,   /**< \p{N} */
    ES_CHAR_MARK = 4,     /**< \p{M} */
    ES_CHAR_SPACE = 8,    /**< \s: Unicode's White_Space */
    ES_CHAR_NEWLINE = 16, /**< CR or LF (a space too) */
    ES_CHAR_OTHER = 32,   /**< none of these */
};

unsigned es_char_class(uint32_t codepoint);
/** Is it part of a word, as \w of Unicode's regular expressions means it? */
bool es_char_is_word(uint32_t codepoint);

/** Class of the character at `at` of valid UTF-8 and its length; at the end of the text both are 0. */
static inline unsigned es_char_at(const unsigned char *text, size_t bytes, size_t at, size_t *length)
{
    *length = 0;
    if (at >= bytes) return 0;
    uint32_t codepoint = 0;
    const int n = es_utf8_step(text + at, bytes - at, &codepoint);
    *length = n > 0 ? (size_t)n : 1;
    return n > 0 ? es_char_class(codepoint) : ES_CHAR_OTHER;
}

#endif

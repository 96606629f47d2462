/* split_run.h: the steps the hand-written splitters are made of. All want valid UTF-8. */
#ifndef ES_TEXT_SPLIT_RUN_H
#define ES_TEXT_SPLIT_RUN_H

#include "text/utf8.h"

/** Past the longest run of characters of a class in `wanted`. */
static inline size_t es_run_of(const unsigned char *text, size_t bytes, size_t at, unsigned wanted)
{
    for (size_t length; es_char_at(text, bytes, at, &length) & wanted;) at += length;
    return at;
}

/** `\s+(?!\S)|\s+` at a space: the whole run when nothing follows it, else all but its last character (which is left for the
 *  word that follows), but at least one. `end` is where the text counts as over: its end, or `stop` (a class that ends it). */
static inline size_t es_run_of_space(const unsigned char *text, size_t bytes, size_t at, unsigned stop)
{
    size_t end = at, last = at, length;
    while (es_char_at(text, bytes, end, &length) & ES_CHAR_SPACE) last = end, end += length;
    const unsigned after = es_char_at(text, bytes, end, &length);
    return after == 0 || (after & stop) || last == at ? end : last;
}

#endif

/* grammar_pattern.c: regular expressions (the part of ECMA-262 that JSON schemas use) as the right sides of rules.
 *
 * Readers differ in what \d, \w and \s are beyond ASCII. A class that such an escape adds to gets what all readers agree is in
 * it; one that it is taken away from loses what any reader might think is in it. So a text made here matches for all. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar_schema_internal.h"
#include "text/utf8.h"

#define LAST_CODE_POINT 0x10FFFF
#define MOST_RANGES     512
#define MOST_NESTING    24 /* each level takes two of a grammar's */
#define MOST_TIMES      (1 << 20)
#define NO_END          INT64_MAX

typedef struct range {
    uint32_t first, last;
} range;

typedef struct char_set {
    range list[MOST_RANGES];
    int count;
} char_set;

/* Characters of the texts that a part matches; most NO_END: there is none. */
typedef struct span {
    int64_t least, most;
} span;

typedef struct reader {
    const char *where;
    const unsigned char *text;
    size_t bytes, at;
    int depth;
    bool json;
    es_text *out;
    int endless;         /* repetitions without an end, one inside a group counting for two */
    int64_t endless_min; /* of the last of them */
    span piece;          /* what it repeats */
    bool pinned;         /* repeat it no more than it must be */
    const span *times;   /* how often it is to be repeated instead; NULL: as it says */
} reader;

static es_status refuse(const reader *p, const char *what)
{
    return es_fail(ES_UNSUPPORTED, "%s: the pattern cannot be followed at its byte %zu: %s", p->where, p->at, what);
}

static int peek(const reader *p)
{
    return p->at < p->bytes ? p->text[p->at] : -1;
}

static bool accept(reader *p, const char *what)
{
    const size_t n = strlen(what);
    if (p->bytes - p->at < n || memcmp(p->text + p->at, what, n) != 0) return false;
    p->at += n;
    return true;
}

/* ---- sets of characters ---- */

static es_status add(const reader *p, char_set *set, uint32_t first, uint32_t last)
{
    if (set->count == MOST_RANGES) return refuse(p, "a class has too many parts");
    set->list[set->count++] = (range){first, last};
    return ES_OK;
}

static int compare(const void *a, const void *b)
{
    const range *left = a, *right = b;
    return (left->first > right->first) - (left->first < right->first);
}

static void settle(char_set *set)
{
    int kept = 0;
    qsort(set->list, (size_t)set->count, sizeof *set->list, compare);
    for (int i = 0; i < set->count; i++) {
        if (kept && set->list[i].first <= set->list[kept - 1].last + 1) {
            if (set->list[i].last > set->list[kept - 1].last) set->list[kept - 1].last = set->list[i].last;
        } else {
            set->list[kept++] = set->list[i];
        }
    }
    set->count = kept;
}

static es_status negate(const reader *p, char_set *set)
{
    char_set gaps = {.count = 0};
    uint32_t from = 0;
    settle(set);
    for (int i = 0; i < set->count; i++) {
        if (set->list[i].first > from) ES_TRY(add(p, &gaps, from, set->list[i].first - 1));
        from = set->list[i].last + 1;
    }
    if (from <= LAST_CODE_POINT) ES_TRY(add(p, &gaps, from, LAST_CODE_POINT));
    *set = gaps;
    return ES_OK;
}

/* \d \w \s and their opposites; `most`: all that any reader may mean, else what all mean. */
static es_status add_shorthand(const reader *p, char_set *set, int letter, bool most)
{
    static const struct {
        char letter;
        range list[6];
        int count;
    } shorthands[] = {
        {'d', {{'0', '9'}},                                                                        1},
        {'w', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},                                    4},
        {'s', {{'\t', '\r'}, {' ', ' '}},                                                          2},
        {'D', {{0, '0' - 1}, {'9' + 1, 0x7F}},                                                     2},
        {'W', {{0, '0' - 1}, {'9' + 1, 'A' - 1}, {'Z' + 1, '_' - 1}, {'`', '`'}, {'z' + 1, 0x7F}}, 5},
        {'S', {{0, '\t' - 1}, {'\r' + 1, 0x1B}, {'!', 0x7F}},                                      3},
    };
    for (size_t i = 0; i < sizeof shorthands / sizeof *shorthands; i++) {
        if (shorthands[i].letter != letter) continue;
        for (int k = 0; k < shorthands[i].count; k++)
            ES_TRY(add(p, set, shorthands[i].list[k].first, shorthands[i].list[k].last));
    }
    if (most && (letter == 's' || letter == 'S')) ES_TRY(add(p, set, 0x1C, 0x1F));
    return most ? add(p, set, 0x80, LAST_CODE_POINT) : ES_OK;
}

static bool is_shorthand(int letter)
{
    return letter > 0 && strchr("dwsDWS", letter) != NULL;
}

static es_status read_hex(reader *p, int least, int most, uint32_t *codepoint)
{
    int digits = 0;
    for (*codepoint = 0; digits < most; digits++, p->at++) {
        const int c = peek(p);
        const int value = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (value < 0) break;
        *codepoint = *codepoint << 4 | (uint32_t)value;
    }
    if (digits < least) return refuse(p, "an escape lacks hexadecimal digits");
    if (*codepoint > LAST_CODE_POINT || (*codepoint >= 0xD800 && *codepoint <= 0xDFFF))
        return refuse(p, "this is no character");
    return ES_OK;
}

/* A character behind a backslash, which has been read. */
static es_status read_escape(reader *p, bool in_class, uint32_t *codepoint)
{
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    const int c = peek(p);
    if (c < 0) return refuse(p, "it ends in a backslash");
    p->at++;
    const char *known = strchr(from, c);
    if (known && c) {
        *codepoint = (unsigned char)to[known - from];
        return c == '0' && peek(p) >= '0' && peek(p) <= '9' ? refuse(p, "octal escapes are not supported") : ES_OK;
    }
    if (c == 'x') return read_hex(p, 2, 2, codepoint);
    if (c == 'u' && accept(p, "{")) {
        ES_TRY(read_hex(p, 1, 6, codepoint));
        return accept(p, "}") ? ES_OK : refuse(p, "'}' is missing");
    }
    if (c == 'u') return read_hex(p, 4, 4, codepoint);
    if (in_class && c == 'b') {
        *codepoint = '\b';
        return ES_OK;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80)
        return refuse(p, "this escape is not supported (back references, \\b and \\p are not)");
    *codepoint = (uint32_t)c;
    return ES_OK;
}

static es_status read_plain(reader *p, uint32_t *codepoint)
{
    const int length = es_utf8_step(p->text + p->at, p->bytes - p->at, codepoint);
    if (length <= 0) return refuse(p, "this is not UTF-8");
    p->at += (size_t)length;
    return ES_OK;
}

/* One end of a range; *shorthand is its letter if it is none. */
static es_status read_class_atom(reader *p, uint32_t *codepoint, int *shorthand)
{
    *shorthand = 0;
    if (!accept(p, "\\")) return read_plain(p, codepoint);
    if (!is_shorthand(peek(p))) return read_escape(p, true, codepoint);
    *shorthand = peek(p);
    p->at++;
    return ES_OK;
}

static es_status read_class(reader *p, char_set *set)
{
    const bool negated = accept(p, "^");
    set->count = 0;
    while (!accept(p, "]")) {
        uint32_t first, last;
        int shorthand, other;
        if (peek(p) < 0) return refuse(p, "a class is never closed");
        ES_TRY(read_class_atom(p, &first, &shorthand));
        if (shorthand) {
            ES_TRY(add_shorthand(p, set, shorthand, negated));
            continue;
        }
        last = first;
        if (peek(p) == '-' && p->at + 1 < p->bytes && p->text[p->at + 1] != ']') {
            p->at++;
            ES_TRY(read_class_atom(p, &last, &other));
            if (other) return refuse(p, "a range ends in a class");
            if (last < first) return refuse(p, "a range runs backwards");
        }
        ES_TRY(add(p, set, first, last));
    }
    return negated ? negate(p, set) : ES_OK;
}

/* ---- writing ---- */

static void put_class_character(uint32_t c, es_text *out)
{
    if (c < 0x20 || c == 0x7F)
        es_text_printf(out, "\\x%02X", (unsigned)c);
    else if (strchr("]^[-\\\"", (int)(c < 0x80 ? c : 'a')))
        es_text_printf(out, "\\%c", (char)c);
    else
        es_text_put_codepoint(out, c);
}

static void put_ranges(const char_set *set, es_text *out)
{
    es_text_putc(out, '[');
    for (int i = 0; i < set->count; i++) {
        uint32_t first = set->list[i].first, last = set->list[i].last;
        if (first >= 0xD800 && first <= 0xDFFF) first = 0xE000; /* surrogates are no characters */
        if (last >= 0xD800 && last <= 0xDFFF) last = 0xD7FF;
        if (first > last) continue;
        put_class_character(first, out);
        if (last == first) continue;
        es_text_putc(out, '-');
        put_class_character(last, out);
    }
    es_text_putc(out, ']');
}

/* How a character is written in a JSON string, if not as itself; NULL: as itself. */
static const char *json_escape(uint32_t c, char buffer[8])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (known)
        snprintf(buffer, 8, "\\%c", to[known - from]);
    else if (c < 0x20)
        snprintf(buffer, 8, "\\u%04x", (unsigned)c);
    else
        return NULL;
    return buffer;
}

static bool contains(const char_set *set, uint32_t c)
{
    for (int i = 0; i < set->count; i++)
        if (c >= set->list[i].first && c <= set->list[i].last) return true;
    return false;
}

/* What is left of the set when control characters, the quotation mark and the backslash are written as escapes. */
static es_status put_set(const reader *p, char_set *set)
{
    static const range kept[] = {
        {0x20, 0x21           },
        {0x23, 0x5B           },
        {0x5D, LAST_CODE_POINT}
    };
    char_set plain = {.count = 0};
    es_text escapes = {0};
    char buffer[8];
    settle(set);
    if (!p->json) {
        put_ranges(set, p->out);
        return ES_OK;
    }
    for (int i = 0; i < set->count; i++)
        for (int k = 0; k < 3; k++) {
            const uint32_t first = set->list[i].first > kept[k].first ? set->list[i].first : kept[k].first;
            const uint32_t last = set->list[i].last < kept[k].last ? set->list[i].last : kept[k].last;
            if (first <= last) ES_TRY(add(p, &plain, first, last));
        }
    for (uint32_t c = 1; c <= '\\'; c++) { /* U+0000 is left out: not everybody can read it */
        const char *escape = contains(set, c) ? json_escape(c, buffer) : NULL;
        if (!escape) continue;
        es_text_puts(&escapes, " | ");
        es_grammar_add_literal(&escapes, escape, strlen(escape));
    }
    if (escapes.bytes) es_text_putc(p->out, '(');
    put_ranges(&plain, p->out);
    if (escapes.bytes) {
        es_text_append(p->out, escapes.data, escapes.bytes);
        es_text_putc(p->out, ')');
    }
    p->out->failed |= escapes.failed;
    es_text_free(&escapes);
    return ES_OK;
}

static es_status put_character(const reader *p, uint32_t c)
{
    char buffer[8];
    const char *escape = p->json ? json_escape(c, buffer) : NULL;
    es_text one = {0};
    if (c == 0 && p->json) return refuse(p, "U+0000 cannot be read by everybody in JSON");
    es_text_put_codepoint(&one, c);
    if (escape)
        es_grammar_add_literal(p->out, escape, strlen(escape));
    else if (!one.failed)
        es_grammar_add_literal(p->out, one.data, one.bytes);
    p->out->failed |= one.failed;
    es_text_free(&one);
    return ES_OK;
}

/* ---- the expression ---- */

static int64_t add_lengths(int64_t a, int64_t b)
{
    return a > NO_END - b ? NO_END : a + b;
}

static int64_t times_length(int64_t length, int64_t times)
{
    if (length == 0 || times == 0) return 0;
    return times > NO_END / length ? NO_END : length * times;
}

static es_status put_alternatives(reader *p, span *length);

static es_status put_group(reader *p, span *length)
{
    if (accept(p, "?")) {
        if (accept(p, "<") && peek(p) != '=' && peek(p) != '!') { /* a name is of no use here */
            while (peek(p) >= 0 && peek(p) != '>') p->at++;
            if (!accept(p, ">")) return refuse(p, "a group's name is never closed");
        } else if (!accept(p, ":")) {
            return refuse(p, "looking ahead and behind is not supported");
        }
    }
    if (++p->depth > MOST_NESTING) return refuse(p, "groups are nested too deeply");
    es_text_putc(p->out, '(');
    ES_TRY(put_alternatives(p, length));
    es_text_putc(p->out, ')');
    p->depth--;
    return accept(p, ")") ? ES_OK : refuse(p, "a group is never closed");
}

static es_status put_atom(reader *p, span *length)
{
    *length = (span){1, 1};
    char_set set = {.count = 0};
    uint32_t c;
    const int first = peek(p);
    if (accept(p, "(")) return put_group(p, length);
    if (accept(p, "[")) {
        ES_TRY(read_class(p, &set));
        return put_set(p, &set);
    }
    if (accept(p, ".")) { /* all but the ends of lines */
        ES_TRY(add(p, &set, '\n', '\n'));
        ES_TRY(add(p, &set, '\r', '\r'));
        ES_TRY(add(p, &set, 0x85, 0x85));
        ES_TRY(add(p, &set, 0x2028, 0x2029));
        ES_TRY(negate(p, &set));
        return put_set(p, &set);
    }
    if (accept(p, "\\")) {
        if (is_shorthand(peek(p))) {
            ES_TRY(add_shorthand(p, &set, peek(p), false));
            p->at++;
            return put_set(p, &set);
        }
        ES_TRY(read_escape(p, false, &c));
        return put_character(p, c);
    }
    if (first == '^' || first == '$') return refuse(p, "'^' and '$' are supported at the ends of the whole pattern only");
    if (first == '*' || first == '+' || first == '?' || first == '{') return refuse(p, "there is nothing to repeat");
    ES_TRY(read_plain(p, &c));
    return put_character(p, c);
}

static es_status read_times(reader *p, int64_t *times, bool *given)
{
    *times = 0;
    *given = false;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        *times = *times * 10 + (peek(p) - '0');
        *given = true;
        if (*times > MOST_TIMES) return refuse(p, "too many repetitions");
    }
    return ES_OK;
}

/* *, +, ?, {m}, {m,}, {m,n} as numbers; a lazy one takes the same texts. */
static es_status read_quantifier(reader *p, int64_t *min, int64_t *max)
{
    bool given, has_max = true;
    const int c = peek(p);
    *min = *max = 1;
    if (c != '*' && c != '+' && c != '?' && c != '{') return ES_OK;
    p->at++;
    if (c == '{') {
        ES_TRY(read_times(p, min, &given));
        if (!given) return refuse(p, "a number is missing");
        *max = *min;
        if (accept(p, ",")) ES_TRY(read_times(p, max, &has_max));
        if (!has_max) *max = NO_END;
        if (!accept(p, "}")) return refuse(p, "'}' is missing");
        if (*max < *min) return refuse(p, "a repetition has a maximum below its minimum");
    } else {
        *min = c == '+';
        *max = c == '?' ? 1 : NO_END;
    }
    accept(p, "?");
    return peek(p) == '*' || peek(p) == '+' || peek(p) == '{' ? refuse(p, "a repetition is repeated") : ES_OK;
}

static es_status put_quantifier(reader *p, span *length)
{
    int64_t min, max;
    ES_TRY(read_quantifier(p, &min, &max));
    if (max == NO_END) {
        p->endless += p->depth ? 2 : 1;
        p->endless_min = min;
        p->piece = *length;
        if (p->pinned) max = min;
        if (p->times) min = p->times->least, max = p->times->most;
    }
    if (max == NO_END && min < 2)
        es_text_putc(p->out, min ? '+' : '*');
    else if (max == NO_END)
        es_text_printf(p->out, "{%d,}", (int)min);
    else if (min == 0 && max == 1)
        es_text_putc(p->out, '?');
    else if (min != 1 || max != 1)
        es_text_printf(p->out, "{%d,%d}", (int)min, (int)max);
    length->least = times_length(length->least, min);
    length->most = times_length(length->most, max);
    return ES_OK;
}

static bool ends_alternative(const reader *p)
{
    const int c = peek(p);
    return c < 0 || c == '|' || c == ')' ||
           (c == '$' && p->depth == 0 && (p->at + 1 == p->bytes || p->text[p->at + 1] == '|'));
}

static void put_anything(reader *p)
{
    p->endless += 2;
    es_text_puts(p->out, "json-char* ");
}

static es_status put_alternative(reader *p, span *length)
{
    *length = (span){0, 0};
    const bool top = p->depth == 0;
    const bool from_start = top && accept(p, "^");
    if (top && p->json && !from_start) put_anything(p);
    es_text_puts(p->out, "\"\" ");
    while (!ends_alternative(p)) {
        span part;
        ES_TRY(put_atom(p, &part));
        ES_TRY(put_quantifier(p, &part));
        length->least = add_lengths(length->least, part.least);
        length->most = add_lengths(length->most, part.most);
        es_text_putc(p->out, ' ');
    }
    const bool to_end = top && accept(p, "$");
    if (top && p->json && !to_end) put_anything(p);
    if (top && p->json && !(from_start && to_end)) length->most = NO_END;
    return ES_OK;
}

static es_status put_alternatives(reader *p, span *length)
{
    *length = (span){NO_END, 0};
    for (;;) {
        span one;
        ES_TRY(put_alternative(p, &one));
        if (one.least < length->least) length->least = one.least;
        if (one.most > length->most) length->most = one.most;
        if (!accept(p, "|")) return ES_OK;
        es_text_puts(p->out, "| ");
    }
}

static es_status put_pattern(reader *p, span *length)
{
    es_text_puts(p->out, "(");
    ES_TRY(put_alternatives(p, length));
    es_text_puts(p->out, ")");
    return p->at == p->bytes ? ES_OK : refuse(p, "a ')' was never opened");
}

es_status es_pattern_put(es_text *body, const char *where, const char *text, size_t bytes, bool json)
{
    span length;
    reader p = {.where = where, .text = (const unsigned char *)text, .bytes = bytes, .json = json, .out = body};
    return put_pattern(&p, &length);
}

/* How often the one endless repetition is to happen so that lengths stay between `wanted`'s; `pinned` are those that come out
 * when it happens as rarely as it can. False: there is no such number. */
static bool choose_times(const reader *p, const span *pinned, const span *wanted, span *times)
{
    const int64_t least = p->piece.least, most = p->piece.most;
    if (p->endless != 1 || least == 0 || most == NO_END || wanted->least > MOST_TIMES) return false;
    const int64_t missing = wanted->least > pinned->least ? wanted->least - pinned->least : 0;
    times->least = p->endless_min + (missing + least - 1) / least;
    times->most = NO_END;
    if (wanted->most < MOST_TIMES) times->most = p->endless_min + (wanted->most - pinned->most) / most;
    return (wanted->most >= MOST_TIMES || wanted->most >= pinned->most) && times->least <= times->most;
}

es_status es_pattern_put_within(es_text *body, const char *where, const char *text, size_t bytes, int64_t least, int64_t most,
                                bool *fits)
{
    const span wanted = {least, most};
    span length, times;
    es_text scratch = {0};
    reader first = {
        .where = where, .text = (const unsigned char *)text, .bytes = bytes, .json = true, .out = &scratch, .pinned = true};
    es_status status = put_pattern(&first, &length);
    *fits = status == ES_OK && first.endless == 0 && length.least >= least && length.most <= most;
    if (*fits) es_text_append(body, scratch.data, scratch.bytes);
    es_text_free(&scratch);
    if (status != ES_OK || *fits || !choose_times(&first, &length, &wanted, &times)) return status;
    reader second = {
        .where = where, .text = (const unsigned char *)text, .bytes = bytes, .json = true, .out = body, .times = &times};
    *fits = true;
    return put_pattern(&second, &length);
}

es_status es_grammar_add_pattern(es_text *gbnf, const char *name, const char *where, const char *pattern, size_t bytes)
{
    es_text_printf(gbnf, "%s ::= ", name);
    ES_TRY(es_pattern_put(gbnf, where, pattern, bytes, false));
    es_text_putc(gbnf, '\n');
    return gbnf->failed ? es_fail(ES_NO_MEMORY, "no memory for a pattern's rule") : ES_OK;
}

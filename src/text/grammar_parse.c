/* grammar_parse.c: from GBNF text to a tree for each rule.
 *
 * The notation is llama.cpp's: a rule is `name ::= alternatives` on one line, or over several where a line ends after `::=`
 * or `|` or inside parentheses; items are "literals", [classes], `.`, names and ( groups ), each perhaps with * + ? or {m,n}
 * behind it; `#` begins a comment. Nothing here runs long: each byte is looked at a few times. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar_internal.h"
#include "text/tables.h"
#include "text/utf8.h"

#define LAST_CODE_POINT  0x10FFFF
#define MOST_REPETITIONS 4 /* x**** */

typedef struct parser {
    es_gram_tree *tree;
    const unsigned char *text;
    size_t bytes, at;
    int depth;
    es_name_table names; /* rule numbers */
} parser;

void *es_gram_reserve(es_gram_list *list, uint32_t more, size_t size)
{
    if (more > list->limit - list->count) return NULL;
    if (list->count + more > list->capacity) {
        uint32_t capacity = list->capacity < 8 ? 16 : list->capacity * 2;
        if (capacity < list->count + more) capacity = list->count + more;
        void *grown = realloc(list->data, capacity * size);
        if (!grown) return NULL;
        list->data = grown;
        list->capacity = capacity;
    }
    return (char *)list->data + list->count * size;
}

es_status es_gram_fail(const es_gram_tree *tree, size_t at, const char *format, ...)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < tree->bytes; i++) {
        column++;
        if (tree->text[i] == '\n') line++, column = 1;
    }
    char sentence[400];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return es_fail(ES_INVALID, "grammar, line %zu, column %zu: %s", line, column, sentence);
}

static es_status too_large(const parser *p)
{
    return es_gram_fail(p->tree, p->at, "the grammar is too large (at most %d rules and %d parts)", ES_GRAMMAR_RULES_MAX,
                        ES_GRAMMAR_STATES_MAX);
}

static es_gram_node *node_at(const parser *p, uint32_t number)
{
    return (es_gram_node *)p->tree->nodes.data + number;
}

static es_status add_node(parser *p, es_gram_node node, uint32_t *number)
{
    es_gram_node *place = es_gram_reserve(&p->tree->nodes, 1, sizeof node);
    if (!place) return too_large(p);
    *place = node;
    *number = p->tree->nodes.count++;
    return ES_OK;
}

/* ---- characters ---- */

static bool looking_at(const parser *p, const char *what)
{
    const size_t n = strlen(what);
    return p->bytes - p->at >= n && memcmp(p->text + p->at, what, n) == 0;
}

static int peek(const parser *p)
{
    return p->at < p->bytes ? p->text[p->at] : -1;
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static void skip_space(parser *p, bool lines)
{
    for (;;) {
        const int c = peek(p);
        if (c == '#') {
            while (p->at < p->bytes && p->text[p->at] != '\n') p->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static es_status read_hex(parser *p, int digits, uint32_t *codepoint)
{
    *codepoint = 0;
    for (int i = 0; i < digits; i++) {
        const int value = hex_digit(peek(p));
        if (value < 0) return es_gram_fail(p->tree, p->at, "an escape needs %d hexadecimal digits here", digits);
        *codepoint = *codepoint << 4 | (uint32_t)value;
        p->at++;
    }
    if (*codepoint > LAST_CODE_POINT || (*codepoint >= 0xD800 && *codepoint <= 0xDFFF))
        return es_gram_fail(p->tree, p->at, "U+%04X is no character", (unsigned)*codepoint);
    return ES_OK;
}

/* One character of a literal or a class, escaped or not. */
static es_status read_character(parser *p, uint32_t *codepoint)
{
    if (peek(p) != '\\') {
        const int n = es_utf8_step(p->text + p->at, p->bytes - p->at, codepoint);
        if (n <= 0) return es_gram_fail(p->tree, p->at, "this is not UTF-8");
        p->at += (size_t)n;
        return ES_OK;
    }
    p->at++;
    const int c = peek(p);
    if (c < 0) return es_gram_fail(p->tree, p->at, "the text ends in an escape");
    p->at++;
    switch (c) {
    case 'x': return read_hex(p, 2, codepoint);
    case 'u': return read_hex(p, 4, codepoint);
    case 'U': return read_hex(p, 8, codepoint);
    case 'n': *codepoint = '\n'; return ES_OK;
    case 'r': *codepoint = '\r'; return ES_OK;
    case 't': *codepoint = '\t'; return ES_OK;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '^':
    case '-': *codepoint = (uint32_t)c; return ES_OK;
    default:
        return es_gram_fail(p->tree, p->at - 1,
                            "there is no such escape; known: \\n \\r \\t \\\\ \\\" \\[ \\] \\^ \\- \\xHH \\uHHHH \\UHHHHHHHH");
    }
}

/* ---- items ---- */

static es_status read_literal(parser *p, uint32_t *number)
{
    const size_t begin = p->at++;
    const size_t first = p->tree->literals.bytes;
    while (peek(p) != '"') {
        if (peek(p) < 0 || peek(p) == '\n')
            return es_gram_fail(p->tree, begin, "this literal has no closing quote on its line");
        uint32_t codepoint;
        ES_TRY(read_character(p, &codepoint));
        es_text_put_codepoint(&p->tree->literals, codepoint);
    }
    p->at++;
    if (p->tree->literals.failed) return es_fail(ES_NO_MEMORY, "no memory for a grammar");
    const uint32_t bytes = (uint32_t)(p->tree->literals.bytes - first);
    return add_node(p, (es_gram_node){.kind = ES_GRAM_LITERAL, .first = (uint32_t)first, .count = bytes}, number);
}

static int compare_ranges(const void *a, const void *b)
{
    const es_gram_range *left = a, *right = b;
    return (left->first > right->first) - (left->first < right->first);
}

/* The ranges from `first` on: sorted, joined where they touch, turned round if `negated`. */
static es_status settle_ranges(parser *p, uint32_t first, bool negated)
{
    es_gram_list *list = &p->tree->ranges;
    if (!es_gram_reserve(list, 1, sizeof(es_gram_range))) return too_large(p);
    es_gram_range *ranges = (es_gram_range *)list->data + first;
    const uint32_t count = list->count - first;
    uint32_t kept = 0;
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (uint32_t i = 0; i < count; i++) {
        if (kept && ranges[i].first <= ranges[kept - 1].last + 1) {
            if (ranges[i].last > ranges[kept - 1].last) ranges[kept - 1].last = ranges[i].last;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    if (negated) { /* the gaps, of which there may be one more */
        uint32_t from = 0, gaps = 0;
        for (uint32_t i = 0; i < kept; i++) {
            const es_gram_range r = ranges[i];
            if (r.first > from) ranges[gaps++] = (es_gram_range){from, r.first - 1};
            from = r.last + 1;
        }
        if (from <= LAST_CODE_POINT) ranges[gaps++] = (es_gram_range){from, LAST_CODE_POINT};
        kept = gaps;
    }
    list->count = first + kept;
    return ES_OK;
}

static es_status add_range(parser *p, uint32_t first, uint32_t last)
{
    es_gram_range *place = es_gram_reserve(&p->tree->ranges, 1, sizeof *place);
    if (!place) return too_large(p);
    *place = (es_gram_range){first, last};
    p->tree->ranges.count++;
    return ES_OK;
}

static es_status read_class(parser *p, uint32_t *number)
{
    const size_t begin = p->at++;
    const uint32_t first = p->tree->ranges.count;
    const bool negated = peek(p) == '^';
    if (negated) p->at++;
    while (peek(p) != ']') {
        if (peek(p) < 0 || peek(p) == '\n')
            return es_gram_fail(p->tree, begin, "this class has no closing bracket on its line");
        uint32_t from, to;
        ES_TRY(read_character(p, &from));
        to = from;
        if (peek(p) == '-' && p->at + 1 < p->bytes && p->text[p->at + 1] != ']') {
            p->at++;
            ES_TRY(read_character(p, &to));
            if (to < from) return es_gram_fail(p->tree, p->at, "this range runs backwards");
        }
        ES_TRY(add_range(p, from, to));
    }
    p->at++;
    ES_TRY(settle_ranges(p, first, negated));
    return add_node(p, (es_gram_node){.kind = ES_GRAM_CLASS, .first = first, .count = p->tree->ranges.count - first}, number);
}

static es_status find_rule(parser *p, size_t begin, uint32_t *rule)
{
    const char *name = (const char *)p->text + begin;
    const size_t bytes = p->at - begin;
    const int32_t known = es_name_table_find(&p->names, name, bytes);
    if (known >= 0) {
        *rule = (uint32_t)known;
        return ES_OK;
    }
    es_gram_rule *place = es_gram_reserve(&p->tree->rules, 1, sizeof *place);
    if (!place) return too_large(p);
    *place = (es_gram_rule){.name = name, .name_bytes = (uint32_t)bytes, .where = (uint32_t)begin};
    *rule = p->tree->rules.count++;
    es_name_table_add(&p->names, name, bytes, (int32_t)*rule);
    return ES_OK;
}

static es_status read_name(parser *p, uint32_t *rule)
{
    const size_t begin = p->at;
    while (is_name(peek(p))) p->at++;
    if (p->at == begin) return es_gram_fail(p->tree, begin, "a rule's name is expected here");
    return find_rule(p, begin, rule);
}

static es_status read_alternatives(parser *p, uint32_t *number);

static es_status read_group(parser *p, uint32_t *number)
{
    const size_t begin = p->at++;
    if (++p->depth > ES_GRAMMAR_NEST_MAX)
        return es_gram_fail(p->tree, begin, "parentheses are nested deeper than %d", ES_GRAMMAR_NEST_MAX);
    ES_TRY(read_alternatives(p, number));
    if (peek(p) != ')') return es_gram_fail(p->tree, begin, "this parenthesis is never closed");
    p->at++;
    p->depth--;
    return ES_OK;
}

static es_status read_item(parser *p, uint32_t *number)
{
    switch (peek(p)) {
    case '"': return read_literal(p, number);
    case '[': return read_class(p, number);
    case '(': return read_group(p, number);
    case '.': {
        p->at++;
        const uint32_t first = p->tree->ranges.count;
        ES_TRY(add_range(p, 0, LAST_CODE_POINT));
        return add_node(p, (es_gram_node){.kind = ES_GRAM_CLASS, .first = first, .count = 1}, number);
    }
    default: {
        uint32_t rule;
        ES_TRY(read_name(p, &rule));
        return add_node(p, (es_gram_node){.kind = ES_GRAM_REF, .first = rule}, number);
    }
    }
}

static es_status read_count(parser *p, uint32_t *count)
{
    const size_t begin = p->at;
    uint64_t value = 0;
    while (peek(p) >= '0' && peek(p) <= '9') {
        value = value * 10 + (uint64_t)(peek(p) - '0');
        p->at++;
        if (value > ES_GRAMMAR_REPEAT_MAX)
            return es_gram_fail(p->tree, begin, "a repetition can be at most %d", ES_GRAMMAR_REPEAT_MAX);
    }
    if (p->at == begin) return es_gram_fail(p->tree, begin, "a number is expected here");
    *count = (uint32_t)value;
    return ES_OK;
}

/* {m}, {m,} and {m,n} */
static es_status read_braces(parser *p, bool lines, uint32_t *min, uint32_t *max)
{
    const size_t begin = p->at++;
    skip_space(p, lines);
    ES_TRY(read_count(p, min));
    *max = *min;
    skip_space(p, lines);
    if (peek(p) == ',') {
        p->at++;
        skip_space(p, lines);
        *max = ES_GRAM_NO_END;
        if (peek(p) != '}') ES_TRY(read_count(p, max));
        skip_space(p, lines);
    }
    if (peek(p) != '}') return es_gram_fail(p->tree, p->at, "'}' is expected here");
    p->at++;
    return *max < *min ? es_gram_fail(p->tree, begin, "this repetition has a maximum below its minimum") : ES_OK;
}

/* What stands behind an item, several times perhaps. */
static es_status read_repetitions(parser *p, bool lines, uint32_t *number)
{
    for (int times = 0;; times++) {
        uint32_t min = 0, max = ES_GRAM_NO_END;
        skip_space(p, lines);
        const int c = peek(p);
        if (c != '*' && c != '+' && c != '?' && c != '{') return ES_OK;
        if (times == MOST_REPETITIONS) return es_gram_fail(p->tree, p->at, "too many repetitions of repetitions");
        if (c == '{') {
            ES_TRY(read_braces(p, lines, &min, &max));
        } else {
            p->at++;
            min = c == '+';
            if (c == '?') max = 1;
        }
        ES_TRY(add_node(p, (es_gram_node){.kind = ES_GRAM_REPEAT, .child = *number, .min = min, .max = max}, number));
    }
}

static bool ends_sequence(const parser *p)
{
    const int c = peek(p);
    return c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r';
}

static es_status read_sequence(parser *p, uint32_t *number)
{
    const bool lines = p->depth > 0;
    uint32_t last = 0;
    ES_TRY(add_node(p, (es_gram_node){.kind = ES_GRAM_SEQUENCE}, number));
    for (;;) {
        skip_space(p, lines);
        if (ends_sequence(p)) return ES_OK;
        uint32_t item;
        ES_TRY(read_item(p, &item));
        ES_TRY(read_repetitions(p, lines, &item));
        if (last)
            node_at(p, last)->next = item;
        else
            node_at(p, *number)->child = item;
        last = item;
    }
}

static es_status read_alternatives(parser *p, uint32_t *number)
{
    uint32_t last = 0;
    ES_TRY(add_node(p, (es_gram_node){.kind = ES_GRAM_ALTERNATIVES}, number));
    for (;;) {
        uint32_t sequence;
        ES_TRY(read_sequence(p, &sequence));
        if (last)
            node_at(p, last)->next = sequence;
        else
            node_at(p, *number)->child = sequence;
        last = sequence;
        if (peek(p) != '|') return ES_OK;
        p->at++;
        skip_space(p, true);
    }
}

/* Bytes of a rule's name for a message. */
static int shown(const es_gram_rule *rule)
{
    return rule->name_bytes < 99 ? (int)rule->name_bytes : 99;
}

static es_status read_rule(parser *p)
{
    const size_t begin = p->at;
    uint32_t rule, body;
    ES_TRY(read_name(p, &rule));
    skip_space(p, false);
    if (!looking_at(p, "::=")) return es_gram_fail(p->tree, p->at, "'::=' is expected here");
    p->at += 3;
    skip_space(p, true);
    ES_TRY(read_alternatives(p, &body));
    if (peek(p) == ')') return es_gram_fail(p->tree, p->at, "this parenthesis was never opened");
    es_gram_rule *place = (es_gram_rule *)p->tree->rules.data + rule;
    if (place->body) return es_gram_fail(p->tree, begin, "the rule %.*s is there twice", shown(place), place->name);
    place->body = body;
    return ES_OK;
}

static es_status read_all(parser *p)
{
    uint32_t nobody;
    ES_TRY(add_node(p, (es_gram_node){.kind = ES_GRAM_SEQUENCE}, &nobody));
    for (skip_space(p, true); p->at < p->bytes; skip_space(p, true)) ES_TRY(read_rule(p));
    const es_gram_rule *rules = p->tree->rules.data;
    for (uint32_t i = 0; i < p->tree->rules.count; i++)
        if (!rules[i].body)
            return es_gram_fail(p->tree, rules[i].where, "the rule %.*s does not exist", shown(&rules[i]), rules[i].name);
    const int32_t root = es_name_table_find(&p->names, "root", 4);
    if (root < 0) return es_gram_fail(p->tree, 0, "there is no rule \"root\"");
    p->tree->root = (uint32_t)root;
    return ES_OK;
}

es_status es_gram_parse(const char *text, size_t bytes, es_gram_tree *tree)
{
    *tree = (es_gram_tree){.text = text,
                           .bytes = bytes,
                           .nodes.limit = ES_GRAMMAR_STATES_MAX,
                           .ranges.limit = ES_GRAMMAR_STATES_MAX,
                           .rules.limit = ES_GRAMMAR_RULES_MAX};
    if (bytes > ES_GRAMMAR_BYTES_MAX)
        return es_fail(ES_INVALID, "the grammar has %zu bytes; at most %d are possible", bytes, ES_GRAMMAR_BYTES_MAX);
    parser p = {.tree = tree, .text = (const unsigned char *)text, .bytes = bytes};
    if (!es_name_table_open(&p.names, ES_GRAMMAR_RULES_MAX)) return es_fail(ES_NO_MEMORY, "no memory for a grammar");
    const es_status status = read_all(&p);
    es_name_table_close(&p.names);
    return status;
}

void es_gram_tree_free(es_gram_tree *tree)
{
    free(tree->nodes.data);
    free(tree->ranges.data);
    es_text_free(&tree->literals);
    free(tree->rules.data);
    *tree = (es_gram_tree){0};
}

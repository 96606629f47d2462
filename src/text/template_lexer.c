/* template_lexer.c: a template's source to tokens.
 *
 * Half of Jinja2 is here: which white space around a tag belongs to the text. "-" next to a tag removes all of it on that
 * side, "+" keeps it; otherwise a newline right after {% %} and {# #} goes (trim_blocks), and so do blanks between the start
 * of a line and {% or {# (lstrip_blocks). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/template_syntax.h"

typedef struct lexer {
    tpl_run *run;
    const char *p, *end;
    bool line_start; /* what was read last ended with a newline */
    tpl_tokens *out;
    char closers[256]; /* brackets that are open inside the current tag */
    unsigned open;
    tpl_token scratch; /* what is written to after a failure */
} lexer;

static bool at(const lexer *lex, const char *p, const char *text)
{
    const size_t n = strlen(text);
    return (size_t)(lex->end - p) >= n && memcmp(p, text, n) == 0;
}

static tpl_token *add(lexer *lex, tpl_token_kind kind)
{
    tpl_tokens *out = lex->out;
    if (out->count == out->capacity) {
        const size_t capacity = out->capacity ? out->capacity * 2 : 256;
        tpl_token *items = tpl_take(lex->run, capacity, sizeof *items);
        if (!items) return &lex->scratch;
        if (out->count) memcpy(items, out->items, out->count * sizeof *items);
        out->items = items;
        out->capacity = capacity;
    }
    tpl_token *token = &out->items[out->count++];
    *token = (tpl_token){.kind = kind, .line = lex->run->line};
    return token;
}

static void advance(lexer *lex, const char *to)
{
    for (const char *p = lex->p; p < to; p++) lex->run->line += *p == '\n';
    if (to > lex->p) lex->line_start = to[-1] == '\n';
    lex->p = to;
}

static const char *skip_space(const lexer *lex, const char *p)
{
    while (p < lex->end) {
        uint32_t c;
        const size_t n = tpl_decode(p, lex->end, &c);
        if (!tpl_is_space(c)) break;
        p += n;
    }
    return p;
}

static const char *trim_end(const char *start, const char *end)
{
    while (end > start) {
        const char *p = end - 1;
        while (p > start && ((unsigned char)*p & 0xC0) == 0x80) p--;
        uint32_t c;
        tpl_decode(p, end, &c);
        if (!tpl_is_space(c)) break;
        end = p;
    }
    return end;
}

/* The text before a tag, less what the tag's left side (`sign`) takes away. */
static void add_text(lexer *lex, const char *start, const char *end, char sign, bool strip_line)
{
    const char *stop = end;
    if (sign == '-') {
        stop = trim_end(start, end);
    } else if (sign != '+' && strip_line) {
        const char *line = end;
        while (line > start && line[-1] != '\n') line--;
        if ((line > start || lex->line_start) && skip_space(lex, line) >= end) stop = line;
    }
    if (stop > start) {
        tpl_token *token = add(lex, TOKEN_TEXT);
        token->value = tpl_text(lex->run, start, (size_t)(stop - start));
    }
}

/* After the end of a block or comment: `p` is at the sign or the closing mark, `mark` is "%}" or "#}". NULL: no end here. */
static const char *block_end(const lexer *lex, const char *p, const char *mark)
{
    const bool plus = p < lex->end && *p == '+', minus = p < lex->end && *p == '-';
    if (plus || minus) p++;
    if (!at(lex, p, mark)) return NULL;
    p += 2;
    if (minus) return skip_space(lex, p);
    if (!plus && p < lex->end && *p == '\n') p++;
    return p;
}

static const char *skip_name(const lexer *lex, const char *p, const char *name)
{
    p = skip_space(lex, p);
    return at(lex, p, name) ? skip_space(lex, p + strlen(name)) : NULL;
}

/* {% raw %} at p (which is at "{%"): where its text begins, or NULL. */
static const char *raw_begin(const lexer *lex, const char *p)
{
    p += 2;
    if (p < lex->end && (*p == '-' || *p == '+')) p++;
    p = skip_name(lex, p, "raw");
    if (!p) return NULL;
    if (at(lex, p, "%}")) return p + 2;
    return at(lex, p, "-%}") ? skip_space(lex, p + 3) : NULL;
}

static void lex_raw(lexer *lex)
{
    const char *start = lex->p;
    for (const char *p = start; p < lex->end; p++) {
        if (!at(lex, p, "{%")) continue;
        const char *q = p + 2;
        const char sign = q < lex->end && (*q == '-' || *q == '+') ? *q++ : 0;
        q = skip_name(lex, q, "endraw");
        const char *after = q ? block_end(lex, q, "%}") : NULL;
        if (!after) continue;
        add_text(lex, start, p, sign, true);
        advance(lex, after);
        return;
    }
    tpl_fail(lex->run, ES_BAD_FILE, "{%% raw %%} is never closed by {%% endraw %%}");
}

static void lex_comment(lexer *lex)
{
    for (const char *p = lex->p; p < lex->end; p++) {
        if (*p != '#' && *p != '-' && *p != '+') continue;
        const char *after = block_end(lex, p, "#}");
        if (!after) continue;
        advance(lex, after);
        return;
    }
    tpl_fail(lex->run, ES_BAD_FILE, "the comment is never closed by #}");
}

static int hex_digits(const char *p, const char *end, int count, uint32_t *value)
{
    uint32_t v = 0;
    for (int i = 0; i < count; i++) {
        const char c = p + i < end ? p[i] : 'x';
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0) return 0;
        v = v * 16 + (uint32_t)d;
    }
    *value = v;
    return count;
}

/* One escape; p is behind the backslash. Returns where reading goes on. */
static const char *unescape(lexer *lex, tpl_builder *out, const char *p, const char *end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = *p ? strchr(from, *p) : NULL;
    if (known) {
        tpl_put(lex->run, out, &to[known - from], 1);
        return p + 1;
    }
    if (*p == '\n') return p + 1;
    if (*p >= '0' && *p <= '7') {
        uint32_t v = 0;
        for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++) v = v * 8 + (uint32_t)(*p++ - '0');
        tpl_put_point(lex->run, out, v);
        return p;
    }
    if (*p == 'x' || *p == 'u' || *p == 'U') {
        uint32_t v = 0;
        const int n = hex_digits(p + 1, end, *p == 'x' ? 2 : *p == 'u' ? 4 : 8, &v);
        if (!n || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
            tpl_fail(lex->run, ES_BAD_FILE, "the escape \\%c in a string does not name a character", *p);
        tpl_put_point(lex->run, out, v);
        return p + 1 + n;
    }
    if (*p == 'N') tpl_fail(lex->run, ES_UNSUPPORTED, "\\N{...} in a string is not supported; write \\uXXXX");
    tpl_puts(lex->run, out, "\\"); /* an unknown escape stays as it is */
    return p;
}

static void lex_string(lexer *lex)
{
    const char quote = *lex->p;
    const char *start = lex->p + 1, *p = start;
    bool plain = true;
    while (p < lex->end && *p != quote) {
        if (*p == '\\') plain = false, p++;
        p++;
    }
    if (p >= lex->end) {
        tpl_fail(lex->run, ES_BAD_FILE, "the string is never closed by %c", quote);
        return;
    }
    tpl_token *token = add(lex, TOKEN_STRING);
    if (plain) {
        token->value = tpl_text(lex->run, start, (size_t)(p - start));
    } else {
        tpl_builder out = {0};
        for (const char *s = start; s < p && !lex->run->status;) {
            const char *back = memchr(s, '\\', (size_t)(p - s));
            tpl_put(lex->run, &out, s, (size_t)((back ? back : p) - s));
            s = back ? unescape(lex, &out, back + 1, p) : p;
        }
        token->value = tpl_built(lex->run, &out);
    }
    advance(lex, p + 1);
}

/* Digits of a base, single underscores between them; copied to `text` without them. */
static const char *copy_digits(const char *p, const char *end, int base, char *text, size_t *n, size_t room)
{
    while (p < end) {
        const char *digit = *p == '_' ? p + 1 : p;
        if (digit >= end) break;
        uint32_t v;
        const bool fits = base == 16 ? hex_digits(digit, end, 1, &v) == 1 : *digit >= '0' && *digit < '0' + base;
        if (!fits || (*p == '_' && *n == 0 && base == 10)) break;
        if (*n + 1 < room) text[(*n)++] = *digit;
        p = digit + 1;
    }
    return p;
}

static void lex_number(lexer *lex)
{
    char text[400];
    size_t n = 0;
    const char *p = lex->p, *end = lex->end;
    const char kind = end - p > 2 && p[0] == '0' ? p[1] : 0;
    const int base = kind == 'x' || kind == 'X' ? 16 : kind == 'o' || kind == 'O' ? 8 : kind == 'b' || kind == 'B' ? 2 : 10;
    bool real = false;
    const bool member = p[-1] == '.'; /* x.0.1 has two whole numbers */
    if (base != 10) p += 2;
    p = copy_digits(p, end, base, text, &n, sizeof text - 80);
    if (base == 10 && !member && end - p > 1 && *p == '.' && p[1] >= '0' && p[1] <= '9') {
        real = true;
        text[n++] = '.';
        p = copy_digits(p + 1, end, base, text, &n, sizeof text - 40);
    }
    if (base == 10 && !member && p < end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        const char sign = q < end && (*q == '-' || *q == '+') ? *q++ : 0;
        if (q < end && *q >= '0' && *q <= '9') {
            real = true;
            text[n++] = 'e';
            if (sign) text[n++] = sign;
            p = copy_digits(q, end, base, text, &n, sizeof text);
        }
    }
    text[n] = '\0';
    if (!real && base == 10 && n > 1 && text[0] == '0') { /* "007" is three numbers to Jinja2, and then an error */
        const char *zeros = text;
        while (*zeros == '0') zeros++;
        if (*zeros) tpl_fail(lex->run, ES_BAD_FILE, "a whole number can not begin with 0");
    }
    errno = 0;
    const int64_t whole = real ? 0 : strtoll(text, NULL, base);
    if (!real && errno == ERANGE) tpl_fail(lex->run, ES_BAD_FILE, "the number %.40s does not fit in 64 bits", text);
    add(lex, TOKEN_NUMBER)->value = real ? tpl_float(strtod(text, NULL)) : tpl_int(whole);
    advance(lex, p);
}

static void lex_operator(lexer *lex)
{
    static const struct {
        const char *text;
        int op;
    } two[] = {{"**", OP_POWER},   {"//", OP_FLOOR},      {"==", OP_EQUAL},
               {"!=", OP_UNEQUAL}, {"<=", OP_LESS_EQUAL}, {">=", OP_GREATER_EQUAL}};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (at(lex, lex->p, two[i].text)) {
            add(lex, TOKEN_OPERATOR)->op = two[i].op;
            advance(lex, lex->p + 2);
            return;
        }
    const char c = *lex->p;
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        tpl_fail(lex->run, ES_BAD_FILE, "a tag contains the character '%.*s', which means nothing there",
                 (unsigned char)c < 0x80 ? 1 : 0, lex->p);
        return;
    }
    if (c == '(' || c == '[' || c == '{') {
        if (lex->open == sizeof lex->closers) {
            tpl_fail(lex->run, ES_BAD_FILE, "brackets are nested too deeply");
            return;
        }
        lex->closers[lex->open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (lex->open == 0 || lex->closers[--lex->open] != c) {
            tpl_fail(lex->run, ES_BAD_FILE, "'%c' closes nothing that is open", c);
            return;
        }
    }
    add(lex, TOKEN_OPERATOR)->op = c;
    advance(lex, lex->p + 1);
}

static bool name_start(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}

/* The inside of {{ }} or {% %}, up to and with its end. */
static void lex_tag(lexer *lex, bool block)
{
    lex->open = 0;
    while (!lex->run->status) {
        lex->p = lex->p < lex->end ? lex->p : lex->end;
        const char *p = skip_space(lex, lex->p);
        if (p > lex->p) advance(lex, p);
        if (p >= lex->end) {
            tpl_fail(lex->run, ES_BAD_FILE, "the template ends inside a tag that %s should close", block ? "%}" : "}}");
            return;
        }
        if (lex->open == 0) {
            const char *after = block ? block_end(lex, p, "%}")
                                : at(lex, p, "-}}") ? skip_space(lex, p + 3)
                                : at(lex, p, "}}")  ? p + 2
                                                    : NULL;
            if (after) {
                add(lex, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END);
                advance(lex, after);
                return;
            }
        }
        if (*p >= '0' && *p <= '9') {
            lex_number(lex);
        } else if (*p == '\'' || *p == '"') {
            lex_string(lex);
        } else if (name_start((unsigned char)*p)) {
            const char *q = p;
            while (q < lex->end && (name_start((unsigned char)*q) || (*q >= '0' && *q <= '9'))) q++;
            add(lex, TOKEN_NAME)->value = tpl_text(lex->run, p, (size_t)(q - p));
            advance(lex, q);
        } else {
            lex_operator(lex);
        }
    }
}

/* One tag whose "{" is at p, with the text before it. */
static void lex_piece(lexer *lex, const char *p)
{
    const char *raw = p[1] == '%' ? raw_begin(lex, p) : NULL;
    const char *inside = p + 2;
    const char sign = inside < lex->end && (*inside == '-' || *inside == '+') ? *inside : 0;
    const char kind = p[1];
    /* In Jinja2 too, the first sign behind {{ may be a minus of the expression: it is still taken as the tag's. */
    add_text(lex, lex->p, p, sign, kind != '{');
    if (raw) {
        advance(lex, raw);
        lex_raw(lex);
        return;
    }
    advance(lex, sign ? inside + 1 : inside);
    if (kind == '#') {
        lex_comment(lex);
        return;
    }
    add(lex, kind == '%' ? TOKEN_BLOCK : TOKEN_PRINT);
    lex_tag(lex, kind == '%');
}

void tpl_lex(tpl_run *run, const char *source, size_t bytes, tpl_tokens *out)
{
    lexer lex = {.run = run, .p = source, .end = source + bytes, .line_start = true, .out = out};
    while (lex.p < lex.end && !run->status) {
        const char *p = lex.p;
        while (p < lex.end && !(p[0] == '{' && p + 1 < lex.end && (p[1] == '{' || p[1] == '%' || p[1] == '#'))) {
            const char *brace = p + 1 < lex.end ? memchr(p + 1, '{', (size_t)(lex.end - p - 1)) : NULL;
            p = brace ? brace : lex.end;
        }
        if (p >= lex.end) {
            add_text(&lex, lex.p, lex.end, '+', false);
            advance(&lex, lex.end);
        } else {
            lex_piece(&lex, p);
        }
    }
    add(&lex, TOKEN_END);
}

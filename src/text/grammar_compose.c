/* grammar_compose.c: see grammar_compose.h. */
#include "text/grammar_compose.h"

#include <string.h>

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Bytes of what stands at text[0] and is no name: a literal, a class, a comment, a count in braces, or one byte. */
static size_t other_than_name(const char *text, size_t bytes)
{
    static const char opening[] = "\"[{#", closing[] = "\"]}\n";
    const char *kind = memchr(opening, text[0], sizeof opening - 1);
    if (!kind) return 1;
    const bool escapes = *kind == '"' || *kind == '[';
    size_t n = 1;
    while (n < bytes && text[n] != closing[kind - opening] && text[n] != '\n') n += escapes && text[n] == '\\' && n + 1 < bytes ? 2 : 1;
    return n < bytes ? n + 1 : n;
}

void es_grammar_add_prefixed(es_text *gbnf, const char *prefix, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t n = 0;
        while (at + n < bytes && is_name(text[at + n])) n++;
        if (n)
            es_text_puts(gbnf, prefix);
        else
            n = other_than_name(text + at, bytes - at);
        es_text_append(gbnf, text + at, n);
        at += n;
    }
    es_text_putc(gbnf, '\n');
}

/* What follows the mark's first character is either no part of the mark, or the mark is left again before its end. A mark that is
 * left by another first character begins anew. */
void es_grammar_add_text_without(es_text *gbnf, const char *name, const char *mark)
{
    const char first = *mark++;
    es_text_printf(gbnf, "%s ::= ([^%c] | \"%c\" (%s-begun \"%c\")* %s-left)*\n%s-begun ::= \"\"", name, first, first, name, first, name, name);
    for (int i = 1; mark[i]; i++) es_text_printf(gbnf, " | \"%.*s\"", i, mark);
    es_text_printf(gbnf, "\n%s-left ::= ", name);
    for (int i = 0; mark[i]; i++) es_text_printf(gbnf, "%s\"%.*s\" [^%c%c]", i ? " | " : "", i, mark, mark[i], first);
    es_text_putc(gbnf, '\n');
}

void es_grammar_allow_thinking(es_text *gbnf)
{
    es_text composed = {0};
    es_grammar_add_prefixed(&composed, "answer-", gbnf->data ? gbnf->data : "", gbnf->bytes);
    es_grammar_add_text_without(&composed, "thought", "</think>");
    es_text_puts(&composed, "root ::= (\"<think>\" thought \"</think>\" \"\\n\"{0,2})? answer-root\n");
    composed.failed |= gbnf->failed;
    es_text_free(gbnf);
    *gbnf = composed;
}

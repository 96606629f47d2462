/* chat_template.c: the way in: a template is read once, and rendered as often as wanted, by any thread.
 *
 * Reading: template_lexer.c makes tokens, template_parser.c and template_statements.c make the tree, template_symbols.c
 * settles which names a scope hides. Rendering: template_exec.c walks statements, template_eval.c expressions. The tree and
 * its constants are never written to afterwards; everything a rendering makes lives in its own arena. */
#include "text/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "text/template_syntax.h"

#define DEFAULT_STEPS   10000000u
#define DEFAULT_OUTPUT  ((size_t)64 << 20)
#define DEFAULT_DEPTH   200u
#define MAX_DEPTH       1000u /* what a thread's stack of 8 MiB holds with room to spare */
#define MAX_SOURCE      ((size_t)1 << 20)
#define PARSE_MEMORY    ((size_t)256 << 20)
#define PARSE_STEPS     100000000u
#define MEMORY_PER_BYTE 4 /* memory of a rendering, per byte of text it may build */

struct es_chat_template {
    char *name;
    tpl_arena arena; /* the source, the tokens, the tree */
    const tpl_node *root;
    const char *source; /* in the arena */
};

/* Line ends become "\n"; one at the very end is dropped. */
static size_t normalise(const char *source, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] != '\r') {
            out[n++] = source[i];
            continue;
        }
        out[n++] = '\n';
        if (i + 1 < bytes && source[i + 1] == '\n') i++;
    }
    return n > 0 && out[n - 1] == '\n' ? n - 1 : n;
}

es_status es_chat_template_parse(const char *name, const char *source, size_t bytes, es_chat_template **out)
{
    if (bytes > MAX_SOURCE)
        return es_fail(ES_BAD_FILE, "template %s has %zu bytes; a chat template may have %zu", name, bytes, MAX_SOURCE);
    if (!tpl_utf8_valid(source, bytes)) return es_fail(ES_BAD_FILE, "template %s is not UTF-8", name);
    es_chat_template *chat = calloc(1, sizeof *chat);
    if (chat) chat->name = strdup(name);
    if (!chat || !chat->name) {
        free(chat);
        return es_fail(ES_NO_MEMORY, "template %s: out of memory", name);
    }
    tpl_run run = {.name = chat->name, .line = 1, .steps = PARSE_STEPS, .output = PARSE_MEMORY, .depth = DEFAULT_DEPTH,
                   .arena = {.left = PARSE_MEMORY}};
    tpl_parser parser = {.run = &run};
    char *text = tpl_take(&run, bytes + 1, 1);
    if (text) {
        const size_t kept = normalise(source, bytes, text);
        text[kept] = '\0';
        chat->source = text;
        tpl_lex(&run, text, kept, &parser.tokens);
        run.line = 1;
        if (!run.status) chat->root = tpl_parse_template(&parser);
        if (!run.status) tpl_resolve_scopes(&run, (tpl_node *)chat->root);
    }
    chat->arena = run.arena;
    if (run.status) {
        es_chat_template_free(chat);
        /* What is wrong while reading is wrong in the file, however it was found. */
        return run.status == ES_INVALID ? ES_BAD_FILE : run.status;
    }
    *out = chat;
    return ES_OK;
}

const char *es_chat_template_source(const es_chat_template *chat)
{
    return chat->source;
}

void es_chat_template_free(es_chat_template *chat)
{
    if (!chat) return;
    tpl_arena_free(&chat->arena);
    free(chat->name);
    free(chat);
}

es_status es_chat_template_render(const es_chat_template *chat, const json_t *variables, int64_t now,
                                  const es_template_limits *limits, es_text *out)
{
    static const es_template_limits defaults = {0};
    if (!limits) limits = &defaults;
    if (!json_is_object(variables)) return es_fail(ES_INVALID, "template %s: the variables are not a JSON object", chat->name);
    const size_t output = limits->output ? limits->output : DEFAULT_OUTPUT;
    const unsigned depth = limits->depth ? limits->depth : DEFAULT_DEPTH;
    tpl_builder text = {0};
    tpl_run run = {.name = chat->name, .line = 1, .steps = limits->steps ? limits->steps : DEFAULT_STEPS, .output = output,
                   .depth = depth < MAX_DEPTH ? depth : MAX_DEPTH, .out = &text, .variables = variables, .now = now};
    /* A small cap on text still leaves room for the values of an ordinary conversation. */
    run.arena.left = (output < SIZE_MAX / MEMORY_PER_BYTE ? output * MEMORY_PER_BYTE : SIZE_MAX / 2) + ((size_t)1 << 20);
    run.scope = tpl_scope_new(&run, NULL);
    if (run.scope) tpl_exec(&run, chat->root);
    if (!run.status) {
        es_text_append(out, text.data ? text.data : "", text.bytes);
        if (out->failed) run.status = es_fail(ES_NO_MEMORY, "template %s: no memory for the text", chat->name);
    }
    tpl_arena_free(&run.arena);
    return run.status;
}

/* template_statements.c: the {% statements %} of a chat template. */
#include <string.h>

#include "text/template_syntax.h"

static tpl_node *parse_body(tpl_parser *parser, const char *const *ends);

static bool at_any(const tpl_parser *parser, const char *const *names)
{
    for (; *names; names++)
        if (tpl_peek_name(parser, *names)) return true;
    return false;
}

/* The rest of a tag, then its body up to the tag `end`, whose name is taken. */
static tpl_node *parse_block(tpl_parser *parser, const char *end)
{
    const char *const ends[] = {end, NULL};
    tpl_expect(parser, TOKEN_BLOCK_END, "%}");
    tpl_node *body = parse_body(parser, ends);
    tpl_take_name(parser, end);
    return body;
}

static tpl_node *parse_if(tpl_parser *parser)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    tpl_node *first = tpl_node_new(parser, NODE_IF), *node = first;
    parser->ifs++;
    for (;;) {
        node->a = tpl_parse_tuple(parser, false);
        tpl_expect(parser, TOKEN_BLOCK_END, "%}");
        node->body = parse_body(parser, ends);
        if (!tpl_take_name(parser, "elif")) break;
        node = node->otherwise = tpl_node_new(parser, NODE_IF);
        node->op = 1; /* an elif */
    }
    if (tpl_take_name(parser, "else"))
        node->otherwise = parse_block(parser, "endif");
    else
        tpl_take_name(parser, "endif");
    parser->ifs--;
    return first;
}

/* What may be assigned to: a name, ns.attribute, or several of them. */
static tpl_node *parse_one_target(tpl_parser *parser, bool attributes)
{
    tpl_node *node = tpl_parse_primary(parser);
    if (node->kind == NODE_NAME && attributes && tpl_take_op(parser, '.')) {
        tpl_node *ref = tpl_node_new(parser, NODE_NSREF);
        ref->value = node->value;
        ref->b = tpl_node_new(parser, NODE_CONST);
        ref->b->value = (tpl_value){.kind = TPL_STRING, .string = tpl_expect_name(parser)};
        return ref;
    }
    return node;
}

static void check_target(tpl_parser *parser, const tpl_node *node)
{
    if (!tpl_enter(parser->run)) return;
    if (node->kind == NODE_TUPLE || node->kind == NODE_LIST)
        for (const tpl_node *item = node->first; item; item = item->next) check_target(parser, item);
    else if (node->kind != NODE_NAME && node->kind != NODE_NSREF)
        tpl_fail(parser->run, ES_BAD_FILE, "this can not be assigned to");
    tpl_leave(parser->run);
}

static tpl_node *parse_target(tpl_parser *parser, bool attributes)
{
    tpl_node *first = parse_one_target(parser, attributes), *last = first;
    if (tpl_peek_op(parser, ',')) {
        tpl_node *tuple = tpl_node_new(parser, NODE_TUPLE);
        tuple->first = first;
        while (tpl_take_op(parser, ',') && tpl_peek(parser)->kind != TOKEN_BLOCK_END)
            last = last->next = parse_one_target(parser, attributes);
        first = tuple;
    }
    check_target(parser, first);
    return first;
}

static tpl_node *parse_for(tpl_parser *parser)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    tpl_node *node = tpl_node_new(parser, NODE_FOR);
    node->a = parse_target(parser, false);
    if (node->a->kind == NODE_NAME && tpl_is(node->a->value.string, "loop"))
        tpl_fail(parser->run, ES_BAD_FILE, "'loop' can not be the variable of a loop");
    if (!tpl_take_name(parser, "in")) tpl_unexpected(parser, "'in'");
    node->b = tpl_parse_tuple(parser, false);
    if (tpl_take_name(parser, "if")) node->c = tpl_parse_expression(parser);
    if (tpl_peek_name(parser, "recursive")) tpl_fail(parser->run, ES_UNSUPPORTED, "recursive loops are not supported");
    tpl_expect(parser, TOKEN_BLOCK_END, "%}");
    parser->loops++;
    node->body = parse_body(parser, ends);
    parser->loops--;
    if (tpl_take_name(parser, "else"))
        node->otherwise = parse_block(parser, "endfor");
    else
        tpl_take_name(parser, "endfor");
    return node;
}

static tpl_node *parse_set(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_SET);
    node->a = parse_target(parser, true);
    if (tpl_take_op(parser, '=')) {
        node->b = tpl_parse_tuple(parser, true);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    if (tpl_peek_op(parser, '|')) node->b = tpl_parse_filters(parser, NULL, false);
    node->body = parse_block(parser, "endset");
    return node;
}

static tpl_node *parse_with(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_WITH), **tail = &node->first;
    while (!parser->run->status && tpl_peek(parser)->kind != TOKEN_BLOCK_END) {
        if (node->first) tpl_expect_op(parser, ',');
        *tail = tpl_node_new(parser, NODE_SET);
        (*tail)->a = parse_one_target(parser, false);
        check_target(parser, (*tail)->a);
        tpl_expect_op(parser, '=');
        (*tail)->b = tpl_parse_expression(parser);
        tail = &(*tail)->next;
    }
    node->body = parse_block(parser, "endwith");
    return node;
}

static void parse_params(tpl_parser *parser, tpl_node *macro)
{
    tpl_node **tail = &macro->first;
    bool defaults = false;
    tpl_expect_op(parser, '(');
    while (!parser->run->status && !tpl_peek_op(parser, ')')) {
        if (macro->first) tpl_expect_op(parser, ',');
        tpl_node *param = *tail = tpl_node_new(parser, NODE_PARAM);
        tail = &param->next;
        param->value = (tpl_value){.kind = TPL_STRING, .string = tpl_expect_name(parser)};
        if (tpl_take_op(parser, '=')) {
            param->a = tpl_parse_expression(parser);
            defaults = true;
        } else if (defaults) {
            tpl_fail(parser->run, ES_BAD_FILE, "a parameter without default follows one with a default");
        }
    }
    tpl_expect_op(parser, ')');
}

/* The body of a macro or of what is passed to one; a break inside can not leave it. */
static void parse_macro_body(tpl_parser *parser, tpl_node *macro, const char *end)
{
    tpl_node *outer = parser->macro;
    const unsigned loops = parser->loops;
    parser->macro = macro;
    parser->loops = 0;
    macro->body = parse_block(parser, end);
    parser->macro = outer;
    parser->loops = loops;
    for (const tpl_node *param = macro->first; param; param = param->next)
        if ((macro->op & MACRO_CALLER) && !param->a && tpl_is(param->value.string, "caller"))
            tpl_fail(parser->run, ES_BAD_FILE, "a parameter named 'caller' needs a default");
    /* What the inner one needs from outside, the outer one needs too. */
    if (outer && macro->value.kind != TPL_STRING) outer->op |= macro->op;
}

static tpl_node *parse_macro(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_MACRO);
    node->value = (tpl_value){.kind = TPL_STRING, .string = tpl_expect_name(parser)};
    parse_params(parser, node);
    parse_macro_body(parser, node, "endmacro");
    return node;
}

static tpl_node *parse_call_block(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_CALL_BLOCK);
    node->b = tpl_node_new(parser, NODE_MACRO);
    if (tpl_peek_op(parser, '(')) parse_params(parser, node->b);
    node->a = tpl_parse_expression(parser);
    if (node->a->kind != NODE_CALL) tpl_unexpected(parser, "a call");
    parse_macro_body(parser, node->b, "endcall");
    return node;
}

static tpl_node *parse_filter_block(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_FILTER_BLOCK);
    node->a = tpl_parse_filters(parser, NULL, true);
    node->body = parse_block(parser, "endfilter");
    return node;
}

/* {% generation %} marks what an assistant said, for training; here its body is just written, in a scope of its own. */
static tpl_node *parse_generation(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_WITH);
    const unsigned loops = parser->loops;
    parser->loops = 0;
    node->body = parse_block(parser, "endgeneration");
    parser->loops = loops;
    return node;
}

static tpl_node *parse_print(tpl_parser *parser)
{
    tpl_node *first = NULL, **tail = &first;
    while (!parser->run->status && tpl_peek(parser)->kind != TOKEN_BLOCK_END) {
        if (first) tpl_expect_op(parser, ',');
        *tail = tpl_node_new(parser, NODE_PRINT);
        (*tail)->a = tpl_parse_expression(parser);
        tail = &(*tail)->next;
    }
    return first;
}

static tpl_node *parse_flow(tpl_parser *parser, tpl_node_kind kind)
{
    if (parser->loops == 0) tpl_fail(parser->run, ES_BAD_FILE, "break and continue need a loop around them");
    return tpl_node_new(parser, kind);
}

static tpl_node *parse_statement(tpl_parser *parser)
{
    static const char *const refused[] = {"include",    "import", "from",  "extends", "block",
                                          "autoescape", "do",     "trans", "debug",   NULL};
    const tpl_token *token = tpl_peek(parser);
    if (at_any(parser, refused)) {
        tpl_fail(parser->run, ES_UNSUPPORTED, "{%% %.*s %%} is not supported in a chat template",
                 tpl_shown(token->value.string, 100), token->value.string->data);
        return NULL;
    }
    if (tpl_take_name(parser, "if")) return parse_if(parser);
    if (tpl_take_name(parser, "for")) return parse_for(parser);
    if (tpl_take_name(parser, "set")) return parse_set(parser);
    if (tpl_take_name(parser, "macro")) return parse_macro(parser);
    if (tpl_take_name(parser, "call")) return parse_call_block(parser);
    if (tpl_take_name(parser, "filter")) return parse_filter_block(parser);
    if (tpl_take_name(parser, "with")) return parse_with(parser);
    if (tpl_take_name(parser, "generation")) return parse_generation(parser);
    if (tpl_take_name(parser, "print")) return parse_print(parser);
    if (tpl_take_name(parser, "break")) return parse_flow(parser, NODE_BREAK);
    if (tpl_take_name(parser, "continue")) return parse_flow(parser, NODE_CONTINUE);
    tpl_unexpected(parser, "a statement");
    return NULL;
}

/* Statements up to one of the tags `ends` (NULL: the end of the template); that tag's "{%" is taken, its name is not. */
static tpl_node *parse_body(tpl_parser *parser, const char *const *ends)
{
    tpl_node *first = NULL, **tail = &first;
    if (!tpl_enter(parser->run)) return NULL;
    while (!parser->run->status) {
        const tpl_token *token = tpl_peek(parser);
        if (token->kind == TOKEN_END) {
            char wanted[80] = "";
            for (const char *const *e = ends; e && *e; e++) {
                strcat(wanted, e == ends ? "{% " : " or {% ");
                strcat(wanted, *e);
                strcat(wanted, " %}");
            }
            if (ends) tpl_unexpected(parser, wanted);
            break;
        }
        if (token->kind == TOKEN_TEXT) {
            *tail = tpl_node_new(parser, NODE_TEXT);
            (*tail)->value = token->value;
            tpl_expect(parser, TOKEN_TEXT, "text");
        } else if (token->kind == TOKEN_PRINT) {
            tpl_expect(parser, TOKEN_PRINT, "{{");
            *tail = tpl_node_new(parser, NODE_PRINT);
            (*tail)->a = tpl_parse_tuple(parser, true);
            tpl_expect(parser, TOKEN_PRINT_END, "}}");
        } else {
            tpl_expect(parser, TOKEN_BLOCK, "a tag");
            if (ends && at_any(parser, ends)) break;
            *tail = parse_statement(parser);
            tpl_expect(parser, TOKEN_BLOCK_END, "%}");
        }
        while (*tail && !parser->run->status) tail = &(*tail)->next;
    }
    tpl_leave(parser->run);
    return first;
}

tpl_node *tpl_parse_template(tpl_parser *parser)
{
    tpl_node *root = tpl_node_new(parser, NODE_WITH);
    parser->run->line = 1;
    root->body = parse_body(parser, NULL);
    return root;
}

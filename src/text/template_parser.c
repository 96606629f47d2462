/* template_parser.c: expressions of a chat template, with Jinja2's precedence.
 *
 *   cond: or [if or [else cond]]     or: and {or and}        and: not {and not}      not: "not" not | compare
 *   compare: sum {op sum}            sum: concat {+- concat}  concat: product {~ product}
 *   product: power {* / // % power}  power: unary {** unary} (to the left, as Jinja2 has it)
 *   unary: [+-] primary postfix, then filters and tests
 *
 * Once something failed every function returns what it has and reads no further tokens: the run keeps the message. */
#include <string.h>

#include "text/template_syntax.h"

const tpl_token *tpl_peek(const tpl_parser *parser)
{
    static const tpl_token end = {.kind = TOKEN_END};
    return parser->run->status ? &end : &parser->tokens.items[parser->at];
}

static const tpl_token *look(const tpl_parser *parser)
{
    const tpl_token *token = tpl_peek(parser);
    return token->kind == TOKEN_END ? token : token + 1;
}

static void next(tpl_parser *parser)
{
    if (tpl_peek(parser)->kind != TOKEN_END) parser->at++;
    if (!parser->run->status) parser->run->line = tpl_peek(parser)->line;
}

bool tpl_peek_op(const tpl_parser *parser, int op)
{
    const tpl_token *token = tpl_peek(parser);
    return token->kind == TOKEN_OPERATOR && token->op == op;
}

static bool is_name(const tpl_token *token, const char *name)
{
    return token->kind == TOKEN_NAME && tpl_is(token->value.string, name);
}

bool tpl_peek_name(const tpl_parser *parser, const char *name)
{
    return is_name(tpl_peek(parser), name);
}

bool tpl_take_op(tpl_parser *parser, int op)
{
    if (!tpl_peek_op(parser, op)) return false;
    next(parser);
    return true;
}

bool tpl_take_name(tpl_parser *parser, const char *name)
{
    if (!tpl_peek_name(parser, name)) return false;
    next(parser);
    return true;
}

void tpl_unexpected(tpl_parser *parser, const char *wanted)
{
    static const char *const kinds[] = {
        [TOKEN_END] = "the end of the template", [TOKEN_TEXT] = "text",      [TOKEN_BLOCK] = "{%",
        [TOKEN_BLOCK_END] = "%}",                [TOKEN_PRINT] = "{{",       [TOKEN_PRINT_END] = "}}",
        [TOKEN_NAME] = "a name",                 [TOKEN_STRING] = "a string", [TOKEN_NUMBER] = "a number",
        [TOKEN_OPERATOR] = "an operator",
    };
    const tpl_token *token = tpl_peek(parser);
    if (token->kind == TOKEN_NAME)
        tpl_fail(parser->run, ES_BAD_FILE, "expected %s, found '%.*s'", wanted,
                 tpl_shown(token->value.string, 100), token->value.string->data);
    else if (token->kind == TOKEN_OPERATOR && token->op < 256)
        tpl_fail(parser->run, ES_BAD_FILE, "expected %s, found '%c'", wanted, token->op);
    else
        tpl_fail(parser->run, ES_BAD_FILE, "expected %s, found %s", wanted, kinds[token->kind]);
}

void tpl_expect_op(tpl_parser *parser, int op)
{
    const char wanted[] = {'\'', (char)op, '\'', 0};
    if (!tpl_take_op(parser, op)) tpl_unexpected(parser, wanted);
}

void tpl_expect(tpl_parser *parser, tpl_token_kind kind, const char *what)
{
    if (tpl_peek(parser)->kind == kind)
        next(parser);
    else
        tpl_unexpected(parser, what);
}

const tpl_string *tpl_expect_name(tpl_parser *parser)
{
    static const tpl_string none = {.data = "", .bytes = 0, .points = 0};
    const tpl_token *token = tpl_peek(parser);
    if (token->kind != TOKEN_NAME) {
        tpl_unexpected(parser, "a name");
        return &none;
    }
    next(parser);
    return token->value.string;
}

tpl_node *tpl_node_new(tpl_parser *parser, tpl_node_kind kind)
{
    tpl_node *node = tpl_take(parser->run, 1, sizeof *node);
    /* After a failure nothing is evaluated, but the parser still links what it gets. */
    if (!node) node = tpl_arena_take(&parser->run->arena, sizeof *node);
    if (!node) node = &parser->spare;
    *node = (tpl_node){.kind = kind, .line = parser->run->line};
    return node;
}

static tpl_node *binary(tpl_parser *parser, tpl_node_kind kind, int op, tpl_node *a)
{
    tpl_node *node = tpl_node_new(parser, kind);
    node->op = op;
    node->a = a;
    return node;
}

static tpl_node *parse_list(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_LIST), **tail = &node->first;
    tpl_expect_op(parser, '[');
    while (!parser->run->status && !tpl_peek_op(parser, ']')) {
        if (node->first) tpl_expect_op(parser, ',');
        if (tpl_peek_op(parser, ']')) break;
        *tail = tpl_parse_expression(parser);
        tail = &(*tail)->next;
    }
    tpl_expect_op(parser, ']');
    return node;
}

static tpl_node *parse_dict(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_DICT), **tail = &node->first;
    tpl_expect_op(parser, '{');
    while (!parser->run->status && !tpl_peek_op(parser, '}')) {
        if (node->first) tpl_expect_op(parser, ',');
        if (tpl_peek_op(parser, '}')) break;
        *tail = tpl_parse_expression(parser);
        tail = &(*tail)->next;
        tpl_expect_op(parser, ':');
        *tail = tpl_parse_expression(parser);
        tail = &(*tail)->next;
    }
    tpl_expect_op(parser, '}');
    return node;
}

static bool tuple_ends(const tpl_parser *parser)
{
    const tpl_token_kind kind = tpl_peek(parser)->kind;
    return kind == TOKEN_PRINT_END || kind == TOKEN_BLOCK_END || kind == TOKEN_END || tpl_peek_op(parser, ')');
}

static tpl_node *parse_or(tpl_parser *parser);

static tpl_node *parse_tuple_items(tpl_parser *parser, bool conditional, bool may_be_empty)
{
    tpl_node *first = NULL, **tail = &first;
    bool tuple = false;
    while (!parser->run->status) {
        if (first) tpl_expect_op(parser, ',');
        if (tuple_ends(parser)) break;
        *tail = conditional ? tpl_parse_expression(parser) : parse_or(parser);
        tail = &(*tail)->next;
        if (!tpl_peek_op(parser, ',')) break;
        tuple = true;
    }
    if (!tuple && first) return first;
    if (!first && !may_be_empty) tpl_unexpected(parser, "an expression");
    tpl_node *node = tpl_node_new(parser, NODE_TUPLE);
    node->first = first;
    return node;
}

tpl_node *tpl_parse_tuple(tpl_parser *parser, bool conditional)
{
    return parse_tuple_items(parser, conditional, false);
}

static tpl_node *parse_name(tpl_parser *parser, const tpl_string *name)
{
    tpl_node *node = tpl_node_new(parser, NODE_CONST);
    if (tpl_is(name, "true") || tpl_is(name, "True")) {
        node->value = tpl_bool(true);
    } else if (tpl_is(name, "false") || tpl_is(name, "False")) {
        node->value = tpl_bool(false);
    } else if (tpl_is(name, "none") || tpl_is(name, "None")) {
        node->value = tpl_none();
    } else {
        node->kind = NODE_NAME;
        node->value = (tpl_value){.kind = TPL_STRING, .string = name};
        if (parser->macro && tpl_is(name, "caller")) parser->macro->op |= MACRO_CALLER;
        if (parser->macro && tpl_is(name, "varargs")) parser->macro->op |= MACRO_VARARGS;
        if (parser->macro && tpl_is(name, "kwargs")) parser->macro->op |= MACRO_KWARGS;
    }
    return node;
}

/* Neighbouring strings are one. */
static tpl_node *parse_string(tpl_parser *parser)
{
    tpl_node *node = tpl_node_new(parser, NODE_CONST);
    node->value = tpl_peek(parser)->value;
    next(parser);
    if (tpl_peek(parser)->kind == TOKEN_STRING) {
        tpl_builder out = {0};
        tpl_put_string(parser->run, &out, node->value.string);
        for (; tpl_peek(parser)->kind == TOKEN_STRING; next(parser))
            tpl_put_string(parser->run, &out, tpl_peek(parser)->value.string);
        node->value = tpl_built(parser->run, &out);
    }
    return node;
}

tpl_node *tpl_parse_primary(tpl_parser *parser)
{
    const tpl_token *token = tpl_peek(parser);
    if (token->kind == TOKEN_NAME) {
        next(parser);
        return parse_name(parser, token->value.string);
    }
    if (token->kind == TOKEN_STRING) return parse_string(parser);
    if (token->kind == TOKEN_NUMBER) {
        tpl_node *node = tpl_node_new(parser, NODE_CONST);
        node->value = token->value;
        next(parser);
        return node;
    }
    if (tpl_peek_op(parser, '[')) return parse_list(parser);
    if (tpl_peek_op(parser, '{')) return parse_dict(parser);
    if (tpl_take_op(parser, '(')) {
        tpl_node *node = parse_tuple_items(parser, true, true);
        tpl_expect_op(parser, ')');
        return node;
    }
    tpl_unexpected(parser, "an expression");
    return tpl_node_new(parser, NODE_CONST);
}

/* One subscript: an expression or start:stop:step. */
static tpl_node *parse_subscript(tpl_parser *parser)
{
    tpl_node *start = tpl_peek_op(parser, ':') ? NULL : tpl_parse_expression(parser);
    if (start && !tpl_peek_op(parser, ':')) return start;
    tpl_expect_op(parser, ':');
    tpl_node *node = tpl_node_new(parser, NODE_SLICE);
    node->a = start;
    if (!tpl_peek_op(parser, ':') && !tpl_peek_op(parser, ']') && !tpl_peek_op(parser, ','))
        node->b = tpl_parse_expression(parser);
    if (tpl_take_op(parser, ':') && !tpl_peek_op(parser, ']') && !tpl_peek_op(parser, ','))
        node->c = tpl_parse_expression(parser);
    return node;
}

static tpl_node *parse_index(tpl_parser *parser, tpl_node *object)
{
    tpl_node *node = binary(parser, NODE_ITEM, 0, object);
    tpl_node *first = NULL, **tail = &first;
    tpl_expect_op(parser, '[');
    while (!parser->run->status && !tpl_peek_op(parser, ']')) {
        if (first) tpl_expect_op(parser, ',');
        *tail = parse_subscript(parser);
        tail = &(*tail)->next;
    }
    tpl_expect_op(parser, ']');
    if (first && !first->next) {
        node->b = first;
    } else {
        node->b = tpl_node_new(parser, NODE_TUPLE);
        node->b->first = first;
    }
    return node;
}

static tpl_node *parse_member(tpl_parser *parser, tpl_node *object)
{
    tpl_node *node = binary(parser, NODE_ATTR, 0, object);
    tpl_expect_op(parser, '.');
    const tpl_token *token = tpl_peek(parser);
    if (token->kind == TOKEN_NUMBER && token->value.kind == TPL_INT) {
        node->kind = NODE_ITEM;
        node->b = tpl_node_new(parser, NODE_CONST);
        node->b->value = token->value;
        next(parser);
    } else {
        node->value = (tpl_value){.kind = TPL_STRING, .string = tpl_expect_name(parser)};
    }
    return node;
}

tpl_node *tpl_parse_arguments(tpl_parser *parser)
{
    tpl_node *first = NULL, **tail = &first;
    int last = 0; /* the kind of the previous argument: positional ones first, then *a, named ones, **k */
    tpl_expect_op(parser, '(');
    while (!parser->run->status && !tpl_peek_op(parser, ')')) {
        if (first) tpl_expect_op(parser, ',');
        if (tpl_peek_op(parser, ')')) break;
        tpl_node *arg = *tail = tpl_node_new(parser, NODE_ARG);
        tail = &arg->next;
        const tpl_token *token = tpl_peek(parser), *after = look(parser);
        if (tpl_take_op(parser, '*')) {
            arg->op = '*';
        } else if (tpl_take_op(parser, OP_POWER)) {
            arg->op = OP_POWER;
        } else if (token->kind == TOKEN_NAME && after->kind == TOKEN_OPERATOR && after->op == '=') {
            arg->op = '=';
            arg->value = token->value;
            next(parser);
            next(parser);
        }
        const bool fits = arg->op == 0 ? last == 0 : arg->op == '*' ? last != '*' && last != OP_POWER : last != OP_POWER;
        if (!fits) tpl_fail(parser->run, ES_BAD_FILE, "an argument of a call is in the wrong place");
        last = arg->op;
        arg->a = tpl_parse_expression(parser);
    }
    tpl_expect_op(parser, ')');
    return first;
}

static tpl_node *parse_call(tpl_parser *parser, tpl_node *callee)
{
    tpl_node *node = binary(parser, NODE_CALL, 0, callee);
    node->first = tpl_parse_arguments(parser);
    return node;
}

tpl_node *tpl_parse_postfix(tpl_parser *parser, tpl_node *node)
{
    for (;;) {
        if (tpl_peek_op(parser, '.'))
            node = parse_member(parser, node);
        else if (tpl_peek_op(parser, '['))
            node = parse_index(parser, node);
        else if (tpl_peek_op(parser, '('))
            node = parse_call(parser, node);
        else
            return node;
    }
}

/* Filters and tests are found by name while parsing, so that a template with an unknown one is refused when it is loaded;
 * but one that stands under an if may never be reached, and is let through until it is, as in jinja2. */
static void check_known(tpl_parser *parser, tpl_node *node, const tpl_string *name, const char *what)
{
    node->value = (tpl_value){.kind = TPL_STRING, .string = name};
    if (!node->native && !parser->ifs)
        tpl_fail(parser->run, ES_UNSUPPORTED, "there is no %s named '%.*s' here", what, tpl_shown(name, 100), name->data);
}

tpl_node *tpl_parse_filters(tpl_parser *parser, tpl_node *node, bool first)
{
    while (!parser->run->status && (first || tpl_take_op(parser, '|'))) {
        first = false;
        node = binary(parser, NODE_FILTER, 0, node);
        const tpl_string *name = tpl_expect_name(parser);
        node->native = tpl_filter_find(name->data, name->bytes);
        check_known(parser, node, name, "filter");
        if (tpl_peek_op(parser, '(')) node->first = tpl_parse_arguments(parser);
    }
    return node;
}

static tpl_node *parse_test(tpl_parser *parser, tpl_node *subject)
{
    const bool negated = tpl_take_name(parser, "not");
    tpl_node *node = binary(parser, NODE_TEST, 0, subject);
    const tpl_string *name = tpl_expect_name(parser);
    node->native = tpl_native_find(tpl_tests, name->data, name->bytes);
    check_known(parser, node, name, "test");
    const tpl_token *token = tpl_peek(parser);
    if (tpl_peek_op(parser, '(')) {
        node->first = tpl_parse_arguments(parser);
    } else if (tpl_peek_name(parser, "is")) {
        tpl_fail(parser->run, ES_BAD_FILE, "tests can not be chained with 'is'");
    } else if ((token->kind == TOKEN_NAME && !is_name(token, "else") && !is_name(token, "or") && !is_name(token, "and")) ||
               token->kind == TOKEN_STRING || token->kind == TOKEN_NUMBER || tpl_peek_op(parser, '[') ||
               tpl_peek_op(parser, '{')) {
        node->first = tpl_node_new(parser, NODE_ARG);
        node->first->a = tpl_parse_postfix(parser, tpl_parse_primary(parser));
    }
    return negated ? binary(parser, NODE_NOT, 0, node) : node;
}

static tpl_node *parse_unary(tpl_parser *parser, bool with_filters)
{
    tpl_node *node;
    if (!tpl_enter(parser->run)) return tpl_node_new(parser, NODE_CONST);
    if (tpl_peek_op(parser, '-') || tpl_peek_op(parser, '+')) {
        node = binary(parser, NODE_NEGATE, tpl_peek(parser)->op, NULL);
        next(parser);
        node->a = parse_unary(parser, false);
    } else {
        node = tpl_parse_primary(parser);
    }
    node = tpl_parse_postfix(parser, node);
    while (with_filters && !parser->run->status) {
        if (tpl_peek_op(parser, '|'))
            node = tpl_parse_filters(parser, node, false);
        else if (tpl_take_name(parser, "is"))
            node = parse_test(parser, node);
        else if (tpl_peek_op(parser, '('))
            node = parse_call(parser, node);
        else
            break;
    }
    tpl_leave(parser->run);
    return node;
}

static tpl_node *parse_power(tpl_parser *parser)
{
    tpl_node *node = parse_unary(parser, true);
    while (tpl_take_op(parser, OP_POWER)) {
        node = binary(parser, NODE_BINARY, OP_POWER, node);
        node->b = parse_unary(parser, true);
    }
    return node;
}

static tpl_node *parse_product(tpl_parser *parser)
{
    tpl_node *node = parse_power(parser);
    while (tpl_peek_op(parser, '*') || tpl_peek_op(parser, '/') || tpl_peek_op(parser, OP_FLOOR) || tpl_peek_op(parser, '%')) {
        node = binary(parser, NODE_BINARY, tpl_peek(parser)->op, node);
        next(parser);
        node->b = parse_power(parser);
    }
    return node;
}

static tpl_node *parse_concat(tpl_parser *parser)
{
    tpl_node *node = parse_product(parser);
    if (!tpl_peek_op(parser, '~')) return node;
    tpl_node *concat = tpl_node_new(parser, NODE_CONCAT);
    concat->first = node;
    while (tpl_take_op(parser, '~')) node = node->next = parse_product(parser);
    return concat;
}

static tpl_node *parse_sum(tpl_parser *parser)
{
    tpl_node *node = parse_concat(parser);
    while (tpl_peek_op(parser, '+') || tpl_peek_op(parser, '-')) {
        node = binary(parser, NODE_BINARY, tpl_peek(parser)->op, node);
        next(parser);
        node->b = parse_concat(parser);
    }
    return node;
}

/* The comparison that comes next, taken; 0 if there is none. */
static int take_comparison(tpl_parser *parser)
{
    static const int ops[] = {OP_EQUAL, OP_UNEQUAL, '<', '>', OP_LESS_EQUAL, OP_GREATER_EQUAL};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (tpl_take_op(parser, ops[i])) return ops[i];
    if (tpl_take_name(parser, "in")) return OP_IN;
    if (!tpl_peek_name(parser, "not") || !is_name(look(parser), "in")) return 0;
    next(parser);
    next(parser);
    return OP_NOT_IN;
}

static tpl_node *parse_compare(tpl_parser *parser)
{
    tpl_node *node = parse_sum(parser), **tail = NULL;
    for (int op; (op = take_comparison(parser));) {
        if (!tail) {
            node = binary(parser, NODE_COMPARE, 0, node);
            tail = &node->first;
        }
        *tail = binary(parser, NODE_OPERAND, op, NULL);
        (*tail)->a = parse_sum(parser);
        tail = &(*tail)->next;
    }
    return node;
}

static tpl_node *parse_not(tpl_parser *parser)
{
    if (!tpl_peek_name(parser, "not")) return parse_compare(parser);
    if (!tpl_enter(parser->run)) return tpl_node_new(parser, NODE_CONST);
    next(parser);
    tpl_node *node = binary(parser, NODE_NOT, 0, NULL);
    node->a = parse_not(parser);
    tpl_leave(parser->run);
    return node;
}

static tpl_node *parse_and(tpl_parser *parser)
{
    tpl_node *node = parse_not(parser);
    while (tpl_take_name(parser, "and")) {
        node = binary(parser, NODE_AND, 0, node);
        node->b = parse_not(parser);
    }
    return node;
}

static tpl_node *parse_or(tpl_parser *parser)
{
    tpl_node *node = parse_and(parser);
    while (tpl_take_name(parser, "or")) {
        node = binary(parser, NODE_OR, 0, node);
        node->b = parse_and(parser);
    }
    return node;
}

tpl_node *tpl_parse_expression(tpl_parser *parser)
{
    if (!tpl_enter(parser->run)) return tpl_node_new(parser, NODE_CONST);
    tpl_node *node = parse_or(parser);
    while (tpl_take_name(parser, "if")) {
        node = binary(parser, NODE_COND, 0, node);
        node->b = parse_or(parser);
        if (tpl_take_name(parser, "else")) node->c = tpl_parse_expression(parser);
    }
    tpl_leave(parser->run);
    return node;
}

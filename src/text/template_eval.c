/* template_eval.c: what an expression is worth. */
#include <string.h>

#include "text/template_syntax.h"

#define SMALL_CALL 6

tpl_value tpl_lookup(tpl_run *run, const tpl_string *name)
{
    tpl_scope *outermost = run->scope;
    for (tpl_scope *scope = run->scope; scope; scope = scope->parent) {
        if (!tpl_step(run, scope->count / 16)) return tpl_undefined(NULL);
        for (size_t i = 0; i < scope->count; i++)
            if (tpl_same_text(scope->bindings[i].name, name)) {
                const tpl_value value = scope->bindings[i].value;
                return value.kind == TPL_ABSENT ? tpl_undefined(name) : value;
            }
        outermost = scope;
    }
    /* Variables are converted when they are first asked for, and kept in the outermost scope. */
    const json_t *json = json_object_getn(run->variables, name->data, name->bytes);
    if (json) {
        const tpl_value value = tpl_from_json(run, json);
        tpl_scope_set(run, outermost, name, value);
        return value;
    }
    const tpl_native *function = tpl_native_find(tpl_globals, name->data, name->bytes);
    return function ? (tpl_value){.kind = TPL_FUNCTION, .native = function} : tpl_undefined(name);
}

static tpl_value eval_items(tpl_run *run, const tpl_node *node, tpl_kind kind)
{
    const tpl_value list = tpl_list_new(run, kind, 0);
    for (const tpl_node *item = node->first; item && !run->status; item = item->next)
        tpl_list_add(run, list.list, tpl_eval(run, item));
    return list;
}

static tpl_value eval_dict(tpl_run *run, const tpl_node *node)
{
    const tpl_value dict = tpl_dict_new(run, 0);
    for (const tpl_node *item = node->first; item && !run->status; item = item->next->next) {
        const tpl_value key = tpl_eval(run, item);
        tpl_dict_set(run, dict.dict, key, tpl_eval(run, item->next));
    }
    return dict;
}

static bool compare(tpl_run *run, int op, tpl_value a, tpl_value b)
{
    int order;
    switch (op) {
    case OP_EQUAL: return tpl_equal(run, a, b);
    case OP_UNEQUAL: return !tpl_equal(run, a, b);
    case OP_IN: return tpl_contains(run, b, a);
    case OP_NOT_IN: return !tpl_contains(run, b, a);
    case '<': return tpl_order(run, a, b, "<") == -1;
    case '>': return tpl_order(run, a, b, ">") == 1;
    case OP_LESS_EQUAL: order = tpl_order(run, a, b, "<="); return order == -1 || order == 0;
    default: order = tpl_order(run, a, b, ">="); return order == 1 || order == 0;
    }
}

static tpl_value eval_compare(tpl_run *run, const tpl_node *node)
{
    tpl_value left = tpl_eval(run, node->a);
    for (const tpl_node *operand = node->first; operand && !run->status; operand = operand->next) {
        const tpl_value right = tpl_eval(run, operand->a);
        if (!compare(run, operand->op, left, right)) return tpl_bool(false);
        left = right;
    }
    return tpl_bool(true);
}

static tpl_value eval_concat(tpl_run *run, const tpl_node *node)
{
    tpl_builder out = {0};
    for (const tpl_node *part = node->first; part && !run->status; part = part->next)
        tpl_put_str(run, &out, tpl_eval(run, part));
    return tpl_built(run, &out);
}

static tpl_value eval_item(tpl_run *run, const tpl_node *node)
{
    const tpl_value object = tpl_eval(run, node->a);
    if (node->b->kind != NODE_SLICE) return tpl_item(run, object, tpl_eval(run, node->b));
    tpl_value bounds[3] = {tpl_none(), tpl_none(), tpl_none()};
    const tpl_node *parts[3] = {node->b->a, node->b->b, node->b->c};
    for (int i = 0; i < 3; i++)
        if (parts[i]) bounds[i] = tpl_eval(run, parts[i]);
    return tpl_slice(run, object, bounds);
}

/* The arguments of a call, in memory that lives as long as the call; `extra` named arguments may be added. */
typedef struct call_args {
    tpl_args args;
    tpl_value values[SMALL_CALL], named[SMALL_CALL];
    const tpl_string *names[SMALL_CALL];
} call_args;

typedef struct arg_lists {
    tpl_value *values, *named;
    const tpl_string **names;
    size_t count, named_count;
} arg_lists;

static void spread_named(tpl_run *run, arg_lists *lists, tpl_value value, size_t room)
{
    if (value.kind != TPL_DICT) tpl_fail(run, ES_INVALID, "** needs a dict, not a %s", tpl_type_name(value));
    for (size_t i = 0; !run->status && i < value.dict->count && lists->named_count < room; i++) {
        lists->names[lists->named_count] = tpl_arg_string(run, value.dict->pairs[2 * i], "the name of an argument");
        lists->named[lists->named_count++] = value.dict->pairs[2 * i + 1];
    }
}

/* Spread arguments make the number of arguments known only now, so they take the way through the arena. */
static void eval_spread(tpl_run *run, const tpl_node *first, arg_lists *lists)
{
    const tpl_value positional = tpl_list_new(run, TPL_LIST, 0), dicts = tpl_list_new(run, TPL_LIST, 0);
    size_t named = 1;
    for (const tpl_node *arg = first; arg && !run->status; arg = arg->next) {
        const tpl_value value = tpl_eval(run, arg->a);
        if (arg->op == '*') {
            const tpl_list *items = tpl_iterate(run, value);
            for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) tpl_list_add(run, positional.list, items->items[i]);
        } else {
            tpl_list_add(run, arg->op == 0 ? positional.list : dicts.list, value);
            named += arg->op == OP_POWER && value.kind == TPL_DICT ? value.dict->count : 1;
        }
    }
    lists->names = tpl_take(run, named, sizeof *lists->names);
    lists->named = tpl_take(run, named, sizeof *lists->named);
    size_t at = 0;
    for (const tpl_node *arg = first; arg && !run->status; arg = arg->next) {
        if (arg->op == '=') {
            lists->names[lists->named_count] = arg->value.string;
            lists->named[lists->named_count++] = dicts.list->items[at++];
        } else if (arg->op == OP_POWER) {
            spread_named(run, lists, dicts.list->items[at++], named - 1);
        }
    }
    if (run->status) return;
    lists->values = positional.list->items;
    lists->count = positional.list->count;
}

static void eval_args(tpl_run *run, const tpl_node *first, const tpl_value *caller, call_args *call)
{
    static const tpl_string caller_name = {.data = "caller", .bytes = 6, .points = 6};
    arg_lists lists = {.values = call->values, .named = call->named, .names = call->names};
    size_t written = 0;
    bool spread = false;
    for (const tpl_node *arg = first; arg; arg = arg->next) {
        written++;
        spread |= arg->op == '*' || arg->op == OP_POWER;
    }
    if (spread || written >= SMALL_CALL) {
        eval_spread(run, first, &lists);
    } else {
        for (const tpl_node *arg = first; arg && !run->status; arg = arg->next) {
            const tpl_value value = tpl_eval(run, arg->a);
            if (arg->op == 0) {
                lists.values[lists.count++] = value;
            } else {
                lists.names[lists.named_count] = arg->value.string;
                lists.named[lists.named_count++] = value;
            }
        }
    }
    if (caller && !run->status) { /* one place was kept free for it */
        lists.names[lists.named_count] = &caller_name;
        lists.named[lists.named_count++] = *caller;
    }
    call->args = (tpl_args){.values = lists.values, .count = lists.count, .names = lists.names, .named = lists.named,
                            .named_count = lists.named_count};
}

tpl_value tpl_eval_call(tpl_run *run, const tpl_node *node, const tpl_value *caller)
{
    call_args call;
    const tpl_value callee = tpl_eval(run, node->a);
    eval_args(run, node->first, caller, &call);
    if (!run->status) run->line = node->line;
    return run->status ? tpl_undefined(NULL) : tpl_call_value(run, callee, &call.args);
}

static tpl_value eval_native(tpl_run *run, const tpl_node *node, tpl_value subject)
{
    call_args call;
    eval_args(run, node->first, NULL, &call);
    if (!run->status) run->line = node->line;
    if (!node->native)
        tpl_fail(run, ES_UNSUPPORTED, "there is no %s named '%.*s' here", node->kind == NODE_TEST ? "test" : "filter",
                 tpl_shown(node->value.string, 100), node->value.string->data);
    return run->status ? tpl_undefined(NULL) : tpl_call_native(run, node->native, subject, &call.args);
}

tpl_value tpl_eval_filters(tpl_run *run, const tpl_node *node, tpl_value text)
{
    if (!node) return text;
    if (!tpl_enter(run)) return tpl_undefined(NULL);
    const tpl_value subject = tpl_eval_filters(run, node->a, text);
    const tpl_value result = eval_native(run, node, subject);
    tpl_leave(run);
    return result;
}

static tpl_value eval_node(tpl_run *run, const tpl_node *node)
{
    tpl_value a;
    switch (node->kind) {
    case NODE_CONST: return node->value;
    case NODE_NAME: return tpl_lookup(run, node->value.string);
    case NODE_LIST: return eval_items(run, node, TPL_LIST);
    case NODE_TUPLE: return eval_items(run, node, TPL_TUPLE);
    case NODE_DICT: return eval_dict(run, node);
    case NODE_NEGATE: return tpl_negate(run, tpl_eval(run, node->a), node->op == '-');
    case NODE_NOT: return tpl_bool(!tpl_truth(tpl_eval(run, node->a)));
    case NODE_BINARY:
        a = tpl_eval(run, node->a);
        return tpl_arithmetic(run, node->op, a, tpl_eval(run, node->b));
    case NODE_AND:
        a = tpl_eval(run, node->a);
        return tpl_truth(a) ? tpl_eval(run, node->b) : a;
    case NODE_OR:
        a = tpl_eval(run, node->a);
        return tpl_truth(a) ? a : tpl_eval(run, node->b);
    case NODE_COMPARE: return eval_compare(run, node);
    case NODE_CONCAT: return eval_concat(run, node);
    case NODE_COND:
        if (tpl_truth(tpl_eval(run, node->b))) return tpl_eval(run, node->a);
        return node->c ? tpl_eval(run, node->c) : tpl_undefined(NULL);
    case NODE_ATTR: return tpl_attribute(run, tpl_eval(run, node->a), node->value.string);
    case NODE_ITEM: return eval_item(run, node);
    case NODE_CALL: return tpl_eval_call(run, node, NULL);
    case NODE_FILTER:
    case NODE_TEST: return eval_native(run, node, tpl_eval(run, node->a));
    default: tpl_fail(run, ES_INVALID, "a slice can not stand here"); return tpl_undefined(NULL);
    }
}

tpl_value tpl_eval(tpl_run *run, const tpl_node *node)
{
    if (!tpl_step(run, 1) || !tpl_enter(run)) return tpl_undefined(NULL);
    run->line = node->line;
    const tpl_value value = eval_node(run, node);
    tpl_leave(run);
    return run->status ? tpl_undefined(NULL) : value;
}

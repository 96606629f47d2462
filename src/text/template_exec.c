/* template_exec.c: what statements do: write text, bind names, run bodies.
 *
 * Scopes are as in Jinja2: if and the top level share the scope around them; each turn of a loop, a macro's call, with, and
 * the bodies of block set, filter and call have one of their own. What is set inside is gone outside; a namespace's members
 * are the way around that. */
#include <string.h>

#include "text/template_syntax.h"

enum { FLOW_BREAK = 1, FLOW_CONTINUE = 2 };

static const tpl_string loop_name = {.data = "loop", .bytes = 4, .points = 4};
static const tpl_string caller_name = {.data = "caller", .bytes = 6, .points = 6};
static const tpl_string varargs_name = {.data = "varargs", .bytes = 7, .points = 7};
static const tpl_string kwargs_name = {.data = "kwargs", .bytes = 6, .points = 6};

tpl_scope *tpl_scope_new(tpl_run *run, tpl_scope *parent)
{
    tpl_scope *scope = tpl_take(run, 1, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

void tpl_scope_set(tpl_run *run, tpl_scope *scope, const tpl_string *name, tpl_value value)
{
    if (!tpl_step(run, scope->count / 16)) return;
    for (size_t i = 0; i < scope->count; i++)
        if (tpl_same_text(scope->bindings[i].name, name)) {
            scope->bindings[i].value = value;
            return;
        }
    if (scope->count == scope->capacity) {
        const size_t capacity = scope->capacity ? scope->capacity * 2 : 4;
        tpl_binding *bindings = tpl_take(run, capacity, sizeof *bindings);
        if (!bindings) return;
        if (scope->count) memcpy(bindings, scope->bindings, scope->count * sizeof *bindings);
        scope->bindings = bindings;
        scope->capacity = capacity;
    }
    scope->bindings[scope->count++] = (tpl_binding){.name = name, .value = value};
}

/* Enter a scope; the names hidden there begin as unset. */
static tpl_scope *open_scope(tpl_run *run, const tpl_node *node, tpl_scope *parent)
{
    tpl_scope *scope = tpl_scope_new(run, parent);
    if (!scope) return NULL;
    for (size_t i = 0; i < node->hidden_count; i++)
        tpl_scope_set(run, scope, node->hidden[i], (tpl_value){.kind = TPL_ABSENT});
    return scope;
}

static void assign(tpl_run *run, const tpl_node *target, tpl_value value)
{
    if (!tpl_step(run, 1)) return;
    if (target->kind == NODE_NAME) {
        tpl_scope_set(run, run->scope, target->value.string, value);
        return;
    }
    if (target->kind == NODE_NSREF) {
        const tpl_value space = tpl_lookup(run, target->value.string);
        if (run->status) return;
        if (space.kind == TPL_NAMESPACE)
            tpl_dict_set(run, space.dict, target->b->value, value);
        else
            tpl_fail(run, ES_INVALID, "only a namespace's members can be set, not those of a %s", tpl_type_name(space));
        return;
    }
    if (tpl_refuse_undefined(run, value)) return;
    const tpl_list *items = tpl_iterate(run, value);
    size_t i = 0;
    const tpl_node *part = target->first;
    if (!tpl_enter(run)) return;
    for (; part && i < items->count && !run->status; part = part->next) assign(run, part, items->items[i++]);
    if (part || i < items->count) tpl_fail(run, ES_INVALID, "the number of values and of names they are given to differ");
    tpl_leave(run);
}

/* Run a body in `scope`, its text going to `out`. */
static void exec_into(tpl_run *run, const tpl_node *body, tpl_scope *scope, tpl_builder *out)
{
    tpl_builder *outer_out = run->out;
    tpl_scope *outer_scope = run->scope;
    if (!scope) return;
    run->out = out;
    run->scope = scope;
    tpl_exec(run, body);
    run->out = outer_out;
    run->scope = outer_scope;
}

static tpl_value captured(tpl_run *run, const tpl_node *node)
{
    tpl_builder out = {0};
    exec_into(run, node->body, open_scope(run, node, run->scope), &out);
    return tpl_built(run, &out);
}

/* The items of a loop, less those its condition refuses. */
static tpl_list *loop_items(tpl_run *run, const tpl_node *node)
{
    tpl_list *all = tpl_iterate(run, tpl_eval(run, node->b));
    if (!node->c || run->status) return all;
    const tpl_value some = tpl_list_new(run, TPL_LIST, 0);
    tpl_scope *scope = tpl_scope_new(run, run->scope), *outer = run->scope;
    if (!scope) return all;
    run->scope = scope;
    for (size_t i = 0; i < all->count && tpl_step(run, 1); i++) {
        assign(run, node->a, all->items[i]);
        if (tpl_truth(tpl_eval(run, node->c))) tpl_list_add(run, some.list, all->items[i]);
    }
    run->scope = outer;
    return some.list;
}

static void exec_for(tpl_run *run, const tpl_node *node)
{
    tpl_list *items = loop_items(run, node);
    tpl_loop *loop = tpl_take(run, 1, sizeof *loop);
    tpl_scope *scope = tpl_scope_new(run, run->scope), *outer = run->scope;
    if (run->status) return;
    bool finished = false;
    *loop = (tpl_loop){.items = items, .changed = {.kind = TPL_ABSENT}};
    run->scope = scope;
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        loop->index = i;
        scope->count = 0;
        for (size_t k = 0; k < node->hidden_count; k++)
            tpl_scope_set(run, scope, node->hidden[k], (tpl_value){.kind = TPL_ABSENT});
        assign(run, node->a, items->items[i]);
        tpl_scope_set(run, scope, &loop_name, (tpl_value){.kind = TPL_LOOP, .loop = loop});
        tpl_exec(run, node->body);
        const int flow = run->flow;
        run->flow = 0;
        finished |= flow == 0;
        if (flow == FLOW_BREAK) break;
    }
    run->scope = outer;
    /* As in jinja2, else runs when no turn came to its end: also after a break or continue in all of them. */
    if (!finished && node->otherwise) exec_into(run, node->otherwise, tpl_scope_new(run, outer), run->out);
}

static tpl_value macro_value(tpl_run *run, const tpl_node *node)
{
    tpl_macro *macro = tpl_take(run, 1, sizeof *macro);
    if (!macro) return tpl_undefined(NULL);
    *macro = (tpl_macro){.node = node, .scope = run->scope};
    return (tpl_value){.kind = TPL_MACRO, .macro = macro};
}

/* The named argument `name`, marked as used; NULL if it was not given. */
static const tpl_value *named_argument(const tpl_args *args, const tpl_string *name, bool *used)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (!used[i] && tpl_same_text(args->names[i], name)) {
            used[i] = true;
            return &args->named[i];
        }
    return NULL;
}

static void bind_parameters(tpl_run *run, const tpl_node *node, const tpl_args *args, bool *used)
{
    size_t at = 0;
    for (const tpl_node *param = node->first; param && !run->status; param = param->next, at++) {
        const tpl_string *name = param->value.string;
        const tpl_value *given = at < args->count ? &args->values[at] : named_argument(args, name, used);
        const tpl_value value = given ? *given : param->a ? tpl_eval(run, param->a) : tpl_undefined(name);
        tpl_scope_set(run, run->scope, name, value);
    }
    if (node->op & MACRO_VARARGS) {
        const tpl_value rest = tpl_list_new(run, TPL_TUPLE, 0);
        for (size_t i = at; i < args->count; i++) tpl_list_add(run, rest.list, args->values[i]);
        tpl_scope_set(run, run->scope, &varargs_name, rest);
    } else if (args->count > at) {
        tpl_fail(run, ES_INVALID, "the macro takes at most %zu arguments, %zu were given", at, args->count);
    }
}

static void bind_named_rest(tpl_run *run, const tpl_node *node, const tpl_args *args, bool *used)
{
    if (node->op & MACRO_CALLER) {
        const tpl_value *caller = named_argument(args, &caller_name, used);
        bool parameter = false;
        for (const tpl_node *param = node->first; param; param = param->next)
            parameter |= tpl_is(param->value.string, "caller");
        if (!parameter) tpl_scope_set(run, run->scope, &caller_name, caller ? *caller : tpl_undefined(&caller_name));
    }
    const tpl_value rest = tpl_dict_new(run, 0);
    for (size_t i = 0; i < args->named_count && !run->status; i++) {
        if (used[i]) continue;
        if (!(node->op & MACRO_KWARGS)) {
            tpl_fail(run, ES_INVALID, "the macro has no parameter '%.*s'", tpl_shown(args->names[i], 100),
                     args->names[i]->data);
            return;
        }
        tpl_dict_set(run, rest.dict, (tpl_value){.kind = TPL_STRING, .string = args->names[i]}, args->named[i]);
    }
    if (node->op & MACRO_KWARGS) tpl_scope_set(run, run->scope, &kwargs_name, rest);
}

tpl_value tpl_macro_call(tpl_run *run, const tpl_macro *macro, const tpl_args *args)
{
    const tpl_node *node = macro->node;
    tpl_builder out = {0};
    tpl_scope *scope = open_scope(run, node, macro->scope), *outer = run->scope;
    bool *used = tpl_take(run, args->named_count + 1, sizeof *used);
    if (!scope || !used) return tpl_undefined(NULL);
    run->scope = scope;
    bind_parameters(run, node, args, used);
    bind_named_rest(run, node, args, used);
    if (!run->status) exec_into(run, node->body, scope, &out);
    run->scope = outer;
    return tpl_built(run, &out);
}

static void exec_call_block(tpl_run *run, const tpl_node *node)
{
    const tpl_value caller = macro_value(run, node->b);
    tpl_put_str(run, run->out, tpl_eval_call(run, node->a, &caller));
}

static void exec_with(tpl_run *run, const tpl_node *node)
{
    tpl_scope *scope = open_scope(run, node, run->scope), *outer = run->scope;
    for (const tpl_node *set = node->first; set && !run->status; set = set->next) {
        const tpl_value value = tpl_eval(run, set->b);
        run->scope = scope;
        assign(run, set->a, value);
        run->scope = outer;
    }
    exec_into(run, node->body, scope, run->out);
}

static void exec_if(tpl_run *run, const tpl_node *node)
{
    while (node && node->kind == NODE_IF && !run->status) {
        if (tpl_truth(tpl_eval(run, node->a))) {
            tpl_exec(run, node->body);
            return;
        }
        /* An elif is an if of its own in the place of else, without anything behind it. */
        const tpl_node *other = node->otherwise;
        if (!other || other->kind != NODE_IF || other->next || !other->op) {
            tpl_exec(run, other);
            return;
        }
        node = other;
    }
}

static void exec_node(tpl_run *run, const tpl_node *node)
{
    switch (node->kind) {
    case NODE_TEXT: tpl_put_string(run, run->out, node->value.string); break;
    case NODE_PRINT: tpl_put_str(run, run->out, tpl_eval(run, node->a)); break;
    case NODE_IF: exec_if(run, node); break;
    case NODE_FOR: exec_for(run, node); break;
    case NODE_SET: assign(run, node->a, tpl_eval(run, node->b)); break;
    case NODE_SET_BLOCK: assign(run, node->a, tpl_eval_filters(run, node->b, captured(run, node))); break;
    case NODE_MACRO: tpl_scope_set(run, run->scope, node->value.string, macro_value(run, node)); break;
    case NODE_CALL_BLOCK: exec_call_block(run, node); break;
    case NODE_FILTER_BLOCK: tpl_put_str(run, run->out, tpl_eval_filters(run, node->a, captured(run, node))); break;
    case NODE_WITH: exec_with(run, node); break;
    case NODE_BREAK: run->flow = FLOW_BREAK; break;
    case NODE_CONTINUE: run->flow = FLOW_CONTINUE; break;
    default: tpl_fail(run, ES_INTERNAL, "an expression stands where a statement should"); break;
    }
}

void tpl_exec(tpl_run *run, const tpl_node *body)
{
    if (!body || !tpl_enter(run)) return;
    for (const tpl_node *node = body; node && !run->flow && tpl_step(run, 1); node = node->next) {
        run->line = node->line;
        exec_node(run, node);
    }
    tpl_leave(run);
}

/* template_symbols.c: which names a scope hides.
 *
 * jinja2 compiles a template, and its compiler decides once per scope where a name comes from. A name that a scope sets
 * before it reads it, outside of any if, begins there as unset, even when the variables have one of that name: the loop in
 * {% for i in x %}{{ a }}{% endfor %}{% set a = 1 %} sees no `a`. Templates have come to rely on such things, so the same
 * decision is taken here after parsing; scopes then start with those names marked as unset. Scopes, and what reads and sets
 * names in them, are visited in jinja2's order. */
#include <string.h>

#include "text/template_syntax.h"

typedef enum load_kind {
    LOAD_OUTSIDE, /* from an outer scope or the variables: what looking it up finds anyway */
    LOAD_UNSET,   /* hidden */
    LOAD_PARAM,   /* given on entry */
} load_kind;

typedef struct symbol {
    const tpl_string *name;
    load_kind load;
    bool stored;
} symbol;

typedef struct symbols {
    const struct symbols *parent;
    symbol *items;
    size_t count, capacity;
} symbols;

static symbol *find(tpl_run *run, const symbols *scope, const tpl_string *name)
{
    if (!tpl_step(run, 1 + scope->count / 16)) return NULL;
    for (size_t i = 0; i < scope->count; i++)
        if (tpl_same_text(scope->items[i].name, name)) return &scope->items[i];
    return NULL;
}

static bool known_outside(tpl_run *run, const symbols *scope, const tpl_string *name)
{
    for (const symbols *s = scope->parent; s; s = s->parent)
        if (find(run, s, name)) return true;
    return false;
}

static void reserve(tpl_run *run, symbols *scope, size_t count)
{
    if (count <= scope->capacity) return;
    const size_t capacity = count < 8 ? 8 : count * 2;
    symbol *items = tpl_take(run, capacity, sizeof *items);
    if (!items) return;
    if (scope->count) memcpy(items, scope->items, scope->count * sizeof *items);
    scope->items = items;
    scope->capacity = capacity;
}

static void add(tpl_run *run, symbols *scope, symbol item)
{
    reserve(run, scope, scope->count + 1);
    if (!run->status) scope->items[scope->count++] = item;
}

static void load(tpl_run *run, symbols *scope, const tpl_string *name)
{
    if (!find(run, scope, name) && !known_outside(run, scope, name)) add(run, scope, (symbol){name, LOAD_OUTSIDE, false});
}

static void store(tpl_run *run, symbols *scope, const tpl_string *name)
{
    symbol *known = find(run, scope, name);
    if (known)
        known->stored = true;
    else
        add(run, scope, (symbol){name, known_outside(run, scope, name) ? LOAD_OUTSIDE : LOAD_UNSET, true});
}

static void declare(tpl_run *run, symbols *scope, const tpl_string *name)
{
    symbol *known = find(run, scope, name);
    if (known)
        *known = (symbol){name, LOAD_PARAM, true};
    else
        add(run, scope, (symbol){name, LOAD_PARAM, true});
}

static void visit_expression(tpl_run *run, symbols *scope, const tpl_node *node)
{
    if (!node || !tpl_enter(run)) return;
    if (node->kind == NODE_NAME || node->kind == NODE_NSREF) load(run, scope, node->value.string);
    visit_expression(run, scope, node->a);
    visit_expression(run, scope, node->b);
    visit_expression(run, scope, node->c);
    for (const tpl_node *child = node->first; child && !run->status; child = child->next) visit_expression(run, scope, child);
    tpl_leave(run);
}

static void visit_target(tpl_run *run, symbols *scope, const tpl_node *node, bool param)
{
    if (!tpl_enter(run)) return;
    if (node->kind == NODE_NAME)
        (param ? declare : store)(run, scope, node->value.string);
    else if (node->kind == NODE_NSREF)
        load(run, scope, node->value.string);
    for (const tpl_node *child = node->first; child && !run->status; child = child->next)
        visit_target(run, scope, child, param);
    tpl_leave(run);
}

static symbols copy_of(tpl_run *run, const symbols *scope)
{
    symbols copy = {.parent = scope->parent};
    reserve(run, &copy, scope->count);
    if (run->status) return copy;
    if (scope->count) memcpy(copy.items, scope->items, scope->count * sizeof *copy.items);
    copy.count = scope->count;
    return copy;
}

static void visit_body(tpl_run *run, symbols *scope, const tpl_node *body);

/* What branches know, put together: the later ones win, and a name that only some branch sets comes from outside. */
static void merge_branches(tpl_run *run, symbols *scope, symbols branches[3])
{
    const size_t before = scope->count;
    for (int b = 0; b < 3; b++)
        for (size_t i = 0; i < branches[b].count && !run->status; i++) {
            symbol item = branches[b].items[i];
            symbol *known = i < before ? &scope->items[i] : find(run, scope, item.name);
            const bool fresh = item.stored && !(known && i < before && known->stored);
            if (fresh && item.load != LOAD_PARAM) item.load = LOAD_OUTSIDE;
            if (!known) {
                add(run, scope, item);
            } else if (i >= before) {
                item.stored |= known->stored;
                *known = item;
            } else if (item.stored && !known->stored) {
                known->load = LOAD_OUTSIDE; /* `stored` is noted below: the other branches compare with what was before */
            }
        }
    for (int b = 0; b < 3; b++)
        for (size_t i = 0; i < before && i < branches[b].count && !run->status; i++)
            scope->items[i].stored |= branches[b].items[i].stored;
}

static void visit_if(tpl_run *run, symbols *scope, const tpl_node *node)
{
    visit_expression(run, scope, node->a);
    symbols branches[3] = {copy_of(run, scope), copy_of(run, scope), copy_of(run, scope)};
    visit_body(run, &branches[0], node->body);
    const tpl_node *other = node->otherwise;
    for (; other && other->kind == NODE_IF && other->op && !run->status; other = other->otherwise) {
        visit_expression(run, &branches[1], other->a);
        symbols inner[3] = {copy_of(run, &branches[1]), copy_of(run, &branches[1]), copy_of(run, &branches[1])};
        visit_body(run, &inner[0], other->body);
        if (!run->status) merge_branches(run, &branches[1], inner);
    }
    visit_body(run, &branches[2], other);
    if (!run->status) merge_branches(run, scope, branches);
}

static void visit_statement(tpl_run *run, symbols *scope, const tpl_node *node)
{
    switch (node->kind) {
    case NODE_PRINT: visit_expression(run, scope, node->a); break;
    case NODE_IF: visit_if(run, scope, node); break;
    case NODE_FOR: visit_expression(run, scope, node->b); break;
    case NODE_SET:
        visit_expression(run, scope, node->b);
        visit_target(run, scope, node->a, false);
        break;
    case NODE_SET_BLOCK: visit_target(run, scope, node->a, false); break;
    case NODE_MACRO: store(run, scope, node->value.string); break;
    case NODE_CALL_BLOCK:
    case NODE_FILTER_BLOCK: visit_expression(run, scope, node->a); break;
    case NODE_WITH:
        for (const tpl_node *set = node->first; set && !run->status; set = set->next) visit_expression(run, scope, set->b);
        break;
    default: break;
    }
}

static void visit_body(tpl_run *run, symbols *scope, const tpl_node *body)
{
    if (!tpl_enter(run)) return;
    for (const tpl_node *node = body; node && !run->status; node = node->next) visit_statement(run, scope, node);
    tpl_leave(run);
}

static void resolve_inside(tpl_run *run, const symbols *scope, tpl_node *body);

/* Finish a scope: keep its hidden names with `node` (NULL: it can have none), and go on with the scopes inside. */
static void close_scope(tpl_run *run, const symbols *scope, tpl_node *node, tpl_node *body)
{
    size_t hidden = 0;
    for (size_t i = 0; i < scope->count; i++) hidden += scope->items[i].load == LOAD_UNSET;
    if (hidden && node) {
        node->hidden = tpl_take(run, hidden, sizeof *node->hidden);
        for (size_t i = 0; i < scope->count && !run->status; i++)
            if (scope->items[i].load == LOAD_UNSET) node->hidden[node->hidden_count++] = scope->items[i].name;
    }
    resolve_inside(run, scope, body);
}

static void resolve_macro(tpl_run *run, const symbols *outer, tpl_node *node)
{
    symbols scope = {.parent = outer};
    for (const tpl_node *param = node->first; param && !run->status; param = param->next)
        declare(run, &scope, param->value.string);
    for (const tpl_node *param = node->first; param && !run->status; param = param->next)
        visit_expression(run, &scope, param->a);
    visit_body(run, &scope, node->body);
    close_scope(run, &scope, node, node->body);
}

static void resolve_for(tpl_run *run, const symbols *outer, tpl_node *node)
{
    symbols scope = {.parent = outer}, otherwise = {.parent = outer};
    visit_target(run, &scope, node->a, true);
    visit_body(run, &scope, node->body);
    close_scope(run, &scope, node, node->body);
    visit_body(run, &otherwise, node->otherwise);
    close_scope(run, &otherwise, NULL, node->otherwise);
}

static void resolve_with(tpl_run *run, const symbols *outer, tpl_node *node)
{
    symbols scope = {.parent = outer};
    for (const tpl_node *set = node->first; set && !run->status; set = set->next) visit_target(run, &scope, set->a, true);
    visit_body(run, &scope, node->body);
    close_scope(run, &scope, node, node->body);
}

static void resolve_inside(tpl_run *run, const symbols *scope, tpl_node *body)
{
    if (!tpl_enter(run)) return;
    for (tpl_node *node = body; node && !run->status; node = node->next) {
        switch (node->kind) {
        case NODE_IF:
            resolve_inside(run, scope, node->body);
            for (tpl_node *other = node->otherwise; other; other = other->otherwise) {
                if (other->kind != NODE_IF || !other->op) {
                    resolve_inside(run, scope, other);
                    break;
                }
                resolve_inside(run, scope, other->body);
            }
            break;
        case NODE_FOR: resolve_for(run, scope, node); break;
        case NODE_MACRO: resolve_macro(run, scope, node); break;
        case NODE_CALL_BLOCK: resolve_macro(run, scope, node->b); break;
        case NODE_SET_BLOCK:
        case NODE_FILTER_BLOCK:
        case NODE_WITH: resolve_with(run, scope, node); break;
        default: break;
        }
    }
    tpl_leave(run);
}

void tpl_resolve_scopes(tpl_run *run, tpl_node *root)
{
    symbols top = {.parent = NULL};
    visit_body(run, &top, root->body);
    close_scope(run, &top, root, root->body);
}

/* template_call.c: calling what can be called, and fitting arguments to parameters. */
#include <string.h>

#include "text/template_value.h"

const tpl_native *tpl_native_find(const tpl_native *table, const char *name, size_t bytes)
{
    for (; table->name; table++)
        if (strlen(table->name) == bytes && memcmp(table->name, name, bytes) == 0) return table;
    return NULL;
}

const tpl_native *tpl_filter_find(const char *name, size_t bytes)
{
    const tpl_native *found = tpl_native_find(tpl_filters_text, name, bytes);
    if (!found) found = tpl_native_find(tpl_filters_list, name, bytes);
    return found ? found : tpl_native_find(tpl_filters_value, name, bytes);
}

/* Where `name` stands among the parameters; -1 if it does not. */
static int parameter_named(const char *params, const tpl_string *name)
{
    int index = 0;
    for (const char *p = params; *p;) {
        const size_t n = strcspn(p, " ");
        if (*p != '/') {
            if (n == name->bytes && memcmp(p, name->data, n) == 0) return index;
            index++;
        }
        p += n + (p[n] == ' ');
    }
    return -1;
}

static void parameter_counts(const char *params, size_t *required, size_t *all)
{
    bool optional = false;
    *required = *all = 0;
    for (const char *p = params; *p;) {
        const size_t n = strcspn(p, " ");
        if (*p == '/')
            optional = true;
        else
            ++*all, *required += !optional;
        p += n + (p[n] == ' ');
    }
}

tpl_value tpl_call_native(tpl_run *run, const tpl_native *native, tpl_value self, const tpl_args *args)
{
    tpl_value slot[TPL_MAX_PARAMS];
    size_t required, all;
    if (run->status) return tpl_undefined(NULL);
    if (native->call_raw) return native->call_raw(run, self, args); /* format keeps markup by itself */
    parameter_counts(native->params, &required, &all);
    for (size_t i = 0; i < TPL_MAX_PARAMS; i++) slot[i] = (tpl_value){.kind = TPL_ABSENT};
    if (args->count > all) {
        tpl_fail(run, ES_INVALID, "%s() takes at most %zu arguments, %zu were given", native->name, all, args->count);
        return tpl_undefined(NULL);
    }
    for (size_t i = 0; i < args->count; i++) slot[i] = args->values[i];
    for (size_t i = 0; i < args->named_count; i++) {
        const int at = parameter_named(native->params, args->names[i]);
        if (at < 0 || slot[at].kind != TPL_ABSENT) {
            tpl_fail(run, ES_INVALID, "%s() %s argument named '%.*s'", native->name, at < 0 ? "has no" : "got twice the",
                     tpl_shown(args->names[i], 100), args->names[i]->data);
            return tpl_undefined(NULL);
        }
        slot[at] = args->named[i];
    }
    for (size_t i = 0; i < required; i++)
        if (slot[i].kind == TPL_ABSENT) {
            tpl_fail(run, ES_INVALID, "%s() needs at least %zu arguments", native->name, required);
            return tpl_undefined(NULL);
        }
    const tpl_value result = native->call(run, self, slot);
    return tpl_is_markup(self) ? tpl_keep_markup(run, native->name, result) : result;
}

static tpl_value call_joiner(struct tpl_joiner *joiner)
{
    static const tpl_string nothing = {.data = "", .bytes = 0, .points = 0};
    if (joiner->used) return joiner->separator;
    joiner->used = true;
    return (tpl_value){.kind = TPL_STRING, .string = &nothing};
}

tpl_value tpl_call_value(tpl_run *run, tpl_value callee, const tpl_args *args)
{
    tpl_value result = tpl_undefined(NULL);
    if (!tpl_enter(run)) return result;
    switch (callee.kind) {
    case TPL_FUNCTION: result = tpl_call_native(run, callee.native, tpl_none(), args); break;
    case TPL_METHOD:
        result = tpl_call_native(run, callee.method->native, callee.method->self, args);
        if (tpl_is_markup(callee.method->self)) result = tpl_mark(run, result);
        break;
    case TPL_MACRO: result = tpl_macro_call(run, callee.macro, args); break;
    case TPL_JOINER: result = call_joiner(callee.joiner); break;
    default:
        if (!tpl_refuse_undefined(run, callee)) tpl_fail(run, ES_INVALID, "a %s can not be called", tpl_type_name(callee));
    }
    tpl_leave(run);
    return result;
}

const tpl_string *tpl_arg_string(tpl_run *run, tpl_value value, const char *what)
{
    static const tpl_string nothing = {.data = "", .bytes = 0, .points = 0};
    if (value.kind == TPL_STRING) return value.string;
    tpl_fail(run, ES_INVALID, "%s must be a str, not a %s", what, tpl_type_name(value));
    return &nothing;
}

int64_t tpl_arg_integer(tpl_run *run, tpl_value value, int64_t absent, const char *what)
{
    if (value.kind == TPL_ABSENT) return absent;
    if (tpl_is_integer(value)) return tpl_as_integer(value);
    tpl_fail(run, ES_INVALID, "%s must be an int, not a %s", what, tpl_type_name(value));
    return absent;
}

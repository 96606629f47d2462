/* template_markup.c: text that is known to be safe HTML.
 *
 * Chat templates have no use for it, but some say |safe all the same, and then Python's Markup type comes into play: whatever
 * is added to such a string is escaped. Templates were tested with that, so it must happen here too. */
#include <string.h>

#include "text/template_value.h"

bool tpl_is_markup(tpl_value value)
{
    return value.kind == TPL_STRING && value.string->markup;
}

tpl_value tpl_mark(tpl_run *run, tpl_value value)
{
    if (value.kind == TPL_STRING) {
        tpl_string *marked = tpl_take(run, 1, sizeof *marked);
        if (!marked) return value;
        *marked = *value.string;
        marked->markup = true;
        return (tpl_value){.kind = TPL_STRING, .string = marked};
    }
    if (value.kind != TPL_LIST && value.kind != TPL_TUPLE) return value;
    const tpl_value copy = tpl_list_new(run, value.kind, value.list->count);
    for (size_t i = 0; i < value.list->count && tpl_step(run, 1); i++) {
        const tpl_value item = value.list->items[i];
        tpl_list_add(run, copy.list, item.kind == TPL_STRING ? tpl_mark(run, item) : item);
    }
    return copy;
}

void tpl_put_escaped(tpl_run *run, tpl_builder *out, const tpl_string *s)
{
    for (size_t i = 0; i < s->bytes && tpl_step(run, i % 16 == 0); i++) {
        switch (s->data[i]) {
        case '&': tpl_puts(run, out, "&amp;"); break;
        case '<': tpl_puts(run, out, "&lt;"); break;
        case '>': tpl_puts(run, out, "&gt;"); break;
        case '\'': tpl_puts(run, out, "&#39;"); break;
        case '"': tpl_puts(run, out, "&#34;"); break;
        default: tpl_put(run, out, s->data + i, 1);
        }
    }
}

tpl_value tpl_escape(tpl_run *run, tpl_value value)
{
    if (tpl_is_markup(value)) return value;
    tpl_builder out = {0};
    tpl_put_escaped(run, &out, tpl_str(run, value));
    return tpl_mark(run, tpl_built(run, &out));
}

tpl_value tpl_keep_markup(tpl_run *run, const char *filter, tpl_value result)
{
    static const char *const keeping[] = {"upper",  "lower",    "capitalize", "trim",  "center",
                                          "indent", "truncate", "reverse",    "format"};
    if (result.kind != TPL_STRING || result.string->markup) return result;
    for (size_t i = 0; i < sizeof keeping / sizeof *keeping; i++)
        if (strcmp(filter, keeping[i]) == 0) return tpl_mark(run, result);
    return result;
}

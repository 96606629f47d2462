/* template_globals.c: the functions a template finds without being given any. */
#include <string.h>
#include <time.h>

#include "text/template_value.h"

#define MAX_RANGE 100000 /* as jinja2's sandbox has it */

static tpl_value global_range(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)self;
    const bool one = arg[1].kind == TPL_ABSENT;
    const int64_t start = one ? 0 : tpl_arg_integer(run, arg[0], 0, "the start");
    const int64_t stop = tpl_arg_integer(run, one ? arg[0] : arg[1], 0, "the end");
    const int64_t step = tpl_arg_integer(run, arg[2], 1, "the step");
    if (step == 0) tpl_fail(run, ES_INVALID, "range: the step is 0");
    tpl_range *range = tpl_take(run, 1, sizeof *range);
    if (!range) return tpl_undefined(NULL);
    *range = (tpl_range){.start = start, .stop = stop, .step = step, .count = 0};
    if (step > 0 ? start < stop : start > stop) {
        const uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
        const uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
        const uint64_t count = (span - 1) / stride + 1;
        int64_t end;
        if (count > MAX_RANGE) tpl_fail(run, ES_INVALID, "range: more than %d items", MAX_RANGE);
        else range->count = (int64_t)count;
        if (__builtin_mul_overflow(range->count, step, &end) || __builtin_add_overflow(start, end, &end)) {
            tpl_fail(run, ES_INVALID, "range: an end does not fit in 64 bits");
            range->count = 0;
        }
    }
    return (tpl_value){.kind = TPL_RANGE, .range = range};
}

/* dict(mapping or pairs, name=value, ...) */
static tpl_value global_dict(tpl_run *run, tpl_value self, const tpl_args *args)
{
    (void)self;
    const tpl_value dict = tpl_dict_new(run, 0);
    if (args->count > 1) tpl_fail(run, ES_INVALID, "dict() takes at most one value without a name");
    if (run->status) return dict;
    if (args->count == 1 && args->values[0].kind == TPL_DICT) {
        const tpl_dict *from = args->values[0].dict;
        for (size_t i = 0; i < from->count && tpl_step(run, 1); i++)
            tpl_dict_set(run, dict.dict, from->pairs[2 * i], from->pairs[2 * i + 1]);
    } else if (args->count == 1) {
        const tpl_list *pairs = tpl_iterate(run, args->values[0]);
        for (size_t i = 0; i < pairs->count && tpl_step(run, 1); i++) {
            const tpl_list *pair = tpl_iterate(run, pairs->items[i]);
            if (pair->count != 2) tpl_fail(run, ES_INVALID, "dict() needs pairs");
            if (!run->status) tpl_dict_set(run, dict.dict, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < args->named_count && tpl_step(run, 1); i++)
        tpl_dict_set(run, dict.dict, (tpl_value){.kind = TPL_STRING, .string = args->names[i]}, args->named[i]);
    return dict;
}

static tpl_value global_namespace(tpl_run *run, tpl_value self, const tpl_args *args)
{
    tpl_value space = global_dict(run, self, args);
    if (!run->status) space.kind = TPL_NAMESPACE;
    return space;
}

static tpl_value global_cycler(tpl_run *run, tpl_value self, const tpl_args *args)
{
    (void)self;
    if (args->count == 0 || args->named_count) tpl_fail(run, ES_INVALID, "cycler() needs the items to cycle through");
    const tpl_value cycler = tpl_list_new(run, TPL_CYCLER, args->count);
    for (size_t i = 0; i < args->count && !run->status; i++) tpl_list_add(run, cycler.list, args->values[i]);
    return cycler;
}

static tpl_value global_joiner(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)self;
    struct tpl_joiner *joiner = tpl_take(run, 1, sizeof *joiner);
    if (!joiner) return tpl_undefined(NULL);
    joiner->separator = arg[0].kind == TPL_ABSENT ? tpl_literal(run, ", ") : arg[0];
    return (tpl_value){.kind = TPL_JOINER, .joiner = joiner};
}

static tpl_value global_raise(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)self;
    const tpl_string *text = tpl_str(run, arg[0]);
    tpl_fail(run, ES_INVALID, "%.*s", tpl_shown(text, 700), text->data);
    return tpl_undefined(NULL);
}

static tpl_value global_strftime_now(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)self;
    char format[256], text[2048];
    const tpl_string *wanted = tpl_arg_string(run, arg[0], "the format");
    if (wanted->bytes >= sizeof format) tpl_fail(run, ES_INVALID, "strftime_now: the format is too long");
    if (run->status) return tpl_undefined(NULL);
    memcpy(format, wanted->data, wanted->bytes);
    format[wanted->bytes] = '\0';
    const time_t seconds = (time_t)run->now;
    struct tm now;
    if (!gmtime_r(&seconds, &now)) {
        tpl_fail(run, ES_INVALID, "strftime_now: the time is out of range");
        return tpl_undefined(NULL);
    }
    /* A format made of a template is the very purpose; the buffer bounds what it can write. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t bytes = strftime(text, sizeof text, format, &now);
#pragma GCC diagnostic pop
    tpl_builder out = {0};
    tpl_put(run, &out, text, bytes);
    return tpl_built(run, &out);
}

const tpl_native tpl_globals[] = {
    {"range", "start / stop step", global_range, NULL},
    {"dict", NULL, NULL, global_dict},
    {"namespace", NULL, NULL, global_namespace},
    {"cycler", NULL, NULL, global_cycler},
    {"joiner", "/ sep", global_joiner, NULL},
    {"raise_exception", "message", global_raise, NULL},
    {"strftime_now", "format", global_strftime_now, NULL},
    {0},
};

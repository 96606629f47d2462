/* template_tests.c: what may stand behind `is`. */
#include <string.h>

#include "text/template_syntax.h"
#include "text/template_text.h"

#define TEST(name, expression)                                                        \
    static tpl_value test_##name(tpl_run *run, tpl_value self, const tpl_value *arg)  \
    {                                                                                 \
        (void)run, (void)self, (void)arg;                                                       \
        return tpl_bool(expression);                                                  \
    }

static bool remainder_is(tpl_run *run, tpl_value value, tpl_value divisor, int64_t rest)
{
    return tpl_equal(run, tpl_arithmetic(run, '%', value, divisor), tpl_int(rest));
}

static bool same_object(tpl_value a, tpl_value b)
{
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case TPL_NONE: return true;
    case TPL_BOOL: return a.boolean == b.boolean;
    case TPL_INT: return a.integer == b.integer;
    case TPL_FLOAT: return a.real == b.real;
    case TPL_STRING: return tpl_same_text(a.string, b.string);
    case TPL_UNDEFINED: return false;
    default: return a.list == b.list;
    }
}

static bool callable(tpl_value value)
{
    switch (value.kind) {
    case TPL_UNDEFINED:
    case TPL_MACRO:
    case TPL_METHOD:
    case TPL_FUNCTION:
    case TPL_LOOP:
    case TPL_JOINER: return true;
    default: return false;
    }
}

static bool has_items(tpl_value value)
{
    return value.kind != TPL_VIEW && value.kind != TPL_LOOP && tpl_length(value) >= 0;
}

static bool ordered(tpl_run *run, tpl_value a, tpl_value b, const char *op)
{
    const int order = tpl_order(run, a, b, op);
    if (op[1] == '=' && order == 0) return true;
    return order == (op[0] == '<' ? -1 : 1);
}

TEST(defined, self.kind != TPL_UNDEFINED)
TEST(undefined, self.kind == TPL_UNDEFINED)
TEST(none, self.kind == TPL_NONE)
TEST(boolean, self.kind == TPL_BOOL)
TEST(true, self.kind == TPL_BOOL && self.boolean)
TEST(false, self.kind == TPL_BOOL && !self.boolean)
TEST(integer, self.kind == TPL_INT)
TEST(float, self.kind == TPL_FLOAT)
TEST(number, tpl_is_number(self))
TEST(string, self.kind == TPL_STRING)
TEST(mapping, self.kind == TPL_DICT)
TEST(sequence, has_items(self))
TEST(iterable, tpl_iterable(self))
TEST(callable, callable(self))
TEST(escaped, tpl_is_markup(self))
TEST(odd, remainder_is(run, self, tpl_int(2), 1))
TEST(even, remainder_is(run, self, tpl_int(2), 0))
TEST(divisibleby, remainder_is(run, self, arg[0], 0))
TEST(lower, tpl_cased(tpl_str(run, self), false))
TEST(upper, tpl_cased(tpl_str(run, self), true))
TEST(sameas, same_object(self, arg[0]))
TEST(in, tpl_contains(run, arg[0], self))
TEST(eq, tpl_equal(run, self, arg[0]))
TEST(ne, !tpl_equal(run, self, arg[0]))
TEST(lt, ordered(run, self, arg[0], "<"))
TEST(le, ordered(run, self, arg[0], "<="))
TEST(gt, ordered(run, self, arg[0], ">"))
TEST(ge, ordered(run, self, arg[0], ">="))
TEST(filter, self.kind == TPL_STRING && tpl_filter_find(self.string->data, self.string->bytes) != NULL)
TEST(test, self.kind == TPL_STRING && tpl_native_find(tpl_tests, self.string->data, self.string->bytes) != NULL)

const tpl_native tpl_tests[] = {
    {"defined", "", test_defined, NULL},
    {"undefined", "", test_undefined, NULL},
    {"none", "", test_none, NULL},
    {"boolean", "", test_boolean, NULL},
    {"true", "", test_true, NULL},
    {"false", "", test_false, NULL},
    {"integer", "", test_integer, NULL},
    {"float", "", test_float, NULL},
    {"number", "", test_number, NULL},
    {"string", "", test_string, NULL},
    {"mapping", "", test_mapping, NULL},
    {"sequence", "", test_sequence, NULL},
    {"iterable", "", test_iterable, NULL},
    {"callable", "", test_callable, NULL},
    {"escaped", "", test_escaped, NULL},
    {"odd", "", test_odd, NULL},
    {"even", "", test_even, NULL},
    {"divisibleby", "num", test_divisibleby, NULL},
    {"lower", "", test_lower, NULL},
    {"upper", "", test_upper, NULL},
    {"sameas", "other", test_sameas, NULL},
    {"in", "seq", test_in, NULL},
    {"eq", "other", test_eq, NULL},
    {"equalto", "other", test_eq, NULL},
    {"==", "other", test_eq, NULL},
    {"ne", "other", test_ne, NULL},
    {"!=", "other", test_ne, NULL},
    {"lt", "other", test_lt, NULL},
    {"lessthan", "other", test_lt, NULL},
    {"<", "other", test_lt, NULL},
    {"le", "other", test_le, NULL},
    {"<=", "other", test_le, NULL},
    {"gt", "other", test_gt, NULL},
    {"greaterthan", "other", test_gt, NULL},
    {">", "other", test_gt, NULL},
    {"ge", "other", test_ge, NULL},
    {">=", "other", test_ge, NULL},
    {"filter", "", test_filter, NULL},
    {"test", "", test_test, NULL},
    {0},
};

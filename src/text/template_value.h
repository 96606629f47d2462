/* template_value.h: what a chat template computes with, and the one rendering it computes in.
 *
 * Values are those of Python as far as templates use them: None, bool, int (64 bits), float, str (UTF-8, counted in code
 * points), list, tuple, dict, range, and the callables. They are immutable and live in the arena of their rendering (or of
 * the parsed template, for constants), so nothing is ever freed singly.
 *
 * Errors are sticky: tpl_fail() notes the first one in the run and every later step returns at once with a harmless value.
 * Loops ask tpl_step() and thereby also learn that something failed. */
#ifndef ES_TEXT_TEMPLATE_VALUE_H
#define ES_TEXT_TEMPLATE_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum tpl_kind {
    TPL_UNDEFINED, /**< a name or member that is not there; `string` is its name, or NULL */
    TPL_ABSENT,    /**< an argument that was not given; never seen by a template */
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STRING,
    TPL_LIST,
    TPL_TUPLE,
    TPL_STREAM, /**< what Python calls an iterator or generator: read once */
    TPL_VIEW,   /**< dict.keys(), .values(), .items() */
    TPL_DICT,
    TPL_RANGE,
    TPL_NAMESPACE,
    TPL_MACRO,
    TPL_METHOD,   /**< a bound method: receiver and table row */
    TPL_FUNCTION, /**< a global function: table row */
    TPL_LOOP,
    TPL_JOINER,
    TPL_CYCLER,
} tpl_kind;

typedef struct tpl_value tpl_value;
typedef struct tpl_run tpl_run;
typedef struct tpl_node tpl_node;
typedef struct tpl_scope tpl_scope;

typedef struct tpl_string {
    const char *data; /**< valid UTF-8, not NUL-terminated */
    size_t bytes;
    size_t points; /**< code points; equal to bytes when all is ASCII */
    bool markup;   /**< made by |safe or |escape: what is joined to it gets escaped */
} tpl_string;

typedef struct tpl_list {
    tpl_value *items;
    size_t count, capacity;
    size_t next;       /**< TPL_STREAM: items already taken */
    const char *label; /**< TPL_STREAM and TPL_VIEW: Python's name for it */
} tpl_list;

typedef struct tpl_dict {
    tpl_value *pairs; /**< key, value, key, value, ... in the order they came */
    size_t count, capacity;
} tpl_dict;

typedef struct tpl_range {
    int64_t start, stop, step; /**< `stop` as written, for printing */
    int64_t count;
} tpl_range;

typedef struct tpl_macro {
    const tpl_node *node; /**< parameters and body */
    tpl_scope *scope;     /**< where it was defined */
} tpl_macro;

typedef struct tpl_method tpl_method;
typedef struct tpl_loop tpl_loop;
typedef struct tpl_native tpl_native;

struct tpl_value {
    tpl_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const tpl_string *string;
        tpl_list *list; /**< TPL_LIST, TPL_TUPLE, TPL_STREAM, TPL_VIEW; TPL_CYCLER (next = position) */
        tpl_dict *dict; /**< TPL_DICT, TPL_NAMESPACE */
        tpl_range *range;
        const tpl_macro *macro;
        const tpl_method *method;
        const tpl_native *native;
        tpl_loop *loop;
        struct tpl_joiner *joiner;
    };
};

struct tpl_method {
    tpl_value self;
    const tpl_native *native;
};

struct tpl_loop {
    tpl_list *items; /**< all items, the filtered ones only */
    size_t index;    /**< zero-based */
    unsigned depth;
    tpl_value changed; /**< the last tuple given to loop.changed() */
};

struct tpl_joiner {
    tpl_value separator;
    bool used;
};

/** Arguments of a call, as written: positional ones, then named ones. */
typedef struct tpl_args {
    const tpl_value *values;
    size_t count;
    const tpl_string *const *names;
    const tpl_value *named;
    size_t named_count;
} tpl_args;

/** A filter, test, method or global function. `params` names the parameters in order, separated by blanks; those after a "/"
 *  may be left out (TPL_ABSENT). Rows with params NULL take the arguments as they come. */
struct tpl_native {
    const char *name;
    const char *params;
    tpl_value (*call)(tpl_run *run, tpl_value self, const tpl_value *arg);
    tpl_value (*call_raw)(tpl_run *run, tpl_value self, const tpl_args *args);
};

#define TPL_MAX_PARAMS 8

/** An arena: blocks in a list, freed together. */
typedef struct tpl_arena {
    struct tpl_block *blocks;
    size_t left; /**< bytes that may still be handed out */
} tpl_arena;

/** Text being built in an arena. */
typedef struct tpl_builder {
    char *data;
    size_t bytes, capacity;
} tpl_builder;

/** One rendering. */
struct tpl_run {
    const char *name;  /**< of the template */
    unsigned line;     /**< of what is being evaluated */
    es_status status;  /**< the first failure */
    uint64_t steps;    /**< left */
    size_t output;     /**< bytes of text that may still be built */
    unsigned depth;    /**< levels left */
    tpl_arena arena;
    tpl_builder *out;  /**< where statements write */
    tpl_scope *scope;
    const json_t *variables;
    int64_t now;
    int flow;          /**< a break or continue on its way to its loop */
};

/* template_arena.c */
void *tpl_arena_take(tpl_arena *arena, size_t bytes);
void tpl_arena_free(tpl_arena *arena);
/** Memory of this rendering, zeroed; NULL after noting a failure. */
void *tpl_take(tpl_run *run, size_t count, size_t size);
void tpl_fail(tpl_run *run, es_status status, const char *format, ...) __attribute__((format(printf, 3, 4), cold));
/** Account for `cost` steps; false when the run has failed or has none left. */
bool tpl_step(tpl_run *run, uint64_t cost);
/** Go one level deeper; false when too deep. Each success is paired with tpl_leave(). */
bool tpl_enter(tpl_run *run);
void tpl_leave(tpl_run *run);
void tpl_put(tpl_run *run, tpl_builder *out, const char *data, size_t bytes);
void tpl_puts(tpl_run *run, tpl_builder *out, const char *text);
void tpl_put_point(tpl_run *run, tpl_builder *out, uint32_t point);
void tpl_put_string(tpl_run *run, tpl_builder *out, const tpl_string *string);
/** The finished string; the builder must not be used again. */
tpl_value tpl_built(tpl_run *run, tpl_builder *out);

/* template_unicode.c */
size_t tpl_decode(const char *text, const char *end, uint32_t *point);
size_t tpl_points(const char *text, size_t bytes);
bool tpl_utf8_valid(const char *text, size_t bytes);
bool tpl_is_space(uint32_t point);
bool tpl_is_line_break(uint32_t point);
bool tpl_is_digit(uint32_t point);
bool tpl_is_decimal(uint32_t point);
bool tpl_is_alpha(uint32_t point);
bool tpl_is_word(uint32_t point);
bool tpl_is_upper(uint32_t point);
bool tpl_is_lower(uint32_t point);
bool tpl_is_printable(uint32_t point);
void tpl_put_upper(tpl_run *run, tpl_builder *out, uint32_t point);
void tpl_put_title(tpl_run *run, tpl_builder *out, uint32_t point);
void tpl_put_lower(tpl_run *run, tpl_builder *out, uint32_t point);
/** Bytes before code point `index` (at most all of them). */
size_t tpl_offset(const tpl_string *string, size_t index);

/* template_value.c */
static inline tpl_value tpl_undefined(const tpl_string *name)
{
    return (tpl_value){.kind = TPL_UNDEFINED, .string = name};
}
static inline tpl_value tpl_none(void)
{
    return (tpl_value){.kind = TPL_NONE};
}
static inline tpl_value tpl_bool(bool b)
{
    return (tpl_value){.kind = TPL_BOOL, .boolean = b};
}
static inline tpl_value tpl_int(int64_t i)
{
    return (tpl_value){.kind = TPL_INT, .integer = i};
}
static inline tpl_value tpl_float(double d)
{
    return (tpl_value){.kind = TPL_FLOAT, .real = d};
}
/** A string that refers to `data`, which must outlive the run. */
tpl_value tpl_text(tpl_run *run, const char *data, size_t bytes);
/** A string that refers to `data` whose code points are known. */
tpl_value tpl_part(tpl_run *run, const char *data, size_t bytes, size_t points);
tpl_value tpl_literal(tpl_run *run, const char *text);
tpl_value tpl_list_new(tpl_run *run, tpl_kind kind, size_t capacity);
void tpl_list_add(tpl_run *run, tpl_list *list, tpl_value item);
tpl_value tpl_stream_new(tpl_run *run, size_t capacity);
tpl_value tpl_dict_new(tpl_run *run, size_t capacity);
/** Add or replace; fails for a key that Python could not hash. */
void tpl_dict_set(tpl_run *run, tpl_dict *dict, tpl_value key, tpl_value value);
const tpl_value *tpl_dict_get(tpl_run *run, const tpl_dict *dict, tpl_value key);
const tpl_value *tpl_dict_text(tpl_run *run, const tpl_dict *dict, const char *key, size_t bytes);
tpl_value tpl_from_json(tpl_run *run, const json_t *json);
bool tpl_truth(tpl_value value);
bool tpl_is_number(tpl_value value); /**< int, float or bool */
bool tpl_is_integer(tpl_value value); /**< int or bool */
int64_t tpl_as_integer(tpl_value value);
double tpl_as_real(tpl_value value);
bool tpl_equal(tpl_run *run, tpl_value a, tpl_value b);
/** <0, 0, >0; fails for values that Python cannot order (`op` stands in the message). */
int tpl_order(tpl_run *run, tpl_value a, tpl_value b, const char *op);
/** Whether `text` is the string's content. */
bool tpl_is(const tpl_string *string, const char *text);
bool tpl_same_text(const tpl_string *a, const tpl_string *b);
/** len(); -1 for what has none. */
int64_t tpl_length(tpl_value value);
/** Everything that iterating over `value` gives; a stream is used up. Fails for what cannot be iterated. */
tpl_list *tpl_iterate(tpl_run *run, tpl_value value);
bool tpl_iterable(tpl_value value);
const char *tpl_type_name(tpl_value value);
/** For "%.*s" in a message: how many of its bytes fit, at most `most`, cut between characters. */
int tpl_shown(const tpl_string *string, size_t most);
/** Note that an operation met an undefined value; returns true if so. */
bool tpl_refuse_undefined(tpl_run *run, tpl_value value);

/* template_markup.c */
bool tpl_is_markup(tpl_value value);
/** The same text as markup; lists and tuples of strings are marked item by item, other values stay as they are. */
tpl_value tpl_mark(tpl_run *run, tpl_value value);
void tpl_put_escaped(tpl_run *run, tpl_builder *out, const tpl_string *string);
/** str(value) as markup: escaped, unless it is markup already. */
tpl_value tpl_escape(tpl_run *run, tpl_value value);
/** What a filter made of markup: markup too, for those filters that keep it. */
tpl_value tpl_keep_markup(tpl_run *run, const char *filter, tpl_value result);

/* template_print.c */
void tpl_put_str(tpl_run *run, tpl_builder *out, tpl_value value);
void tpl_put_repr(tpl_run *run, tpl_builder *out, tpl_value value);
/** str(value); a string is returned as it is. */
const tpl_string *tpl_str(tpl_run *run, tpl_value value);
void tpl_put_float(tpl_run *run, tpl_builder *out, double value);
void tpl_put_integer(tpl_run *run, tpl_builder *out, int64_t value);

typedef struct tpl_json_style {
    bool ascii, sort;
    const tpl_string *indent; /**< NULL: one line */
    const tpl_string *item, *key; /**< separators */
} tpl_json_style;
void tpl_put_json(tpl_run *run, tpl_builder *out, tpl_value value, const tpl_json_style *style, unsigned level);

/* template_operators.c */
tpl_value tpl_arithmetic(tpl_run *run, int op, tpl_value a, tpl_value b);
tpl_value tpl_negate(tpl_run *run, tpl_value a, bool minus);
bool tpl_contains(tpl_run *run, tpl_value container, tpl_value item);
tpl_value tpl_percent(tpl_run *run, const tpl_string *format, tpl_value args);

/* template_access.c */
tpl_value tpl_attribute(tpl_run *run, tpl_value object, const tpl_string *name);
tpl_value tpl_item(tpl_run *run, tpl_value object, tpl_value key);
/** object[start:stop:step]; absent bounds are TPL_NONE. */
tpl_value tpl_slice(tpl_run *run, tpl_value object, const tpl_value bounds[3]);
/** Follow "a.b.0" or an integer, as filters' attribute= does. */
tpl_value tpl_path(tpl_run *run, tpl_value object, tpl_value path);
/** The same, with `otherwise` in the place of each step that leads nowhere (TPL_ABSENT or TPL_NONE: nothing is). */
tpl_value tpl_path_or(tpl_run *run, tpl_value object, tpl_value path, tpl_value otherwise);

/* template_call.c */
tpl_value tpl_call_native(tpl_run *run, const tpl_native *native, tpl_value self, const tpl_args *args);
tpl_value tpl_call_value(tpl_run *run, tpl_value callee, const tpl_args *args);
const tpl_native *tpl_native_find(const tpl_native *table, const char *name, size_t bytes);
/** Arguments as they should be; fail and return a stand-in otherwise. */
const tpl_string *tpl_arg_string(tpl_run *run, tpl_value value, const char *what);
int64_t tpl_arg_integer(tpl_run *run, tpl_value value, int64_t absent, const char *what);

/* Tables, ended by a row without name. */
extern const tpl_native tpl_string_methods[];
extern const tpl_native tpl_dict_methods[];
extern const tpl_native tpl_list_methods[];
extern const tpl_native tpl_loop_methods[];
extern const tpl_native tpl_cycler_methods[];
extern const tpl_native tpl_filters_text[];
extern const tpl_native tpl_filters_list[];
extern const tpl_native tpl_filters_value[];
extern const tpl_native tpl_tests[];
extern const tpl_native tpl_globals[];
const tpl_native *tpl_filter_find(const char *name, size_t bytes);

/* template_exec.c */
tpl_value tpl_macro_call(tpl_run *run, const tpl_macro *macro, const tpl_args *args);

#endif

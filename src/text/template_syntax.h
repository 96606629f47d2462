/* template_syntax.h: tokens and the syntax tree of a chat template. */
#ifndef ES_TEXT_TEMPLATE_SYNTAX_H
#define ES_TEXT_TEMPLATE_SYNTAX_H

#include "text/template_value.h"

typedef enum tpl_token_kind {
    TOKEN_END,       /**< of the template */
    TOKEN_TEXT,      /**< `value`: text between tags */
    TOKEN_BLOCK,     /**< {% */
    TOKEN_BLOCK_END, /**< %} */
    TOKEN_PRINT,     /**< {{ */
    TOKEN_PRINT_END, /**< }} */
    TOKEN_NAME,      /**< `value`: its text */
    TOKEN_STRING,    /**< `value`: escapes undone */
    TOKEN_NUMBER,    /**< `value`: int or float */
    TOKEN_OPERATOR,  /**< `op` */
} tpl_token_kind;

/** Operators of one character are that character. */
enum {
    OP_POWER = 256, OP_FLOOR, OP_EQUAL, OP_UNEQUAL, OP_LESS_EQUAL, OP_GREATER_EQUAL,
    OP_IN, OP_NOT_IN, /* not from the lexer */
};

typedef struct tpl_token {
    tpl_token_kind kind;
    int op;
    unsigned line;
    tpl_value value;
} tpl_token;

typedef struct tpl_tokens {
    tpl_token *items;
    size_t count, capacity;
} tpl_tokens;

/** Cut a template into tokens; the last is TOKEN_END. `source` has its newlines normalised. Fails through the run. */
void tpl_lex(tpl_run *run, const char *source, size_t bytes, tpl_tokens *out);

typedef enum tpl_node_kind {
    /* expressions */
    NODE_CONST,    /* value */
    NODE_NAME,     /* value: the name */
    NODE_LIST,     /* first: the items */
    NODE_TUPLE,    /* first: the items */
    NODE_DICT,     /* first: key, value, key, value, ... */
    NODE_NEGATE,   /* op a */
    NODE_NOT,      /* not a */
    NODE_BINARY,   /* a op b */
    NODE_AND,      /* a and b */
    NODE_OR,       /* a or b */
    NODE_COMPARE,  /* a, first: the NODE_OPERANDs */
    NODE_OPERAND,  /* op a */
    NODE_CONCAT,   /* first: the parts of a ~ b ~ c */
    NODE_COND,     /* a if b else c (c may be NULL) */
    NODE_ATTR,     /* a.value */
    NODE_ITEM,     /* a[b] */
    NODE_SLICE,    /* a:b:c as a subscript, each may be NULL */
    NODE_CALL,     /* a(first: the arguments) */
    NODE_FILTER,   /* a | native(first), called value; a NULL: the text of a block */
    NODE_TEST,     /* a is native(first), called value */
    NODE_ARG,      /* op: 0 positional, '=' named (value), '*' or OP_POWER spread; a */
    /* statements */
    NODE_TEXT,     /* value */
    NODE_PRINT,    /* a */
    NODE_IF,       /* a, body, otherwise (an elif is a NODE_IF with op 1 there) */
    NODE_FOR,      /* a: target, b: iterable, c: condition or NULL; body, otherwise */
    NODE_SET,      /* a: target, b */
    NODE_SET_BLOCK,/* a: target, b: filters or NULL; body */
    NODE_NSREF,    /* value.b->value as the target of a set */
    NODE_MACRO,    /* value: name, first: NODE_PARAMs, body; op: MACRO_ flags */
    NODE_PARAM,    /* value: name, a: default or NULL */
    NODE_CALL_BLOCK, /* a: the call, b: a NODE_MACRO for the body */
    NODE_FILTER_BLOCK, /* a: the filters, body */
    NODE_WITH,     /* first: NODE_SETs, body */
    NODE_BREAK,
    NODE_CONTINUE,
} tpl_node_kind;

enum { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

struct tpl_node {
    tpl_node_kind kind;
    int op;
    unsigned line;
    tpl_value value;
    tpl_node *a, *b, *c;
    tpl_node *first; /**< list of children, linked through `next` */
    tpl_node *body, *otherwise;
    const tpl_native *native;
    tpl_node *next;
    /** Statements with a scope of their own: names that are unset there until they are set, whatever is outside. */
    const tpl_string **hidden;
    size_t hidden_count;
};

/** A parser at work. The run lends its arena and its error. */
typedef struct tpl_parser {
    tpl_run *run;
    tpl_tokens tokens;
    size_t at;
    tpl_node *macro; /**< innermost macro being read, for its flags */
    unsigned ifs;    /**< ifs around this place: an unknown filter or test there is refused only when it is reached */
    unsigned loops;  /**< loops around this place, within the macro */
    tpl_node spare;  /**< what is written to when even a node can not be had */
} tpl_parser;

/* template_parser.c: expressions */
tpl_node *tpl_parse_expression(tpl_parser *parser);
/** An expression, or a tuple without parentheses. */
tpl_node *tpl_parse_tuple(tpl_parser *parser, bool conditional);
tpl_node *tpl_parse_arguments(tpl_parser *parser);
tpl_node *tpl_parse_postfix(tpl_parser *parser, tpl_node *node);
tpl_node *tpl_parse_primary(tpl_parser *parser);
/** name(args) | name(args) ... applied to `node`; `first` says that the leading "|" is left out. */
tpl_node *tpl_parse_filters(tpl_parser *parser, tpl_node *node, bool first);
const tpl_token *tpl_peek(const tpl_parser *parser);
bool tpl_peek_op(const tpl_parser *parser, int op);
bool tpl_peek_name(const tpl_parser *parser, const char *name);
bool tpl_take_op(tpl_parser *parser, int op);
bool tpl_take_name(tpl_parser *parser, const char *name);
void tpl_expect_op(tpl_parser *parser, int op);
void tpl_expect(tpl_parser *parser, tpl_token_kind kind, const char *what);
const tpl_string *tpl_expect_name(tpl_parser *parser);
tpl_node *tpl_node_new(tpl_parser *parser, tpl_node_kind kind);
void tpl_unexpected(tpl_parser *parser, const char *wanted);

/* template_statements.c */
tpl_node *tpl_parse_template(tpl_parser *parser);

/* template_symbols.c: finds each scope's hidden names, as jinja2's compiler resolves names */
void tpl_resolve_scopes(tpl_run *run, tpl_node *root);

/* template_eval.c, template_exec.c */
tpl_value tpl_eval(tpl_run *run, const tpl_node *node);
void tpl_exec(tpl_run *run, const tpl_node *body);
tpl_value tpl_lookup(tpl_run *run, const tpl_string *name);
/** A NODE_CALL, with a `caller` argument unless that is NULL. */
tpl_value tpl_eval_call(tpl_run *run, const tpl_node *node, const tpl_value *caller);
/** A chain of NODE_FILTERs whose innermost subject is `text`. */
tpl_value tpl_eval_filters(tpl_run *run, const tpl_node *node, tpl_value text);

/** Variables of one scope; names point into the template or the variables. */
typedef struct tpl_binding {
    const tpl_string *name;
    tpl_value value; /**< TPL_ABSENT: hidden until set */
} tpl_binding;

struct tpl_scope {
    tpl_scope *parent;
    tpl_binding *bindings;
    size_t count, capacity;
};

tpl_scope *tpl_scope_new(tpl_run *run, tpl_scope *parent);
void tpl_scope_set(tpl_run *run, tpl_scope *scope, const tpl_string *name, tpl_value value);

#endif

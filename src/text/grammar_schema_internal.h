/* grammar_schema_internal.h: one conversion of a JSON schema into rules, shared by grammar_schema_*.c. */
#ifndef ES_TEXT_GRAMMAR_SCHEMA_INTERNAL_H
#define ES_TEXT_GRAMMAR_SCHEMA_INTERNAL_H

#include "text/grammar_schema.h"

enum {
    ES_SCHEMA_DEPTH_MAX = 64, /* schemas in schemas */
    ES_SCHEMA_RULES_MAX = 8192,
    ES_SCHEMA_STEPS_MAX = 100000,    /* schemas looked at, one perhaps several times */
    ES_SCHEMA_ALTERNATIVES_MAX = 64, /* of one schema, multiplied out */
    ES_SCHEMA_PROPERTIES_MAX = 512,  /* of one object */
    ES_SCHEMA_BYTES_MAX = 1 << 20,   /* of rules */
};

/* Types, as bits. */
enum {
    ES_TYPE_NULL = 1,
    ES_TYPE_BOOLEAN = 2,
    ES_TYPE_INTEGER = 4,
    ES_TYPE_NUMBER = 8,
    ES_TYPE_STRING = 16,
    ES_TYPE_ARRAY = 32,
    ES_TYPE_OBJECT = 64,
    ES_TYPE_ANY = 127,
};

typedef struct es_schema_run {
    es_text *out;
    const char *name; /* rules are NAME, NAME-1, NAME-2, ... */
    const json_t *root;
    es_text path;  /* where we are, for messages */
    json_t *rules; /* address of a schema in hexadecimal → number of its rule */
    json_t *kept;  /* merged schemas: their addresses stay theirs */
    json_t *unlisted; /* the lists that es_schema_unlisted may name: others come from outside */
    int rule_count, steps, depth;
} es_schema_run;

/* Steps into a part of the schema and out again: `mark` is what path.bytes was. */
void es_schema_enter(es_schema_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void es_schema_leave(es_schema_run *run, size_t mark);
/* Counts one schema; ES_INVALID when there are too many of them, or they are nested too deeply. */
es_status es_schema_step(es_schema_run *run);
es_status es_schema_refuse(const es_schema_run *run, const char *keyword, const char *why);
es_status es_schema_invalid(const es_schema_run *run, const char *keyword, const char *why);

/* Appends the name of the rule for `schema`, made when it is met first. */
es_status es_schema_put(es_schema_run *run, const json_t *schema, es_text *body);
/* Begins a rule that has no schema of its own, "NAME-number". */
es_status es_schema_new_rule(es_schema_run *run, int *number);
void es_schema_put_name(const es_schema_run *run, int number, es_text *body);
void es_schema_add_rule(es_schema_run *run, int number, const es_text *body);
/* Keeps a schema that was made here until the end; NULL stays NULL. */
json_t *es_schema_keep(es_schema_run *run, json_t *schema);
/* What "$ref" names. */
es_status es_schema_resolve(es_schema_run *run, const json_t *schema, const json_t **target);

/* Checks every keyword of a schema that is an object. */
es_status es_schema_check_keywords(es_schema_run *run, const json_t *schema);
bool es_schema_is_annotation(const char *keyword);
/* The types that "type" (or the keywords, where there is none) leaves. */
es_status es_schema_types(es_schema_run *run, const json_t *schema, unsigned *types);

/* grammar_schema_merge.c. A *plain* schema has no $ref, allOf, anyOf, oneOf. */

/* The schema as a choice between plain ones, borrowed (they are kept by the run), appended to `list` (a JSON array). */
es_status es_schema_flatten(es_schema_run *run, const json_t *schema, json_t *list);
/* Alternatives of which a text follows one only, for a oneOf: its own where no two can hold at once, else without what the others
 * allow. Refused where nothing would be left of one. Borrowed. */
es_status es_schema_one_of(es_schema_run *run, json_t *one_of, json_t **alternatives);

/* grammar_schema_not.c */

/* A plain schema's values are none of this list's: where "not" rules values out. A schema that comes in with it is refused. */
#define es_schema_unlisted "\x01unlisted"
/* Append schemas each of which no value follows that follows `schema`; perhaps none, and perhaps not all there are. */
es_status es_schema_complement(es_schema_run *run, const json_t *schema, json_t *list);
/* Append what not, if, dependencies and contains say: a list of alternatives for each of them, of which one must hold. */
es_status es_schema_choices(es_schema_run *run, const json_t *schema, json_t *choices);
/* The part of a schema whose values follow none of `others`, or of it what can be told; *left: there is some. */
es_status es_schema_exclude(es_schema_run *run, const json_t *schema, const json_t *others, json_t **narrowed, bool *left);

/* grammar_schema_check.c */

/* One of ES_TYPE_*; a number that is whole is an integer. */
unsigned es_schema_type_of(const json_t *value);
typedef enum es_schema_holds { ES_HOLDS_NO, ES_HOLDS_YES, ES_HOLDS_UNKNOWN } es_schema_holds;
/* Does a value follow a schema? UNKNOWN where that needs a pattern or the like. */
es_schema_holds es_schema_value_holds(es_schema_run *run, const json_t *value, const json_t *schema);

/* What a plain schema allows, as the right side of a rule; one file each. */
es_status es_schema_plain(es_schema_run *run, const json_t *schema, es_text *body);
es_status es_schema_string(es_schema_run *run, const json_t *schema, es_text *body);
es_status es_schema_number(es_schema_run *run, const json_t *schema, bool integer, es_text *body);
es_status es_schema_array(es_schema_run *run, const json_t *schema, es_text *body);
/* grammar_schema_object.c: items out of `values`, each at most once. */
es_status es_schema_unique_array(es_schema_run *run, const json_t *values, int64_t min, int64_t max, es_text *body);
es_status es_schema_object(es_schema_run *run, const json_t *schema, es_text *body);
/* grammar_schema_object.c: a string without escapes that is none of `values`. */
es_status es_schema_other_string(es_schema_run *run, const json_t *values, es_text *body);

/* A keyword that is a whole number of at least 0. *value stays when it is absent. */
es_status es_schema_count(es_schema_run *run, const json_t *schema, const char *keyword, int64_t *value);

/* grammar_pattern.c: a pattern as the right side of a rule. `json`: its characters as they stand in a JSON string; then the
 * pattern may match anywhere in the string, as JSON schemas mean it, and otherwise from end to end. */
es_status es_pattern_put(es_text *body, const char *where, const char *pattern, size_t bytes, bool json);
/* The same in a JSON string of `least` to `most` characters. *fits false: that cannot be promised, and nothing was put. */
es_status es_pattern_put_within(es_text *body, const char *where, const char *pattern, size_t bytes, int64_t least,
                                int64_t most, bool *fits);

/* JSON text of a value as a quoted literal. */
es_status es_schema_put_value(const json_t *value, es_text *body);

#endif

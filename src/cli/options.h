/* options.h: a command's options as one table, from which it is parsed, explained and documented.
 *
 *   typedef struct settings {
 *       es_model_settings model;
 *       const char *prompt;
 *       int64_t count;
 *   } settings;
 *
 *   static const es_option own[] = {
 *       {"prompt", 'p', ES_OPTION_TEXT, "TEXT", offsetof(settings, prompt), .help = "what to answer"},
 *       {"count", 'n', ES_OPTION_INT, "N", offsetof(settings, count), .fallback = "1", .min = 1, .max = 100,
 *        .help = "how many answers"},
 *       {0}};
 *   static const es_option_group groups[] = {
 *       {NULL, own, 0}, {"Model", es_model_options, offsetof(settings, model)}, {0}};
 *   const es_command es_command_ask = {"ask", "answer a question", NULL, groups, ask};
 *
 *   static int ask(int argc, char **argv)
 *   {
 *       settings s;
 *       const int done = es_options_parse(&es_command_ask, argc, argv, &s);
 *       if (done != ES_GO_ON) return done;
 *       ...
 *
 * --name=value, --name value, -n value and -nvalue are understood; "--" ends the options. Unknown, repeated and incomplete
 * options are refused with a sentence and exit code 2; --help, --man, --version and --config work everywhere without being
 * in any table.
 *
 * An option's value is what is typed, else $EVENSHARE_NAME (--step-budget: EVENSHARE_STEP_BUDGET) or the row's own variable,
 * else what the file of --config or $EVENSHARE_CONFIG says (config.h), else the default. */
#ifndef ES_CLI_OPTIONS_H
#define ES_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

typedef enum es_option_kind {
    ES_OPTION_FLAG,   /**< bool: true when given */
    ES_OPTION_INT,    /**< int64_t; ES_UNSET when absent */
    ES_OPTION_SIZE,   /**< int64_t, with K, M, G or T for powers of 1,024; ES_UNSET when absent */
    ES_OPTION_FLOAT,  /**< double, finite; NaN when absent */
    ES_OPTION_TEXT,   /**< const char *, the argument itself; NULL when absent */
    ES_OPTION_CHOICE, /**< const char *, one of the words of `value` ("auto|f32"); NULL when absent */
    ES_OPTION_LIST,   /**< es_option_list; may be given several times */
} es_option_kind;

#define ES_UNSET INT64_MIN
/** A bound that is none. */
#define ES_ANY 9e15

enum { ES_OPTION_LIST_MAX = 64 };
typedef struct es_option_list {
    const char *items[ES_OPTION_LIST_MAX];
    size_t count;
} es_option_list;

/** A row: one option. */
typedef struct es_option {
    const char *name;        /**< long name without dashes; NULL ends the table */
    char letter;             /**< short name, or 0 */
    es_option_kind kind;
    const char *value;       /**< what the value is called ("N", "FILE"), or a choice's words; NULL for flags */
    size_t offset;           /**< of the field, in the struct that the table fills */
    const char *fallback;    /**< the default as one would type it; NULL = absent */
    const char *environment; /**< a variable of others that stands in, after EVENSHARE_NAME */
    double min, max;         /**< bounds of a number, when min < max */
    bool positional;         /**< a bare argument fills it too */
    bool typed;              /**< what the command works on: never from the environment or a file */
    const char *help;        /**< one sentence, lower case, no full stop */
} es_option;

/** A table in a command: several commands share some, each with its struct inside their own. */
typedef struct es_option_group {
    const char *title;        /**< heading in --help; NULL = "Options" */
    const es_option *options; /**< ends with a row without a name; NULL ends the groups */
    size_t base;              /**< where the struct that it fills lies in the command's */
} es_option_group;

typedef struct es_command {
    const char *name;
    const char *summary; /**< one line, lower case, no full stop */
    const char *about;   /**< paragraphs for --help and the man page, parted by empty lines; may be NULL */
    const es_option_group *groups;
    int (*run)(int argc, char **argv); /**< argv[0] is the command's name; returns the exit code */
} es_command;

/** What es_options_parse() returns when the command should do its work. */
#define ES_GO_ON (-1)

/** Parse argv[1..] into `settings`. ES_GO_ON, or the exit code to end with: help was printed, or an error was. */
int es_options_parse(const es_command *command, int argc, char **argv, void *settings);

/** The commands there are, so that a line in a configuration's common part can be told from a slip. May be left unset. */
void es_options_set_commands(const es_command *const *commands, size_t count);

/** The variable that stands in for an option: "EVENSHARE_STEP_BUDGET". */
void es_option_variable(const es_option *option, char *name, size_t room);

/** Say "evenshare NAME: sentence" on standard error; returns 2, the exit code for what the user can mend. */
int es_command_refuse(const es_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** The text of --help and of the man page (troff, section 1). */
void es_options_help(const es_command *command, es_text *out);
void es_options_man(const es_command *command, es_text *out);

/** The nearest of `count` words to what was typed, or NULL when none is near enough to be meant. */
const char *es_nearest_word(const char *typed, const char *const *words, size_t count);

/** "12K", "4G", "512": false when it is no size, negative or too large. Shared with readers of environment variables. */
bool es_parse_size(const char *text, int64_t *value);

#endif

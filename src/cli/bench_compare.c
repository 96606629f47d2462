/* bench_compare.c: `bench compare A.json B.json`: which rows became faster or slower, and whether more than they vary anyway.
 *
 * Rows are the same when everything that names them is: what was done, in which mode, at which depth, with which shape. Any
 * JSON of `bench` will do. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/settings.h"

typedef struct settings {
    const char *before, *after;
    double tolerance;
    bool fail, json;
} settings;

static const es_option rows[] = {
    {"before",                      0, ES_OPTION_TEXT, "A.json", offsetof(settings, before), .positional = true, .typed = true,
     .help = "the earlier results"},
    {"after",               0, ES_OPTION_TEXT, "B.json", offsetof(settings, after), .positional = true, .typed = true,
     .help = "the later ones"},
    {"tolerance",            0, ES_OPTION_FLOAT, "PERCENT", offsetof(settings, tolerance), .fallback = "3", .min = 0, .max = 100,
     .help = "smaller changes are none"},
    {"fail",           0, ES_OPTION_FLAG, NULL, offsetof(settings, fail), .help = "end with exit code 1 when a row became slower"},
    {"json", 0, ES_OPTION_FLAG, NULL, offsetof(settings, json), .help = "one JSON object instead of a table"},
    {0                      }
};
static const es_option_group groups[] = {
    {NULL, rows, 0},
    {0  }
};

/* A time and how it varied; 0 = not told. */
typedef struct timing {
    double seconds, least, most;
} timing;

static double number_of(const json_t *row, const char *key)
{
    const double value = json_number_value(json_object_get(row, key));
    return isfinite(value) && value > 0 ? value : 0;
}

/* Rows of several commands name the same things differently. */
static timing timing_of(const json_t *row)
{
    timing t = {number_of(row, "seconds"), number_of(row, "least_seconds"), number_of(row, "most_seconds")};
    const double tokens = number_of(row, "tokens"), slowest = number_of(row, "min"), fastest = number_of(row, "max");
    if (!t.least) t.least = number_of(row, "best_seconds");
    if (!t.least && tokens && fastest) t.least = tokens / fastest;
    if (!t.most && tokens && slowest) t.most = tokens / slowest;
    if (!t.least) t.least = t.seconds;
    if (!t.most) t.most = t.seconds;
    return t;
}

static const char *const names[] = {"bench",           "operation", "model", "heads", "type",      "shape",  "numeric", "kv_type",
                                    "instruction_set", "attention", "depth", "batch", "sequences", "tokens", "workers"};
enum { NAMES = sizeof names / sizeof *names };

static bool same_row(const json_t *a, const json_t *b)
{
    for (int i = 0; i < NAMES; i++) {
        const json_t *x = json_object_get(a, names[i]), *y = json_object_get(b, names[i]);
        if ((x || y) && !(x && y && json_equal(x, y))) return false;
    }
    return true;
}

/* "decode qwen3 int8 depth 4096" */
static void put_name(const json_t *row, char *out, size_t room)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < NAMES && n + 1 < room; i++) {
        const json_t *value = json_object_get(row, names[i]);
        int wrote = 0;
        if (json_is_string(value) && json_string_length(value))
            wrote = snprintf(out + n, room - n, "%s%s", n ? " " : "", json_string_value(value));
        else if (json_is_integer(value))
            wrote = snprintf(out + n, room - n, " %s %" JSON_INTEGER_FORMAT, names[i], json_integer_value(value));
        if (wrote > 0) n += (size_t)wrote;
    }
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
}

/* How many times faster; and in a word, where the runs of both do not overlap and it is more than the tolerance. */
static const char *judge(timing a, timing b, double tolerance, double *ratio)
{
    *ratio = a.seconds / b.seconds;
    const bool apart = a.least > b.most || b.least > a.most || (a.least == a.most && b.least == b.most);
    if (!apart || fabs(*ratio - 1) * 100 <= tolerance) return "same";
    return *ratio > 1 ? "faster" : "slower";
}

typedef struct outcome {
    int compared, faster, slower, alone;
    json_t *list; /* NULL: a table */
} outcome;

static void compare_row(const json_t *row, const json_t *others, double tolerance, outcome *o)
{
    size_t i;
    json_t *other;
    char name[200];
    put_name(row, name, sizeof name);
    json_array_foreach(others, i, other)
    {
        const timing a = timing_of(row), b = timing_of(other);
        if (!same_row(row, other) || !a.seconds || !b.seconds) continue;
        double ratio;
        const char *word = judge(a, b, tolerance, &ratio);
        o->compared++;
        o->faster += *word == 'f';
        o->slower += word[1] == 'l';
        if (o->list)
            json_array_append_new(o->list, json_pack("{s:s,s:f,s:f,s:f,s:s}", "name", name, "before_seconds", a.seconds,
                                                     "after_seconds", b.seconds, "speed", ratio, "verdict", word));
        else
            printf("%-60s %11.3f %11.3f %8.3f  %s\n", name, a.seconds * 1e3, b.seconds * 1e3, ratio, word);
        return;
    }
    o->alone++;
}

static es_status read_rows(const char *path, json_t **root)
{
    enum { MOST = 64 << 20 };
    char *text;
    size_t bytes;
    json_error_t error;
    ES_TRY(es_file_read(path, MOST, &text, &bytes));
    *root = json_loadb(text, bytes, 0, &error);
    free(text);
    if (json_is_array(json_object_get(*root, "rows"))) return ES_OK;
    return es_fail(ES_BAD_FILE, "%s holds no rows of evenshare bench (--json writes them)", path);
}

static const char *cpu_of(const json_t *root)
{
    const char *cpu = json_string_value(json_object_get(json_object_get(root, "machine"), "cpu"));
    return cpu ? cpu : "an unknown machine";
}

static void compare_all(const settings *s, const json_t *before, const json_t *after, outcome *o)
{
    size_t i;
    json_t *row;
    if (!s->json) printf("%-60s %11s %11s %8s\n", "", "before ms", "after ms", "speed");
    json_array_foreach(json_object_get(before, "rows"), i, row)
        compare_row(row, json_object_get(after, "rows"), s->tolerance, o);
    if (s->json) {
        json_t *all = json_pack("{s:i,s:i,s:i,s:i,s:O}", "compared", o->compared, "faster", o->faster, "slower", o->slower,
                                "only_before", o->alone, "rows", o->list);
        es_bench_print(all);
    } else
        printf("\n%d compared: %d faster, %d slower, the others within %g %% or within what they vary; %d only in the first "
               "file\n",
               o->compared, o->faster, o->slower, s->tolerance, o->alone);
    if (strcmp(cpu_of(before), cpu_of(after)) != 0)
        fprintf(stderr, "evenshare bench compare: these are two machines: %s, and %s\n", cpu_of(before), cpu_of(after));
}

static int compare(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_bench_compare, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (!s.before || !s.after)
        return es_command_refuse(&es_command_bench_compare, "name two files: bench compare A.json B.json");
    json_t *before = NULL, *after = NULL;
    outcome o = {.list = s.json ? json_array() : NULL};
    es_status status = read_rows(s.before, &before);
    if (status == ES_OK) status = read_rows(s.after, &after);
    if (status == ES_OK) compare_all(&s, before, after, &o);
    if (status == ES_OK && !o.compared) status = es_fail(ES_INVALID, "the two files have no row in common");
    json_decref(before);
    json_decref(after);
    json_decref(o.list);
    if (status != ES_OK) return es_command_fail(&es_command_bench_compare, status);
    return s.fail && o.slower ? 1 : 0;
}

const es_command es_command_bench_compare = {
    "bench compare", "compare two results of bench",
    "Says of each row that both files have how many times faster the second is. Faster and slower are said only where the "
    "slowest run "
    "of one is faster than the fastest of the other, and the difference is more than the tolerance.",
    groups, compare};

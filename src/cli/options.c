/* options.c: parsing command lines against the tables of options.h.
 *
 * Everything an option is stands in its row: this file knows no option by name but --help, --man and --version. A value is
 * checked completely (range, trailing characters) before it is stored, so that a command never sees half of a number. */
#include "cli/options.h"

#include "base/file.h"
#include "cli/config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GIVEN_MAX = 128, WORDS_MAX = 160 };

/* The state of one parse. An option's number counts rows through all groups. */
typedef struct parse {
    const es_command *command;
    char *settings;
    bool given[GIVEN_MAX];
    es_config config; /* borrowed */
    const char *config_path;
} parse;

typedef struct found {
    const es_option *option; /* NULL: none */
    size_t base;
    size_t number;
} found;

int es_command_refuse(const es_command *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "evenshare %s: ", command->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return 2;
}

/* Calls itself once per row; `match` decides. */
static found find_row(const es_command *command, bool (*match)(const es_option *, const void *), const void *wanted)
{
    size_t number = 0;
    for (const es_option_group *group = command->groups; group && group->options; group++)
        for (const es_option *option = group->options; option->name; option++, number++)
            if (match(option, wanted)) return (found){option, group->base, number};
    return (found){NULL, 0, 0};
}

typedef struct span {
    const char *data;
    size_t bytes;
} span;

static bool has_name(const es_option *option, const void *wanted)
{
    const span *name = wanted;
    return strlen(option->name) == name->bytes && memcmp(option->name, name->data, name->bytes) == 0;
}

static bool has_letter(const es_option *option, const void *wanted)
{
    return option->letter && option->letter == *(const char *)wanted;
}

/* Distance of two words: letters inserted, left out, changed, or neighbours swapped. */
static size_t word_distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    const size_t n = strlen(a), m = strlen(b);
    if (n > MOST || m > MOST) return MOST;
    size_t rows[3][MOST + 1];
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3];
        const size_t *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *es_nearest_word(const char *typed, const char *const *words, size_t count)
{
    const size_t bytes = strlen(typed);
    const char *nearest = NULL;
    size_t least = bytes > 5 ? 3 : 2; /* nearer than this: one or two slips */
    for (size_t i = 0; i < count; i++) {
        size_t distance = word_distance(typed, words[i]);
        if (bytes >= 2 && strncmp(typed, words[i], bytes) == 0) distance = 1; /* a beginning is as good as one slip */
        if (distance >= least) continue;
        least = distance;
        nearest = words[i];
    }
    return nearest;
}

static int refuse_unknown(const parse *p, const char *argument, const char *name)
{
    const char *words[WORDS_MAX];
    size_t count = 0;
    for (const es_option_group *group = p->command->groups; group && group->options; group++)
        for (const es_option *option = group->options; option->name && count < WORDS_MAX - 2; option++)
            words[count++] = option->name;
    words[count++] = "help";
    words[count++] = "config";
    const char *nearest = es_nearest_word(name, words, count);
    if (nearest) return es_command_refuse(p->command, "there is no option %s; did you mean --%s?", argument, nearest);
    return es_command_refuse(p->command, "there is no option %s (see evenshare %s --help)", argument, p->command->name);
}

bool es_parse_size(const char *text, int64_t *value)
{
    if (text[0] < '0' || text[0] > '9') return false;
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno) return false;
    int shift = 0;
    switch (*end) {
    case 'k':
    case 'K': shift = 10; break;
    case 'm':
    case 'M': shift = 20; break;
    case 'g':
    case 'G': shift = 30; break;
    case 't':
    case 'T': shift = 40; break;
    default: break;
    }
    if (shift) end++;
    if (shift && strcmp(end, "iB") == 0) end += 2;
    if (shift && strcmp(end, "B") == 0) end++;
    if (*end || number > INT64_MAX >> shift) return false;
    *value = (int64_t)number << shift;
    return true;
}

static bool parse_int(const char *text, int64_t *value)
{
    if (!(text[0] >= '0' && text[0] <= '9') && !(text[0] == '-' && text[1] >= '0' && text[1] <= '9')) return false;
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno || *end) return false;
    *value = number;
    return true;
}

static bool parse_float(const char *text, double *value)
{
    if (!text[0] || strspn(text, "+-.0123456789eE") != strlen(text)) return false;
    char *end;
    const double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number)) return false;
    *value = number;
    return true;
}

static bool is_choice(const char *words, const char *text)
{
    const size_t bytes = strlen(text);
    while (bytes && *words) {
        const size_t length = strcspn(words, "|");
        if (length == bytes && memcmp(words, text, bytes) == 0) return true;
        words += length + (words[length] == '|');
    }
    return false;
}

static bool out_of_bounds(const es_option *option, double value)
{
    return option->min < option->max && (value < option->min || value > option->max);
}

/* Says which values a number may have. */
static int refuse_bounds(const parse *p, const es_option *option, const char *text)
{
    if (option->max >= ES_ANY)
        return es_command_refuse(p->command, "--%s %s: must be at least %.15g", option->name, text, option->min);
    return es_command_refuse(p->command, "--%s %s: must be from %.15g to %.15g", option->name, text, option->min, option->max);
}

/* Checks `text` and puts it into the option's field; ES_GO_ON or 2. */
static int store(parse *p, found row, const char *text)
{
    const es_option *option = row.option;
    void *field = p->settings + row.base + option->offset;
    switch (option->kind) {
    case ES_OPTION_FLAG: *(bool *)field = true; break;
    case ES_OPTION_INT:
    case ES_OPTION_SIZE: {
        int64_t value;
        if (option->kind == ES_OPTION_INT && !parse_int(text, &value))
            return es_command_refuse(p->command, "--%s: \"%s\" is not a whole number", option->name, text);
        if (option->kind == ES_OPTION_SIZE && !es_parse_size(text, &value))
            return es_command_refuse(p->command, "--%s: \"%s\" is not a size (like 4096, 8K or 4G)", option->name, text);
        if (out_of_bounds(option, (double)value)) return refuse_bounds(p, option, text);
        *(int64_t *)field = value;
        break;
    }
    case ES_OPTION_FLOAT: {
        double value;
        if (!parse_float(text, &value))
            return es_command_refuse(p->command, "--%s: \"%s\" is not a number", option->name, text);
        if (out_of_bounds(option, value)) return refuse_bounds(p, option, text);
        *(double *)field = value;
        break;
    }
    case ES_OPTION_CHOICE:
        if (!is_choice(option->value, text))
            return es_command_refuse(p->command, "--%s: \"%s\" is none of %s", option->name, text, option->value);
        *(const char **)field = text;
        break;
    case ES_OPTION_TEXT: *(const char **)field = text; break;
    case ES_OPTION_LIST: {
        es_option_list *list = field;
        if (list->count == ES_OPTION_LIST_MAX)
            return es_command_refuse(p->command, "--%s: at most %d times", option->name, ES_OPTION_LIST_MAX);
        list->items[list->count++] = text;
        break;
    }
    }
    return ES_GO_ON;
}

/* As if the option had not been given, before anything is stored. */
static void store_absent(char *settings, found row)
{
    void *field = settings + row.base + row.option->offset;
    switch (row.option->kind) {
    case ES_OPTION_FLAG: *(bool *)field = false; break;
    case ES_OPTION_INT:
    case ES_OPTION_SIZE: *(int64_t *)field = ES_UNSET; break;
    case ES_OPTION_FLOAT: *(double *)field = (double)NAN; break;
    case ES_OPTION_TEXT:
    case ES_OPTION_CHOICE: *(const char **)field = NULL; break;
    case ES_OPTION_LIST: *(es_option_list *)field = (es_option_list){.count = 0}; break;
    }
}

static int give(parse *p, found row, const char *text)
{
    if (row.option->kind != ES_OPTION_LIST && p->given[row.number])
        return es_command_refuse(p->command, "--%s is given twice", row.option->name);
    p->given[row.number] = true;
    return store(p, row, text);
}

/* A value that is itself an option's name was forgotten: "--ctx --threads 3". */
static bool is_known_option(const parse *p, const char *text)
{
    if (strncmp(text, "--", 2) != 0) return false;
    const span name = {text + 2, strcspn(text + 2, "=")};
    return find_row(p->command, has_name, &name).option != NULL;
}

/* Takes argv[*i] (an option), and argv[*i + 1] when it holds the value. */
static int take_option(parse *p, int argc, char **argv, int *i)
{
    const char *argument = argv[*i];
    found row;
    const char *value = NULL;
    if (argument[1] == '-') {
        const span name = {argument + 2, strcspn(argument + 2, "=")};
        row = find_row(p->command, has_name, &name);
        if (name.data[name.bytes] == '=') value = name.data + name.bytes + 1;
        if (!row.option) {
            char typed[64];
            snprintf(typed, sizeof typed, "%.*s", (int)(name.bytes < 60 ? name.bytes : 60), name.data);
            return refuse_unknown(p, argument, typed);
        }
    } else {
        row = find_row(p->command, has_letter, argument + 1);
        if (!row.option) return refuse_unknown(p, argument, argument + 1);
        if (argument[2]) value = argument + 2;
    }
    if (row.option->kind == ES_OPTION_FLAG) {
        if (value) return es_command_refuse(p->command, "--%s takes no value", row.option->name);
        return give(p, row, "");
    }
    if (!value) {
        if (*i + 1 >= argc || is_known_option(p, argv[*i + 1]))
            return es_command_refuse(p->command, "--%s needs a value: --%s=%s", row.option->name, row.option->name,
                                     row.option->value);
        value = argv[++*i];
    }
    return give(p, row, value);
}

/* A bare argument fills the first positional option that has not been given. */
static int take_bare(parse *p, const char *argument)
{
    size_t number = 0;
    for (const es_option_group *group = p->command->groups; group && group->options; group++)
        for (const es_option *option = group->options; option->name; option++, number++)
            if (option->positional && !p->given[number]) return give(p, (found){option, group->base, number}, argument);
    return es_command_refuse(p->command, "\"%s\" is one argument too many (see evenshare %s --help)", argument,
                             p->command->name);
}

void es_option_variable(const es_option *option, char *name, size_t room)
{
    snprintf(name, room, "EVENSHARE_%s", option->name);
    for (; *name; name++) *name = (char)(*name == '-' ? '_' : *name >= 'a' && *name <= 'z' ? *name - 32 : *name);
}

/* The value of a flag, or of anything else, as an environment or a file writes it. */
static int store_written(parse *p, found row, const char *text)
{
    if (row.option->kind != ES_OPTION_FLAG) return store(p, row, text);
    if (is_choice("1|yes|true|on", text)) return store(p, row, "");
    if (is_choice("0|no|false|off", text)) return ES_GO_ON;
    return es_command_refuse(p->command, "%s: \"%s\" is neither yes nor no", row.option->name, text);
}

/* True when the environment had something to say; *done as from store(). */
static bool fill_from_environment(parse *p, found row, int *done)
{
    char name[96];
    es_option_variable(row.option, name, sizeof name);
    const char *text = getenv(name);
    if ((!text || !*text) && row.option->environment) text = getenv(row.option->environment);
    if (!text || !*text) return false;
    *done = store_written(p, row, text);
    return true;
}

/* The lines of a configuration for one option: those of the command's own section, else those for every command. */
static bool fill_from_config(parse *p, found row, int *done)
{
    bool any = false;
    for (int own = 1; own >= 0 && !any; own--)
        for (size_t i = 0; i < p->config.count; i++) {
            const es_config_row *line = &p->config.rows[i];
            if (strcmp(line->section, own ? p->command->name : "") != 0 || strcmp(line->name, row.option->name) != 0) continue;
            if (any && row.option->kind != ES_OPTION_LIST)
                *done =
                    es_command_refuse(p->command, "%s, line %d: %s is given twice", p->config_path, line->line, line->name);
            else
                *done = store_written(p, row, line->value);
            any = true;
            if (*done != ES_GO_ON) return true;
        }
    return any;
}

/* Environment, configuration, then defaults, for what was not typed. */
static int fill_absent(parse *p)
{
    size_t number = 0;
    for (const es_option_group *group = p->command->groups; group && group->options; group++)
        for (const es_option *option = group->options; option->name; option++, number++) {
            const found row = {option, group->base, number};
            int done = ES_GO_ON;
            if (p->given[number] ||
                (!option->typed && (fill_from_environment(p, row, &done) || fill_from_config(p, row, &done)))) {
                if (done != ES_GO_ON) return done;
                continue;
            }
            if (option->fallback) done = store(p, row, option->fallback);
            if (done != ES_GO_ON) return done;
        }
    return ES_GO_ON;
}

/* ---- the configuration ---- */

static const es_command *const *all_commands;
static size_t all_count;

void es_options_set_commands(const es_command *const *commands, size_t count)
{
    all_commands = commands;
    all_count = count;
}

static bool has_option(const es_command *command, const char *name)
{
    const span wanted = {name, strlen(name)};
    const found row = find_row(command, has_name, &wanted);
    return row.option && !row.option->typed;
}

/* A line that no command could mean is a slip. */
static int check_config_line(const parse *p, const es_config_row *line)
{
    bool section = !line->section[0] || strcmp(line->section, p->command->name) == 0;
    bool name = has_option(p->command, line->name) && section;
    for (size_t i = 0; i < all_count; i++) {
        if (line->section[0] && strcmp(line->section, all_commands[i]->name) != 0) continue;
        section = true;
        name = name || has_option(all_commands[i], line->name);
    }
    /* "bench decode" has options of its own, which are known when it runs */
    if (!section && strncmp(line->section, "bench ", 6) == 0) return ES_GO_ON;
    if (!section)
        return es_command_refuse(p->command, "%s, line %d: there is no command \"%s\"", p->config_path, line->line,
                                 line->section);
    if (!name)
        return es_command_refuse(p->command, "%s, line %d: there is no option \"%s\"%s%s", p->config_path, line->line,
                                 line->name, line->section[0] ? " of " : "", line->section);
    return ES_GO_ON;
}

/* Values point into the file's text, which therefore stays until the process ends. */
static int read_config(parse *p, const char *path)
{
    static es_config kept;
    enum { CONFIG_MAX = 1 << 20 };
    char message[ES_CONFIG_MESSAGE], *text;
    es_config_free(&kept);
    if (es_file_read(path, CONFIG_MAX, &text, NULL) != ES_OK) return es_command_refuse(p->command, "%s", es_error_message());
    if (!es_config_read(text, &kept, message)) return es_command_refuse(p->command, "%s, %s", path, message);
    p->config = kept;
    p->config_path = path;
    for (size_t i = 0; i < kept.count; i++) {
        const int done = check_config_line(p, &kept.rows[i]);
        if (done != ES_GO_ON) return done;
    }
    return ES_GO_ON;
}

/* --config FILE or --config=FILE at argv[*i]; ES_GO_ON with *path NULL when it is something else. */
static int take_config(const parse *p, int argc, char **argv, int *i, const char **path)
{
    static const char name[] = "--config";
    const size_t n = sizeof name - 1;
    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] && argv[*i][n] != '=')) return ES_GO_ON;
    if (argv[*i][n])
        *path = argv[*i] + n + 1;
    else if (*i + 1 < argc)
        *path = argv[++*i];
    else
        return es_command_refuse(p->command, "--config needs a value: --config=FILE");
    return ES_GO_ON;
}

static int print_and_end(const es_command *command, void (*print)(const es_command *, es_text *))
{
    es_text out = {0};
    print(command, &out);
    const bool bad = out.failed || fwrite(out.data, 1, out.bytes, stdout) != out.bytes || fflush(stdout) != 0;
    es_text_free(&out);
    return bad ? 1 : 0;
}

int es_options_parse(const es_command *command, int argc, char **argv, void *settings)
{
    parse p = {.command = command, .settings = settings};
    size_t number = 0;
    for (const es_option_group *group = command->groups; group && group->options; group++)
        for (const es_option *option = group->options; option->name; option++, number++) {
            if (number == GIVEN_MAX) return es_command_refuse(command, "has more than %d options", GIVEN_MAX);
            store_absent(settings, (found){option, group->base, number});
        }

    /* Help is given whatever else is wrong with the line. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return print_and_end(command, es_options_help);
        if (strcmp(argv[i], "--man") == 0) return print_and_end(command, es_options_man);
        if (strcmp(argv[i], "--version") == 0) return puts("evenshare " ES_VERSION) < 0;
    }

    bool options_end = false;
    const char *config = getenv("EVENSHARE_CONFIG");
    for (int i = 1; i < argc; i++) {
        int done;
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
            continue;
        }
        const char *named = NULL;
        if (!options_end) {
            done = take_config(&p, argc, argv, &i, &named);
            if (done != ES_GO_ON) return done;
            if (named) {
                config = named;
                continue;
            }
        }
        if (!options_end && argv[i][0] == '-' && argv[i][1])
            done = take_option(&p, argc, argv, &i);
        else
            done = take_bare(&p, argv[i]);
        if (done != ES_GO_ON) return done;
    }
    if (config && *config) {
        const int done = read_config(&p, config);
        if (done != ES_GO_ON) return done;
    }
    return fill_absent(&p);
}

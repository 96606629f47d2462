/* config.c: see config.h. */
#include "cli/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *skip_spaces(char *at)
{
    return at + strspn(at, " \t\r");
}

static void cut_spaces(char *from)
{
    size_t n = strlen(from);
    while (n && strchr(" \t\r", from[n - 1])) from[--n] = '\0';
}

/* "..." in place; what follows may only be a comment. */
static const char *unquote(char *at)
{
    char *to = at;
    const char *from = at + 1;
    for (; *from && *from != '"'; from++) {
        char c = *from;
        if (c == '\\' && from[1]) {
            from++;
            c = *from == 'n' ? '\n' : *from == 't' ? '\t' : *from;
        }
        *to++ = c;
    }
    if (*from != '"') return "the quote has no end";
    from += 1 + strspn(from + 1, " \t\r");
    if (*from && *from != '#') return "something stands behind the quote";
    *to = '\0';
    return NULL;
}

static const char *read_value(char *value)
{
    if (*value == '"') return unquote(value);
    for (char *at = value; (at = strchr(at, '#')); at++)
        if (at == value || strchr(" \t", at[-1])) {
            *at = '\0';
            break;
        }
    cut_spaces(value);
    return NULL;
}

/* One line; NULL or what is wrong with it. */
static const char *read_line(char *line, const char **section, es_config_row *row)
{
    line = skip_spaces(line);
    if (!*line || *line == '#') return NULL;
    if (*line == '[') {
        char *end = strchr(line, ']');
        if (!end) return "a section looks like [serve]";
        *end = '\0';
        *section = line + 1;
        end = skip_spaces(end + 1);
        return *end && *end != '#' ? "something stands behind the section" : NULL;
    }
    char *value = strchr(line, '=');
    if (!value) return "an option looks like name = value";
    *value++ = '\0';
    cut_spaces(line);
    value = skip_spaces(value);
    if (!*line) return "an option looks like name = value";
    *row = (es_config_row){*section, line, value, 0};
    return read_value(value);
}

bool es_config_read(char *text, es_config *config, char message[ES_CONFIG_MESSAGE])
{
    size_t lines = 1;
    for (const char *at = text; *at; at++) lines += *at == '\n';
    *config = (es_config){.rows = calloc(lines, sizeof *config->rows), .text = text};
    const char *section = "", *wrong = config->rows ? NULL : "out of memory";
    char *rest = text;
    int number = 0;
    for (char *line; !wrong && (line = strsep(&rest, "\n"));) {
        es_config_row row = {.name = NULL};
        number++;
        wrong = read_line(line, &section, &row);
        row.line = number;
        if (!wrong && row.name) config->rows[config->count++] = row;
    }
    if (!wrong) return true;
    snprintf(message, ES_CONFIG_MESSAGE, "line %d: %s", number, wrong);
    es_config_free(config);
    return false;
}

void es_config_free(es_config *config)
{
    free(config->rows);
    free(config->text);
    *config = (es_config){.count = 0};
}

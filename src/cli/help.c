/* help.c: --help and man pages, written from the same table that is parsed, so that neither can tell of an option that is
 * not there. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

enum { HELP_WIDTH = 96, HELP_COLUMN = 28 };

/* Appends `text` wrapped at HELP_WIDTH; `column` is where the line stands now, continuation lines start at `indent`. */
static void put_wrapped(es_text *out, const char *text, size_t column, size_t indent)
{
    while (*text) {
        const size_t word = strcspn(text, " \n");
        if (column > indent && column + 1 + word > HELP_WIDTH) {
            es_text_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            es_text_putc(out, ' ');
            column++;
        }
        es_text_append(out, text, word);
        column += word;
        text += word;
        while (*text == ' ' || *text == '\n') text++;
    }
    es_text_putc(out, '\n');
}

static void put_default(const es_option *option, es_text *line)
{
    if (option->fallback) es_text_printf(line, " [%s]", option->fallback);
    if (option->environment) es_text_printf(line, " (or $%s)", option->environment);
}

static void put_option(const es_option *option, es_text *out)
{
    const size_t start = out->bytes;
    if (option->letter)
        es_text_printf(out, "  -%c, --%s", option->letter, option->name);
    else
        es_text_printf(out, "      --%s", option->name);
    if (option->value) es_text_printf(out, " %s", option->value);
    size_t column = out->bytes - start;
    if (column + 2 > HELP_COLUMN) {
        es_text_putc(out, '\n');
        column = 0;
    }
    es_text_printf(out, "%*s", (int)(HELP_COLUMN - column), "");
    es_text line = {0};
    es_text_puts(&line, option->help);
    put_default(option, &line);
    if (line.failed)
        out->failed = true;
    else
        put_wrapped(out, line.data, HELP_COLUMN, HELP_COLUMN);
    es_text_free(&line);
}

static void put_usage(const es_command *command, es_text *out)
{
    es_text_printf(out, "evenshare %s", command->name);
    for (const es_option_group *group = command->groups; group && group->options; group++)
        for (const es_option *option = group->options; option->name; option++)
            if (option->positional) es_text_printf(out, " [%s]", option->value);
    es_text_puts(out, " [options]\n");
}

void es_options_help(const es_command *command, es_text *out)
{
    es_text_printf(out, "evenshare %s: %s\n\nUsage: ", command->name, command->summary);
    put_usage(command, out);
    for (const char *about = command->about; about && *about;) {
        const char *end = strstr(about, "\n\n");
        const size_t bytes = end ? (size_t)(end - about) : strlen(about);
        es_text line = {0};
        es_text_append(&line, about, bytes);
        es_text_putc(out, '\n');
        if (line.failed)
            out->failed = true;
        else
            put_wrapped(out, line.data, 0, 0);
        es_text_free(&line);
        about = end ? end + 2 : NULL;
    }
    for (const es_option_group *group = command->groups; group && group->options; group++) {
        es_text_printf(out, "\n%s:\n", group->title ? group->title : "Options");
        for (const es_option *option = group->options; option->name; option++) put_option(option, out);
    }
    es_text_printf(out, "\n      --config FILE%*soptions from FILE; $EVENSHARE_NAME stands in for --name\n", HELP_COLUMN - 19,
                   "");
    es_text_printf(out, "  -h, --help%*sthis text; --man prints it as a man page\n", HELP_COLUMN - 12, "");
}

/* Text inside a troff page: backslashes and hyphens are escaped, a dot or quote may not begin a line. */
static void put_troff(es_text *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        const bool line_start = out->bytes == 0 || out->data[out->bytes - 1] == '\n';
        if (line_start && (*c == '.' || *c == '\'')) es_text_puts(out, "\\&");
        if (*c == '\\')
            es_text_puts(out, "\\e");
        else if (*c == '-')
            es_text_puts(out, "\\-");
        else if (*c == '\n' && c[1] == '\n') {
            es_text_puts(out, "\n.PP\n");
            c++;
        } else
            es_text_putc(out, *c);
    }
}

static void put_man_option(const es_option *option, es_text *out)
{
    es_text_puts(out, ".TP\n.B ");
    if (option->letter) es_text_printf(out, "\\-%c, ", option->letter);
    es_text_puts(out, "\\-\\-");
    put_troff(out, option->name);
    if (option->value) {
        es_text_putc(out, ' ');
        put_troff(out, option->value);
    }
    es_text_putc(out, '\n');
    es_text line = {0};
    es_text_puts(&line, option->help);
    put_default(option, &line);
    if (line.failed)
        out->failed = true;
    else
        put_troff(out, line.data);
    es_text_free(&line);
    es_text_puts(out, ".\n");
}

void es_options_man(const es_command *command, es_text *out)
{
    es_text upper = {0};
    for (const char *c = command->name; *c; c++) es_text_putc(&upper, (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c));
    if (upper.failed) {
        out->failed = true;
        return;
    }
    es_text_printf(out, ".TH EVENSHARE\\-%s 1 \"\" \"evenshare " ES_VERSION "\" \"User Commands\"\n", upper.data);
    es_text_free(&upper);
    es_text_printf(out, ".SH NAME\nevenshare\\-%s \\- ", command->name);
    put_troff(out, command->summary);
    es_text_puts(out, "\n.SH SYNOPSIS\n.B ");
    put_usage(command, out);
    if (command->about) {
        es_text_puts(out, ".SH DESCRIPTION\n");
        put_troff(out, command->about);
        es_text_putc(out, '\n');
    }
    for (const es_option_group *group = command->groups; group && group->options; group++) {
        es_text_printf(out, ".SH \"%s\"\n", group->title ? group->title : "OPTIONS");
        for (const es_option *option = group->options; option->name; option++) put_man_option(option, out);
    }
    es_text_puts(out, ".SH \"OPTIONS FROM ELSEWHERE\"\n.TP\n.B \\-\\-config FILE\noptions from FILE; $EVENSHARE_NAME stands "
                      "in for \\-\\-name. See\n.BR evenshare (1).\n");
    es_text_puts(out, ".SH \"EXIT STATUS\"\n0: done; 1: failed; 2: the command line, the request or the model cannot be "
                      "used as it is, and the message says why.\n.SH \"SEE ALSO\"\n.BR evenshare (1)\n");
}

/* line.c: see line.h. */
#include "cli/line.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#ifdef ES_HAVE_EDIT
#include <histedit.h>
#endif

struct es_line {
    es_stream *stream;
    const char *prompt;
#ifdef ES_HAVE_EDIT
    EditLine *edit;
    History *history;
    char *history_path; /* NULL: nothing is kept */
#endif
};

enum { CONTROL_D = 4, CONTROL_U = 21 };

/* One byte of standard input: 1, 0 at its end, −1 on Ctrl-C. */
static int read_byte(const es_line *line, char *byte)
{
    if (!es_stream_wait_input(line->stream, STDIN_FILENO)) return -1;
    ssize_t got;
    do got = read(STDIN_FILENO, byte, 1);
    while (got < 0 && errno == EINTR);
    return got == 1 ? 1 : 0;
}

#ifdef ES_HAVE_EDIT
static char *prompt_of(EditLine *edit)
{
    es_line *line = NULL;
    el_get(edit, EL_CLIENTDATA, &line);
    return (char *)(uintptr_t)line->prompt; /* libedit does not write to it */
}

/* libedit asks for one character. Ctrl-C becomes Ctrl-U, which empties the line; a NUL is what a Ctrl-D reads as that was typed
 * before the terminal was put into the mode for editing. */
static int read_character(EditLine *edit, wchar_t *out)
{
    es_line *line = NULL;
    el_get(edit, EL_CLIENTDATA, &line);
    mbstate_t state = {0};
    for (;;) {
        char byte;
        const int got = read_byte(line, &byte);
        if (got < 0) {
            *out = CONTROL_U;
            return 1;
        }
        if (got == 0) return 0;
        if (byte == '\0') byte = CONTROL_D;
        const size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* part of a character */
        if (used == (size_t)-1) {
            *out = L'?';
            errno = 0;
        }
        return 1;
    }
}

/* The file's path, its folder made; NULL where there is no place for it. */
static char *make_history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    es_text path = {0};
    if (state && state[0] == '/')
        es_text_printf(&path, "%s/evenshare/history", state);
    else if (home && home[0] == '/')
        es_text_printf(&path, "%s/.local/state/evenshare/history", home);
    else
        return NULL;
    for (char *at = path.data; at && (at = strchr(at + 1, '/'));) {
        *at = '\0';
        mkdir(path.data, 0700);
        *at = '/';
    }
    return path.data;
}

static void load_history(es_line *line)
{
    HistEvent event;
    line->history_path = make_history_path();
    if (line->history_path) history(line->history, &event, H_LOAD, line->history_path);
}

/* Written beside and moved, so that two conversations that end at once leave one whole file. */
static void save_history(es_line *line)
{
    HistEvent event;
    es_text fresh = {0};
    es_text_printf(&fresh, "%s.%ld", line->history_path, (long)getpid());
    const mode_t before = umask(077);
    if (!fresh.failed && history(line->history, &event, H_SAVE, fresh.data) >= 0) rename(fresh.data, line->history_path);
    umask(before);
    es_text_free(&fresh);
}

es_status es_line_open(es_stream *stream, bool remember, es_line **out)
{
    setlocale(LC_CTYPE, ""); /* so that libedit knows how wide characters are */
    if (strcmp(setlocale(LC_CTYPE, NULL), "C") == 0) setlocale(LC_CTYPE, "C.UTF-8");
    es_line *line = calloc(1, sizeof *line);
    if (!line) return es_fail(ES_NO_MEMORY, "out of memory");
    line->stream = stream;
    line->edit = el_init("evenshare", stdin, stdout, stderr);
    line->history = history_init();
    if (!line->edit || !line->history) {
        es_line_close(line);
        return es_fail(ES_IO, "the terminal cannot be edited on; give a prompt with -p or through a pipe");
    }
    HistEvent event;
    history(line->history, &event, H_SETSIZE, 1000);
    history(line->history, &event, H_SETUNIQUE, 1);
    if (remember) load_history(line);
    el_set(line->edit, EL_CLIENTDATA, line);
    el_set(line->edit, EL_PROMPT, prompt_of);
    el_set(line->edit, EL_EDITOR, "emacs");
    el_set(line->edit, EL_HIST, history, line->history);
    el_set(line->edit, EL_GETCFN, read_character);
    *out = line;
    return ES_OK;
}

void es_line_close(es_line *line)
{
    if (!line) return;
    if (line->history_path) save_history(line);
    free(line->history_path);
    if (line->history) history_end(line->history);
    if (line->edit) el_end(line->edit);
    free(line);
}

static bool read_one(es_line *line, es_text *out)
{
    int count = 0;
    el_set(line->edit, EL_PREP_TERM, 1); /* before the prompt is seen: otherwise what is typed at once meets the old mode */
    const char *typed = el_gets(line->edit, &count);
    if (!typed || count <= 0) return false;
    HistEvent event;
    if (typed[0] != '\n') history(line->history, &event, H_ENTER, typed);
    es_text_append(out, typed, (size_t)count);
    return true;
}
#else
es_status es_line_open(es_stream *stream, bool remember, es_line **out)
{
    (void)remember;
    es_line *line = calloc(1, sizeof *line);
    if (!line) return es_fail(ES_NO_MEMORY, "out of memory");
    line->stream = stream;
    *out = line;
    return ES_OK;
}

void es_line_close(es_line *line)
{
    free(line);
}

static bool read_one(es_line *line, es_text *out)
{
    const size_t start = out->bytes;
    fputs(line->prompt, stdout);
    fflush(stdout);
    for (;;) {
        char byte;
        const int got = read_byte(line, &byte);
        if (got < 0) {
            out->bytes = start;
            printf("^C\n%s", line->prompt);
            fflush(stdout);
            continue;
        }
        if (got == 0) return out->bytes > start;
        es_text_putc(out, byte);
        if (byte == '\n') return true;
    }
}
#endif

static const char mark[] = "\"\"\"";
enum { MARK = 3 };

static void drop_newline(es_text *out)
{
    while (out->bytes && (out->data[out->bytes - 1] == '\n' || out->data[out->bytes - 1] == '\r'))
        out->data[--out->bytes] = '\0';
}

/* What follows the opening """, up to the line that ends with the next. False at the end of input. */
static bool read_block(es_line *line, es_text *out)
{
    memmove(out->data, out->data + MARK, out->bytes - MARK + 1);
    out->bytes -= MARK;
    line->prompt = ". ";
    for (;;) {
        if (out->bytes >= MARK && strcmp(out->data + out->bytes - MARK, mark) == 0) {
            out->data[out->bytes -= MARK] = '\0';
            drop_newline(out);
            return true;
        }
        if (out->bytes) es_text_putc(out, '\n');
        if (!read_one(line, out)) return false;
        drop_newline(out);
    }
}

bool es_line_read(es_line *line, const char *prompt, es_text *out)
{
    es_text_clear(out);
    line->prompt = prompt;
    for (;;) {
        if (!read_one(line, out)) return false;
        drop_newline(out);
        if (out->bytes >= MARK && strncmp(out->data, mark, MARK) == 0) return read_block(line, out);
        if (!out->bytes || out->data[out->bytes - 1] != '\\') return true;
        out->data[out->bytes - 1] = '\n';
        line->prompt = ". ";
    }
}

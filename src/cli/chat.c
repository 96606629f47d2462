/* chat.c: a conversation on a terminal. Each turn renders the whole conversation with the model's template, so that what the
 * model reads is what a client of the server would have sent. */
#include "cli/chat.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/line.h"
#include "cli/messages.h"

static const char help_text[] =
    "  /help          this text\n"
    "  /again         another answer to the last question\n"
    "  /file PATH     ask about a text file; the question comes next\n"
    "  /clear         forget the conversation\n"
    "  /system TEXT   begin anew with other instructions\n"
    "  /exit          leave (so does Ctrl-D)\n"
    "  Ctrl-C         stop the answer\n"
    "A backslash at the end of a line goes on in the next one; \"\"\" begins and ends many lines.\n";

typedef struct conversation {
    const es_asking *asking;
    es_messages messages;
    char *last;    /* the question before, for /again */
    bool answered; /* it stands among the messages, with its answer */
    char *file;    /* a text that goes before the next question */
} conversation;

/* True when `line` is this command, alone or with an argument. */
static const char *argument_of(const char *line, const char *command)
{
    const size_t bytes = strlen(command);
    if (strncmp(line, command, bytes) != 0) return NULL;
    if (line[bytes] == '\0') return line + bytes;
    return line[bytes] == ' ' ? line + bytes + 1 : NULL;
}

static es_status answer(conversation *talk, const char *line)
{
    es_messages *messages = &talk->messages;
    es_text text = {0};
    talk->answered = false;
    ES_TRY(es_messages_add(messages, "user", line));
    es_stream_result result = {.prompt_tokens = 0};
    es_saying said = {.parser = NULL};
    es_status status = es_messages_render(messages, talk->asking->model, &text);
    if (status == ES_OK) status = es_ask(talk->asking, text.data, text.bytes, false, &said, &result);
    es_text_free(&text);
    if (status != ES_OK) {
        es_messages_drop_last(messages);
        return status;
    }
    status = es_messages_add(messages, "assistant", said.answer.data ? said.answer.data : "");
    if (status == ES_OK && said.reasoning.bytes) status = es_messages_add_reasoning(messages, said.reasoning.data);
    talk->answered = status == ES_OK;
    if (talk->asking->figures) es_print_figures(&result);
    es_stream_result_free(&result);
    es_saying_free(&said);
    return status;
}

/* A question, after the file that was read for it. */
static es_status ask(conversation *talk, const char *line)
{
    es_text question = {0};
    if (talk->file) es_text_printf(&question, "%s\n\n", talk->file);
    es_text_puts(&question, line);
    if (question.failed) {
        es_text_free(&question);
        return es_fail(ES_NO_MEMORY, "out of memory");
    }
    free(talk->file);
    talk->file = NULL;
    free(talk->last);
    talk->last = question.data;
    return answer(talk, question.data);
}

/* The last question and its answer are taken back, and asked anew. */
static es_status ask_again(conversation *talk)
{
    if (!talk->last) return es_fail(ES_INVALID, "nothing was asked yet");
    if (talk->answered) {
        es_messages_drop_last(&talk->messages);
        es_messages_drop_last(&talk->messages);
    }
    return answer(talk, talk->last);
}

static es_status take_file(conversation *talk, const char *path)
{
    enum { FILE_MAX = 64 << 20 };
    char *text;
    size_t bytes;
    ES_TRY(es_file_read(path, FILE_MAX, &text, &bytes));
    free(talk->file);
    talk->file = text;
    printf("%zu bytes; what would you like to know?\n", bytes);
    return ES_OK;
}

/* A conversation outlives a turn that went wrong: too long, refused by the template. */
static void report(const conversation *talk, es_status status)
{
    if (status != ES_OK) es_command_fail(talk->asking->command, status);
}

static void forget(conversation *talk)
{
    es_messages_clear(&talk->messages);
    free(talk->last);
    free(talk->file);
    talk->last = talk->file = NULL;
}

/* A line that begins with a slash. False when it ends the conversation. */
static bool obey(conversation *talk, const char *line)
{
    const char *argument;
    if (argument_of(line, "/exit") || argument_of(line, "/quit")) return false;
    if (argument_of(line, "/help")) {
        fputs(help_text, stdout);
    } else if (argument_of(line, "/again")) {
        report(talk, ask_again(talk));
    } else if ((argument = argument_of(line, "/file"))) {
        report(talk, take_file(talk, argument));
    } else if (argument_of(line, "/clear")) {
        forget(talk);
        puts("forgotten");
    } else if ((argument = argument_of(line, "/system"))) {
        forget(talk);
        es_messages_set_system(&talk->messages, *argument ? argument : NULL);
        puts(*argument ? "begun anew with these instructions" : "begun anew without instructions");
    } else {
        printf("there is no %s; /help lists the commands\n", line);
    }
    return true;
}

int es_chat(const es_asking *asking)
{
    conversation talk = {.asking = asking};
    es_line *line = NULL;
    es_text typed = {0};
    es_status status = es_messages_open(asking->system, asking->thinking, &talk.messages);
    if (status == ES_OK) status = es_line_open(asking->stream, !asking->forget, &line);
    if (status == ES_OK) printf("%s: /help for help, Ctrl-D to leave\n", es_model_get_info(asking->model)->name);
    while (status == ES_OK && es_line_read(line, "> ", &typed)) {
        if (typed.failed || !typed.bytes) continue;
        if (typed.data[0] == '/') {
            if (!obey(&talk, typed.data)) break;
            continue;
        }
        report(&talk, ask(&talk, typed.data));
    }
    if (status == ES_OK)
        putchar('\n');
    else
        es_command_fail(asking->command, status);
    es_text_free(&typed);
    es_line_close(line);
    forget(&talk);
    es_messages_close(&talk.messages);
    return es_status_exit_code(status);
}

/* stream.c: see stream.h. An eventfd says that the buffer has grown, a signalfd that someone pressed Ctrl-C. */
#include "cli/stream.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"

struct es_stream {
    int wake, interrupt; /* eventfd, signalfd */
    pthread_mutex_t lock;

    /* Under the lock: what the engine has said and nobody has printed. */
    es_text text;
    es_token *tokens;
    float *logprobs;
    size_t token_count, token_room;
    int64_t prompt_done;
    bool ended, out_of_memory;
    es_status status;
    es_text message;
    es_stream_result end; /* the numbers of the last event */

    /* What the request wants called besides. */
    es_logits_fn on_logits;
    void *logits_user;
};

es_status es_stream_open(es_stream **stream)
{
    es_stream *s = calloc(1, sizeof *s);
    if (!s) return es_fail(ES_NO_MEMORY, "out of memory");
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    s->interrupt = -1;
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake >= 0 && pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0)
        s->interrupt = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->interrupt < 0) {
        const int code = errno;
        if (s->wake >= 0) close(s->wake);
        free(s);
        return es_fail(ES_IO, "signals cannot be waited for: %s", strerror(code));
    }
    pthread_mutex_init(&s->lock, NULL);
    *stream = s;
    return ES_OK;
}

void es_stream_close(es_stream *stream)
{
    if (!stream) return;
    close(stream->wake);
    close(stream->interrupt);
    pthread_mutex_destroy(&stream->lock);
    es_text_free(&stream->text);
    es_text_free(&stream->message);
    free(stream->tokens);
    free(stream->logprobs);
    free(stream);
}

static bool keep_token(es_stream *s, es_token token, float logprob)
{
    if (s->token_count == s->token_room) {
        const size_t room = s->token_room ? s->token_room * 2 : 256;
        es_token *tokens = realloc(s->tokens, room * sizeof *tokens);
        if (tokens) s->tokens = tokens;
        float *logprobs = realloc(s->logprobs, room * sizeof *logprobs);
        if (logprobs) s->logprobs = logprobs;
        if (!tokens || !logprobs) return false;
        s->token_room = room;
    }
    s->tokens[s->token_count] = token;
    s->logprobs[s->token_count++] = logprob;
    return true;
}

/* On the engine's thread. */
static void on_event(void *user, const es_event *event)
{
    es_stream *s = user;
    pthread_mutex_lock(&s->lock);
    switch (event->kind) {
    case ES_EVENT_PROGRESS: s->prompt_done = event->prompt_done; break;
    case ES_EVENT_MOVED:
    case ES_EVENT_PROMPT: break;
    case ES_EVENT_TOKEN:
        es_text_append(&s->text, event->text, event->text_bytes);
        if (!keep_token(s, event->token, event->logprob)) s->out_of_memory = true;
        break;
    case ES_EVENT_DONE:
    case ES_EVENT_ERROR:
        if (event->kind == ES_EVENT_DONE && event->text_bytes) es_text_append(&s->text, event->text, event->text_bytes);
        if (event->kind == ES_EVENT_ERROR) {
            s->status = event->status;
            es_text_puts(&s->message, event->message ? event->message : es_status_name(event->status));
        }
        s->end.finish = event->finish;
        s->end.prompt_tokens = event->prompt_tokens;
        s->end.cached_tokens = event->cached_tokens;
        s->end.completion_tokens = event->completion_tokens;
        s->end.prompt_seconds = event->prompt_seconds;
        s->end.completion_seconds = event->completion_seconds;
        s->ended = true;
        break;
    }
    pthread_mutex_unlock(&s->lock);
    const uint64_t one = 1;
    (void)!write(s->wake, &one, sizeof one); /* full means that the reader is woken already */
}

static void on_logits(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    const es_stream *s = user;
    s->on_logits(s->logits_user, position, logits, vocabulary);
}

static bool take_interrupt(es_stream *s)
{
    struct signalfd_siginfo info;
    bool any = false;
    while (read(s->interrupt, &info, sizeof info) == (ssize_t)sizeof info) any = true;
    return any;
}

bool es_stream_wait_input(es_stream *stream, int fd)
{
    struct pollfd waits[2] = {{fd, POLLIN, 0}, {stream->interrupt, POLLIN, 0}};
    while (poll(waits, 2, -1) < 0 && errno == EINTR) {
    }
    return !(waits[1].revents && take_interrupt(stream));
}

/* Hands on what has come since the last call; true when the request has ended. */
static bool drain(es_stream *s, const es_stream_sink *sink, int64_t total, es_stream_result *result)
{
    uint64_t count;
    (void)!read(s->wake, &count, sizeof count);
    pthread_mutex_lock(&s->lock);
    es_text fresh = s->text;
    s->text = (es_text){0};
    const int64_t prompt_done = s->prompt_done;
    const bool ended = s->ended, answering = s->token_count > 0;
    if (fresh.failed) s->out_of_memory = true;
    pthread_mutex_unlock(&s->lock);

    if (sink && sink->progress && prompt_done > 0 && !answering && !ended) sink->progress(sink->user, prompt_done, total);
    if (fresh.bytes) {
        if (sink && sink->text) sink->text(sink->user, fresh.data, fresh.bytes);
        es_text_append(&result->text, fresh.data, fresh.bytes);
    }
    es_text_free(&fresh);
    return ended;
}

static void reset(es_stream *s)
{
    take_interrupt(s); /* pressed before there was anything to stop */
    es_text_clear(&s->text);
    es_text_clear(&s->message);
    s->token_count = 0;
    s->prompt_done = 0;
    s->ended = s->out_of_memory = false;
    s->status = ES_OK;
    s->end = (es_stream_result){.prompt_tokens = 0};
}

es_status es_stream_answer(es_stream *stream, es_engine *engine, const es_request *request, const es_stream_sink *sink,
                           es_stream_result *result)
{
    reset(stream);
    es_request mine = *request;
    stream->on_logits = request->on_logits;
    stream->logits_user = request->user;
    mine.on_event = on_event;
    mine.on_logits = request->on_logits ? on_logits : NULL;
    mine.user = stream;
    mine.progress = sink && sink->progress;
    uint64_t id;
    ES_TRY(es_engine_submit(engine, &mine, &id));

    es_stream_result out = {.prompt_tokens = 0};
    for (bool ended = false; !ended;) {
        struct pollfd waits[2] = {{stream->wake, POLLIN, 0}, {stream->interrupt, POLLIN, 0}};
        if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
        if (take_interrupt(stream)) {
            out.interrupted = true;
            es_engine_cancel(engine, id);
        }
        ended = drain(stream, sink, (int64_t)request->prompt_count, &out);
    }
    es_engine_wait(engine, id); /* from here on no callback runs */

    const es_stream_result *end = &stream->end;
    out.tokens = stream->tokens, out.logprobs = stream->logprobs, out.token_count = stream->token_count;
    stream->tokens = NULL, stream->logprobs = NULL, stream->token_room = 0;
    out.finish = end->finish;
    out.prompt_tokens = end->prompt_tokens, out.cached_tokens = end->cached_tokens;
    out.completion_tokens = end->completion_tokens;
    out.prompt_seconds = end->prompt_seconds, out.completion_seconds = end->completion_seconds;
    es_status status = stream->status;
    if (status != ES_OK) status = es_fail(status, "%s", stream->message.data);
    else if (stream->out_of_memory || out.text.failed) status = es_fail(ES_NO_MEMORY, "the answer does not fit the memory");
    if (status != ES_OK) es_stream_result_free(&out);
    *result = out;
    return status;
}

void es_stream_result_free(es_stream_result *result)
{
    es_text_free(&result->text);
    free(result->tokens);
    free(result->logprobs);
    *result = (es_stream_result){.prompt_tokens = 0};
}

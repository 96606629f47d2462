/* phases.h: what a phase is written with. For src/check only.
 *
 *   void es_phase_chat(es_trial *c, es_trial_result *r)
 *   {
 *       es_reply *reply = es_trial_ask(c, &(es_question){.text = "Hello", .max_tokens = 16});
 *       if (!es_trial_await(c, r, reply)) return;                  // broken off, or too late: the phase has failed
 *       es_trial_figure_add(r, "answer_ms", 1e3 * (reply->closed - reply->began));
 *       if (reply->status != 200) es_fail_phase(r, "status %d", reply->status);
 *   }
 *
 * A phase passes unless it says otherwise; the first failure is the one that is kept. The runner drops all requests after it
 * and makes sure that the server still answers. */
#ifndef ES_TRIAL_PHASES_H
#define ES_TRIAL_PHASES_H

#include "check/check.h"
#include "check/client.h"

struct es_trial {
    es_trial_options options;
    es_client *client;
    es_trial_result results[ES_TRIAL_PHASES_MAX];
    void (*run[ES_TRIAL_PHASES_MAX])(es_trial *check, es_trial_result *result);
    size_t count;
    bool reached; /* some request got an answer */
    char model[256];
    bool completions; /* no chat here: everything is asked as a completion */
    bool asked_ignore_eos, can_ignore_eos;
    int64_t context; /* 0: unknown */
    bool asked_context;
    double tokens_per_word, tokens_around; /* of a prompt; 0: not measured yet */
    uint32_t seed;                         /* of the next document: each is new to the server's cache */
    double deadline;                       /* of the running phase, on the client's clock */
};

/** A question to the model. */
typedef struct es_question {
    const char *text;            /**< what the user says */
    const char *answered, *then; /**< a second turn: what was answered, what the user says next; NULL = none */
    int64_t max_tokens;
    bool stream, no_usage, ignore_eos, logprobs;
    const char *stop;
} es_question;

/* ask.c */
/** Send a question with the model's name, greedy. */
es_reply *es_trial_ask(es_trial *c, const es_question *question);
es_reply *es_trial_fetch(es_trial *c, const char *path);
/** Wait until the phase's time is over; false and a failed phase when it broke off or came too late. */
bool es_trial_await(es_trial *c, es_trial_result *r, es_reply *reply);
/** As es_trial_await(), and the answer must be 200 and of the right shape. */
bool es_trial_await_answer(es_trial *c, es_trial_result *r, es_reply *reply);
double es_time_left(const es_trial *c);
/** Whether "ignore_eos" is taken; asks once. */
bool es_can_ignore_eos(es_trial *c);
/** The context in tokens, asked once; 0 when nobody says. */
int64_t es_find_context(es_trial *c);
/** A text of about so many tokens, another one each time; measures the tokenizer once. False: the server did not answer. */
bool es_write_document(es_trial *c, int64_t tokens, es_text *out);
/** Tokens of a long prompt, cut to what the context allows with `room` for the answer. */
int64_t es_long_prompt(es_trial *c, int64_t room);
/** How many requests the server says it is running: /health, /slots or /metrics; −1 when nobody says. */
int64_t es_count_running(es_trial *c);
bool es_same_text(const es_text *a, const es_text *b);

/* check.c */
void es_fail_phase(es_trial_result *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void es_unsupported_phase(es_trial_result *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Something to know about a phase that may pass all the same. */
void es_note_phase(es_trial_result *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** `name` must be a literal. Not a number: left out. */
void es_trial_figure_add(es_trial_result *r, const char *name, double value);

/* basic.c */
void es_phase_alive(es_trial *c, es_trial_result *r);
void es_phase_models(es_trial *c, es_trial_result *r);
void es_phase_chat(es_trial *c, es_trial_result *r);
void es_phase_stream(es_trial *c, es_trial_result *r);
void es_phase_stop(es_trial *c, es_trial_result *r);
/* length.c */
void es_phase_truncation(es_trial *c, es_trial_result *r);
void es_phase_overflow(es_trial *c, es_trial_result *r);
void es_phase_recall(es_trial *c, es_trial_result *r);
/* load.c */
void es_phase_concurrency(es_trial *c, es_trial_result *r);
void es_phase_stall(es_trial *c, es_trial_result *r);
void es_phase_behind(es_trial *c, es_trial_result *r);
void es_phase_disconnect(es_trial *c, es_trial_result *r);
void es_phase_overload(es_trial *c, es_trial_result *r);
/* same.c */
void es_phase_repeatability(es_trial *c, es_trial_result *r);
void es_phase_cache(es_trial *c, es_trial_result *r);
/* malformed.c */
void es_phase_malformed(es_trial *c, es_trial_result *r);

#endif

/* check.h: what an OpenAI-compatible server does, tried phase by phase.
 *
 *   es_trial_options options = {.url = "http://127.0.0.1:8080"};
 *   es_trial *check;
 *   ES_TRY(es_trial_open(&options, &check));
 *   for (size_t i = 0; i < es_trial_count(check); i++) {
 *       const es_trial_result *result = es_trial_phase(check, i);     // runs it
 *       printf("%s %s\n", result->name, es_trial_verdict_name(result->verdict));
 *   }
 *   const double score = es_trial_score(check);
 *   es_trial_close(check);
 *
 * Results hold figures, and notes in our own words: neither a prompt nor an answer nor a server's message gets into them. */
#ifndef ES_CHECK_CHECK_H
#define ES_CHECK_CHECK_H

#include "base/error.h"
#include "base/text.h"
#include "check/numbers.h"

/** Zero anywhere means the default in brackets. */
typedef struct es_trial_options {
    const char *url, *key, *model; /**< key and model may be NULL */
    const char *phases;            /**< names with commas between them; NULL = all */
    bool quick;                    /**< short prompts and answers */
    bool no_timing;                /**< judge what the server does, not how fast */
    int64_t context;               /**< tokens of the server's context [as the server says] */
    int64_t prompt;                /**< tokens of a long prompt [8,192; quick 512] */
    int64_t short_prompt;          /**< tokens of a short one that comes behind a long one [100] */
    int64_t truncation;            /**< max_tokens of the truncation phase [8,192; quick 128] */
    int64_t recall;                /**< tokens that the model must recall from; 0: what it can is noted, not judged */
    int64_t parallel;              /**< requests that the server runs at once [4] */
    int64_t overload;              /**< requests of the overload phase [32] */
    double limit;                  /**< seconds for any one phase [the phase's own] */
    void (*trace)(void *user, const char *line); /**< told each request and answer, text and all; NULL = no one */
    void *user;
} es_trial_options;

typedef enum es_trial_verdict { ES_TRIAL_NOT_RUN, ES_TRIAL_PASS, ES_TRIAL_FAIL, ES_TRIAL_UNSUPPORTED } es_trial_verdict;
/** "not_run", "pass", "fail", "unsupported". */
const char *es_trial_verdict_name(es_trial_verdict verdict);

enum { ES_TRIAL_FIGURES = 16, ES_TRIAL_PHASES_MAX = 32 };

typedef struct es_trial_figure {
    const char *name; /**< as in JSON; ends in _ms, _s or _tokens where it has a unit */
    double value;
} es_trial_figure;

/** A picture for the report: y over x, and perhaps a stretch of x that stands out. */
typedef struct es_trial_plot {
    const char *title, *x_name, *y_name; /**< title NULL: no plot */
    es_numbers x, y;
    double band_from, band_to; /**< equal: none */
    double line;               /**< a y that must not be passed; 0: none */
} es_trial_plot;

typedef struct es_trial_result {
    const char *name, *about;
    int weight;
    double limit, seconds; /**< the phase's time bound; what it took */
    es_trial_verdict verdict;
    char note[320]; /**< why it failed or is not supported; what else to know of a pass */
    es_trial_figure figure[ES_TRIAL_FIGURES];
    size_t figures;
    es_trial_plot plot;
} es_trial_result;

typedef struct es_trial es_trial;

/** ES_INVALID for an address or phase that is none, ES_UNSUPPORTED in a build without an HTTP client. */
es_status es_trial_open(const es_trial_options *options, es_trial **check);
void es_trial_close(es_trial *check);
/** Phases that were asked for. */
size_t es_trial_count(const es_trial *check);
/** Phase i before or after it ran. */
const es_trial_result *es_trial_get(const es_trial *check, size_t i);
/** Run phase i. */
const es_trial_result *es_trial_phase(es_trial *check, size_t i);
/** The server was never reached. */
bool es_trial_unreachable(const es_trial *check);
/** 0 to 100: the weight of what passed in that of what passed or failed; 100 when there is neither. */
double es_trial_score(const es_trial *check);
size_t es_trial_tally(const es_trial *check, es_trial_verdict verdict);
const char *es_trial_url(const es_trial *check);
/** "" before it is known. */
const char *es_trial_model(const es_trial *check);
/** Name of phase i of all there are; NULL past the last. */
const char *es_trial_phase_name(size_t i);

/** Reports over what has run (report.c, page.c). */
void es_trial_write_json(const es_trial *check, es_text *out);
void es_trial_write_junit(const es_trial *check, es_text *out);
void es_trial_write_html(const es_trial *check, es_text *out);

#endif

/* report.c: results for programs: JSON, and JUnit XML for those who show test results. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "check/check.h"

static json_t *figures_json(const es_trial_result *r)
{
    json_t *figures = json_object();
    for (size_t i = 0; i < r->figures; i++) {
        const double x = r->figure[i].value;
        const bool whole = x == floor(x) && fabs(x) < 1e15;
        json_object_set_new(figures, r->figure[i].name, whole ? json_integer((json_int_t)x) : json_real(x));
    }
    return figures;
}

static json_t *result_json(const es_trial_result *r)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:s*, s:o}", "name", r->name, "about", r->about, "verdict",
                     es_trial_verdict_name(r->verdict), "weight", r->weight, "seconds", r->seconds, "limit_seconds", r->limit,
                     "note", r->note[0] ? r->note : NULL, "figures", figures_json(r));
}

void es_trial_write_json(const es_trial *check, es_text *out)
{
    json_t *phases = json_array();
    for (size_t i = 0; i < es_trial_count(check); i++) json_array_append_new(phases, result_json(es_trial_get(check, i)));
    json_t *root =
        json_pack("{s:s, s:s*, s:b, s:f, s:i, s:i, s:i, s:o}", "url", es_trial_url(check), "model", es_trial_model(check),
                  "reached", !es_trial_unreachable(check), "score", es_trial_score(check), "passed",
                  (int)es_trial_tally(check, ES_TRIAL_PASS), "failed", (int)es_trial_tally(check, ES_TRIAL_FAIL),
                  "unsupported", (int)es_trial_tally(check, ES_TRIAL_UNSUPPORTED), "phases", phases);
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        es_text_puts(out, text);
    else
        out->failed = true;
    es_text_putc(out, '\n');
    free(text);
    json_decref(root);
}

static void put_case(es_text *out, const es_trial_result *r)
{
    es_text_printf(out, "  <testcase classname=\"evenshare.check\" name=\"%s\" time=\"%.3f\">\n", r->name, r->seconds);
    const char *element = r->verdict == ES_TRIAL_FAIL ? "failure" : r->verdict == ES_TRIAL_PASS ? NULL : "skipped";
    if (element) {
        es_text_printf(out, "    <%s message=\"", element);
        es_text_put_escaped(out, r->note[0] ? r->note : "not run");
        es_text_puts(out, "\"/>\n");
    }
    es_text_puts(out, "    <system-out>");
    es_text_put_escaped(out, r->about);
    for (size_t i = 0; i < r->figures; i++) es_text_printf(out, "\n%s %.6g", r->figure[i].name, r->figure[i].value);
    es_text_puts(out, "</system-out>\n  </testcase>\n");
}

void es_trial_write_junit(const es_trial *check, es_text *out)
{
    double seconds = 0;
    for (size_t i = 0; i < es_trial_count(check); i++) seconds += es_trial_get(check, i)->seconds;
    const size_t failed = es_trial_tally(check, ES_TRIAL_FAIL);
    const size_t skipped = es_trial_count(check) - failed - es_trial_tally(check, ES_TRIAL_PASS);
    es_text_printf(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"evenshare check\" tests=\"%zu\" "
        "failures=\"%zu\" errors=\"0\" skipped=\"%zu\" time=\"%.3f\">\n  <properties>\n    <property name=\"url\" value=\"",
        es_trial_count(check), failed, skipped, seconds);
    es_text_put_escaped(out, es_trial_url(check));
    es_text_puts(out, "\"/>\n    <property name=\"model\" value=\"");
    es_text_put_escaped(out, es_trial_model(check));
    es_text_printf(out, "\"/>\n    <property name=\"score\" value=\"%.1f\"/>\n  </properties>\n", es_trial_score(check));
    for (size_t i = 0; i < es_trial_count(check); i++) put_case(out, es_trial_get(check, i));
    es_text_puts(out, "</testsuite>\n");
}

/* plan.c: `evenshare plan` shows what the planner would do for a shape on a device, before anything runs. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "share/plan.h"
#include "share/pool.h"

typedef struct settings {
    int64_t tokens, partition, workers, sequences, query_heads, kv_heads, head_dim;
    const char *profile;
    bool json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const es_option own[] = {
    {"tokens", 0, ES_OPTION_SIZE, "N", FIELD(tokens), .fallback = "8192", .min = 1, .max = 1e12,
     .help = "tokens of context of each sequence"},
    {"partition", 0, ES_OPTION_SIZE, "N", FIELD(partition), .min = 1, .max = 1e9,
     .help = "tokens that one unit takes [the device's]"},
    {"workers", 'w', ES_OPTION_INT, "N", FIELD(workers), .min = 1, .max = 1 << 20,
     .help = "threads, or multiprocessors [the device's]"},
    {"sequences", 0, ES_OPTION_INT, "N", FIELD(sequences), .fallback = "1", .min = 1, .max = 1 << 20,
     .help = "sequences that generate at once"},
    {"query-heads", 0, ES_OPTION_INT, "N", FIELD(query_heads), .min = 1, .max = 65536,
     .help = "query heads [one for each KV head]"},
    {"kv-heads", 0, ES_OPTION_INT, "N", FIELD(kv_heads), .fallback = "1", .min = 1, .max = 65536, .help = "KV heads"},
    {"head-dim", 0, ES_OPTION_INT, "N", FIELD(head_dim), .fallback = "128", .min = 1, .max = 65536,
     .help = "channels of a head"},
    {"device-profile", 0, ES_OPTION_TEXT, "FILE", FIELD(profile),
     .help = "what the device can do, as JSON; evenshare doctor --profile writes this machine's [assumed figures]"},
    {"json", 0, ES_OPTION_FLAG, NULL, FIELD(json), .help = "one JSON object instead of text"},
    {0}};
#undef FIELD
static const es_option_group groups[] = {{NULL, own, 0}, {0}};

static int plan(int argc, char **argv);
const es_command es_command_plan = {
    "plan", "show how attention over a long context would be shared out",
    "For one token of each sequence: units of bounded size, how many each worker gets, how even that is, whether one worker "
    "should walk each sequence (V1) or all of them share it (V2) by the cost model, and the workspace that V2 takes. Neither "
    "choice changes an answer. The profile of a device that isn't here is a JSON object:\n\n"
    "{\"name\": \"my card\", \"workers\": 16, \"unit_tokens\": 512, \"element_bytes\": 2, \"worker_gb_per_second\": 40, "
    "\"gb_per_second\": 600, \"unit_microseconds\": 2, \"meet_microseconds\": 8, \"merge_gb_per_second\": 100}",
    groups, plan};

/* --- the profile --- */

/* Of a machine nobody measured: a server's core, and memory that four of them saturate. */
static es_profile assumed_profile(void)
{
    const int cpus = es_pool_cpus();
    return (es_profile){.name = "this machine, with assumed figures", .workers = cpus, .unit_tokens = 512, .element_bytes = 4,
                        .worker_bandwidth = 10e9, .bandwidth = 10e9 * (cpus < 4 ? cpus : 4), .unit_seconds = 0.2e-6,
                        .meet_seconds = 5e-6, .merge_bandwidth = 10e9};
}

typedef struct profile_field {
    const char *key;
    double least, most, scale;
    size_t offset;
    bool whole;
} profile_field;

static const profile_field fields[] = {
    {"workers", 1, 1 << 20, 1, offsetof(es_profile, workers), true},
    {"unit_tokens", 1, 1e9, 1, offsetof(es_profile, unit_tokens), true},
    {"element_bytes", 1, 8, 1, offsetof(es_profile, element_bytes), true},
    {"worker_gb_per_second", 1e-6, 1e9, 1e9, offsetof(es_profile, worker_bandwidth), false},
    {"gb_per_second", 1e-6, 1e9, 1e9, offsetof(es_profile, bandwidth), false},
    {"unit_microseconds", 0, 1e9, 1e-6, offsetof(es_profile, unit_seconds), false},
    {"meet_microseconds", 0, 1e9, 1e-6, offsetof(es_profile, meet_seconds), false},
    {"merge_gb_per_second", 1e-6, 1e9, 1e9, offsetof(es_profile, merge_bandwidth), false},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static es_status take_field(const char *path, const char *key, const json_t *value, es_profile *profile)
{
    if (strcmp(key, "name") == 0) {
        if (!json_is_string(value)) return es_fail(ES_BAD_FILE, "%s: name must be a string", path);
        snprintf(profile->name, sizeof profile->name, "%s", json_string_value(value));
        for (char *c = profile->name; *c; c++) *c = (unsigned char)*c < ' ' || *c == 0x7F ? '?' : *c;
        return ES_OK;
    }
    for (int i = 0; i < FIELDS; i++) {
        const profile_field *f = &fields[i];
        if (strcmp(key, f->key) != 0) continue;
        const double x = json_number_value(value);
        if (!json_is_number(value) || (f->whole && !json_is_integer(value)) || !(x >= f->least && x <= f->most))
            return es_fail(ES_BAD_FILE, "%s: %s must be a %s from %g to %g", path, key, f->whole ? "whole number" : "number",
                           f->least, f->most);
        unsigned char *to = (unsigned char *)profile + f->offset;
        const int64_t whole = (int64_t)x;
        const double scaled = x * f->scale;
        memcpy(to, f->whole ? (const void *)&whole : (const void *)&scaled, 8);
        return ES_OK;
    }
    return es_fail(ES_BAD_FILE, "%s: \"%s\" is no figure of a device profile (evenshare plan --help lists them)", path, key);
}

static es_status read_profile(const char *path, es_profile *profile)
{
    char *text;
    size_t bytes;
    ES_TRY(es_file_read(path, 65536, &text, &bytes));
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json_is_object(root)) {
        json_decref(root);
        return es_fail(ES_BAD_FILE, "%s: not a JSON object (line %d: %s)", path, error.line,
                       root ? "another value" : error.text);
    }
    es_status status = ES_OK;
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        status = take_field(path, key, value, profile);
        if (status != ES_OK) break;
    }
    if (status == ES_OK && !json_object_get(root, "name")) snprintf(profile->name, sizeof profile->name, "%.63s", path);
    json_decref(root);
    return status;
}

/* --- output --- */

static void print_text(const es_plan_shape *s, const es_profile *p, int64_t workers, int64_t unit, const es_estimate *e)
{
    printf("device      %s: %" PRId64 " workers\n", p->name, workers);
    printf("shape       %" PRId64 " sequence%s of %" PRId64 " tokens, %" PRId64 " query and %" PRId64 " KV heads of %" PRId64
           " channels\n", s->sequences, s->sequences == 1 ? "" : "s", s->tokens, s->query_heads, s->kv_heads, s->head_dim);
    printf("units       %" PRId64 " of %" PRId64 " tokens", e->units, unit);
    if (e->items > 1) printf(" for each of %" PRId64 " items: %" PRId64 " in all", e->items, e->total);
    printf("\nper worker  %.10g units, %" PRId64 " wave%s, %.1f %% of the workers' time used\n", e->per_worker, e->waves,
           e->waves == 1 ? "" : "s", 100 * e->balance);
    printf("shares      ");
    if (e->big) printf("%" PRId64 " big of %" PRId64 " units, ", e->big, e->big_units);
    printf("%" PRId64 " normal of %" PRId64 " units", e->normal, e->normal_units);
    if (e->workers < workers) printf("; %" PRId64 " workers idle", workers - e->workers);
    printf("\nV1          the busiest worker walks %" PRId64 " units: %.1f us\n", e->v1_walk, e->v1_seconds * 1e6);
    printf("V2          %" PRId64 " units and a merge of at most %" PRId64 " partials of %" PRId64 " bytes: %.1f us\n",
           e->waves, e->nodes, e->partial_bytes, e->v2_seconds * 1e6);
    const bool v2 = e->v2_seconds < e->v1_seconds;
    printf("choice      %s, %.1f times faster\n", v2 ? "V2" : "V1",
           v2 ? e->v1_seconds / e->v2_seconds : e->v2_seconds / e->v1_seconds);
    printf("workspace   %" PRId64 " bytes for V2, whatever the answer's length\n", e->workspace);
}

static void print_json(const es_plan_shape *s, const es_profile *p, int64_t workers, int64_t unit, const es_estimate *e)
{
    json_t *o = json_object();
    json_object_set_new(o, "device", json_string(p->name));
    const struct {
        const char *key;
        int64_t value;
    } whole[] = {
        {"tokens",             s->tokens       },
        {"sequences",          s->sequences    },
        {"query_heads",        s->query_heads  },
        {"kv_heads",           s->kv_heads     },
        {"head_dim",           s->head_dim     },
        {"workers",            workers         },
        {"unit_tokens",        unit            },
        {"units",              e->units        },
        {"items",              e->items        },
        {"total_units",        e->total        },
        {"waves",              e->waves        },
        {"big_shares",         e->big          },
        {"big_share_units",    e->big_units    },
        {"normal_shares",      e->normal       },
        {"normal_share_units", e->normal_units },
        {"v1_units",           e->v1_walk      },
        {"v2_partials",        e->nodes        },
        {"partial_bytes",      e->partial_bytes},
        {"workspace_bytes",    e->workspace    }
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        json_object_set_new(o, whole[i].key, json_integer((json_int_t)whole[i].value));
    json_object_set_new(o, "units_per_worker", json_real(e->per_worker));
    json_object_set_new(o, "balance", json_real(e->balance));
    json_object_set_new(o, "v1_seconds", json_real(e->v1_seconds));
    json_object_set_new(o, "v2_seconds", json_real(e->v2_seconds));
    json_object_set_new(o, "choice", json_string(e->v2_seconds < e->v1_seconds ? "v2" : "v1"));
    json_dumpf(o, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(o);
}

static int plan(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_plan, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    es_profile profile = assumed_profile();
    if (s.profile) {
        const es_status status = read_profile(s.profile, &profile);
        if (status != ES_OK) return es_command_fail(&es_command_plan, status);
    }
    const int64_t heads = s.query_heads == ES_UNSET ? s.kv_heads : s.query_heads;
    const es_plan_shape shape = {s.tokens, s.sequences, heads, s.kv_heads, s.head_dim};
    const int64_t workers = s.workers == ES_UNSET ? profile.workers : s.workers;
    const int64_t unit = s.partition == ES_UNSET ? profile.unit_tokens : s.partition;
    if (shape.query_heads % shape.kv_heads)
        return es_command_refuse(&es_command_plan, "%" PRId64 " query heads cannot share %" PRId64 " KV heads evenly",
                                 shape.query_heads, shape.kv_heads);
    if (!es_plan_check(&shape, &profile, workers, unit))
        return es_command_refuse(&es_command_plan, "more than 2^60 tokens in all, or figures out of range");
    const es_estimate e = es_plan_estimate(&shape, &profile, workers, unit);
    if (s.json) print_json(&shape, &profile, workers, unit, &e);
    else print_text(&shape, &profile, workers, unit, &e);
    return 0;
}

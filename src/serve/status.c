/* status.c: what the server says about itself: /health, /metrics, /slots. None of them waits for a step, none shows a text. */
#include <string.h>

#include "serve/server_state.h"
#include "serve/strict_json.h"

enum { SLOTS_MAX = 1024 };

static es_backend_health look_at_engine(const es_server *server)
{
    const es_backend *backend = &server->backend;
    return backend->health ? backend->health(backend->self) : (es_backend_health){.up = true};
}

/* 200 and "ok", or 503 and what is the matter: load balancers look at the status, people at the words. */
void es_serve_health(es_server *server, es_http_connection *connection)
{
    const es_engine_stats stats = server->backend.stats(server->backend.self);
    const es_backend_health engine = look_at_engine(server);
    json_t *health = json_object();
    const struct {
        const char *name;
        json_int_t value;
    } counters[] = {
        {"running",           stats.running                      },
        {"waiting",           stats.waiting                      },
        {"requests",          (json_int_t)server->answer_count   },
        {"connections",       (json_int_t)server->http.count     },
        {"finished",          (json_int_t)stats.finished         },
        {"cancelled",         (json_int_t)stats.cancelled        },
        {"failed",            (json_int_t)stats.failed           },
        {"steps",             (json_int_t)stats.steps            },
        {"prompt_tokens",     (json_int_t)stats.prompt_tokens    },
        {"completion_tokens", (json_int_t)stats.completion_tokens},
        {"pages_used",        stats.pages_used                   },
        {"pages_total",       stats.pages_total                  },
        {"engine_restarts",   (json_int_t)engine.restarts        },
    };
    json_object_set_new(health, "status", json_string(engine.up ? "ok" : "restarting"));
    if (!engine.up) {
        json_object_set_new(health, "reason", es_json_text(engine.reason, strlen(engine.reason)));
        json_object_set_new(health, "down_seconds", json_real(engine.seconds));
        es_http_add_header(connection, "Retry-After", "2");
    }
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        json_object_set_new(health, counters[i].name, json_integer(counters[i].value));
    es_server_reply_json(connection, engine.up ? 200 : 503, health);
}

/* ---- /metrics ---- */

/* A label's value: backslash, quote and line break are escaped. */
static void put_label(es_text *out, const char *name, const char *value)
{
    es_text_printf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            es_text_puts(out, "\\n");
        else if (*value == '\\' || *value == '"')
            es_text_printf(out, "\\%c", *value);
        else
            es_text_putc(out, *value);
    }
    es_text_putc(out, '"');
}

static void put_replies(const es_server *server, es_text *out)
{
    es_metrics_family(out, "evenshare_http_replies_total", "counter", "Replies to requests of any kind, by HTTP status.");
    for (int status = 0; status < ES_HTTP_STATUSES; status++)
        if (server->http.replies[status])
            es_text_printf(out, "evenshare_http_replies_total{code=\"%d\"} %" PRIu64 "\n", status,
                           server->http.replies[status]);
}

static void put_engine(es_server *server, const es_engine_stats *stats, es_text *out)
{
    const es_backend_health engine = look_at_engine(server);
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"evenshare_engine_up",           "gauge",   "1 while there is an engine, 0 while it is started anew.",    engine.up                   },
        {"evenshare_engine_restarts_total", "counter", "How often the engine died or was given up, and came back.",
         (double)engine.restarts                                                                                                               },
        {"evenshare_requests_running",    "gauge",   "Sequences in the engine that have a place.",                 stats->running              },
        {"evenshare_requests_waiting",    "gauge",   "Sequences that wait for a place.",                           stats->waiting              },
        {"evenshare_requests_open",       "gauge",   "Requests for an answer that have not ended.",                (double)server->answer_count},
        {"evenshare_connections",         "gauge",   "Open connections.",                                          (double)server->http.count  },
        {"evenshare_kv_pages_held",       "gauge",   "KV pages of sequences; the rest of those used is the prefix cache's.",
         (double)stats->pages_held                                                                                                             },
        {"evenshare_states_used",         "gauge",   "Recurrent states of sequences and of the prefix cache.",     stats->states_used          },
        {"evenshare_states_total",        "gauge",   "Recurrent states in all; 0: the model has none.",            stats->states_total         },
        {"evenshare_preemptions_total",   "counter", "Times that a sequence was moved out for an older one.",      (double)stats->preemptions  },
        {"evenshare_budget_overruns_total", "counter", "Steps that took longer than their budget while somebody generated.",
         (double)stats->budget_overruns                                                                                                        },
        {"evenshare_kv_pages_used",       "gauge",   "KV pages that hold tokens.",                                 (double)stats->pages_used   },
        {"evenshare_kv_pages_total",      "gauge",   "KV pages in all.",                                           (double)stats->pages_total  },
        {"evenshare_steps_total",         "counter", "Engine steps.",                                              (double)stats->steps        },
        {"evenshare_last_step_seconds",   "gauge",   "What the last step took.",                                   stats->last_step_seconds    },
        {"evenshare_step_budget_seconds", "gauge",   "What a step may take while someone generates; 0: no bound.",
         stats->step_budget_seconds                                                                                                            },
        {"evenshare_start_time_seconds",  "gauge",   "When the server started, in seconds since 1970.",            (double)server->started     },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        es_metrics_family(out, rows[i].name, rows[i].type, rows[i].help);
        es_text_printf(out, "%s %.15g\n", rows[i].name, rows[i].value);
    }
    es_metrics_family(out, "evenshare_tokens_total", "counter",
                      "Tokens by kind: prompt (computed), cached (not computed), generated, recomputed (after being moved out).");
    es_text_printf(out,
                   "evenshare_tokens_total{kind=\"prompt\"} %" PRIu64 "\nevenshare_tokens_total{kind=\"cached\"} %" PRIu64
                   "\nevenshare_tokens_total{kind=\"generated\"} %" PRIu64
                   "\nevenshare_tokens_total{kind=\"recomputed\"} %" PRIu64 "\n",
                   stats->prompt_tokens, (uint64_t)atomic_load(&server->metrics.cached_tokens), stats->completion_tokens,
                   stats->recomputed_tokens);
    es_metrics_family(out, "evenshare_sequences_ended_total", "counter", "Sequences that the engine ended, by how.");
    es_text_printf(out,
                   "evenshare_sequences_ended_total{how=\"finished\"} %" PRIu64
                   "\nevenshare_sequences_ended_total{how=\"cancelled\"} %" PRIu64
                   "\nevenshare_sequences_ended_total{how=\"failed\"} %" PRIu64 "\n",
                   stats->finished, stats->cancelled, stats->failed);
}

/* The engine counts its own steps, each of them. */
static void put_steps(const es_engine_stats *stats, es_text *out)
{
    _Static_assert((int)ES_STEP_BUCKETS == (int)ES_HISTOGRAM_BOUNDS + 1, "the same bounds");
    es_histogram steps = {.nanoseconds = (uint64_t)(stats->all_steps_seconds * 1e9)};
    for (int i = 0; i < ES_STEP_BUCKETS; i++) atomic_init(&steps.bucket[i], stats->step_bucket[i]);
    es_histogram_write(&steps, "evenshare_step_seconds", "Engine steps.", out);
}

static void put_cache(const es_engine_stats *stats, es_text *out)
{
    es_metrics_family(out, "evenshare_cache_bytes", "gauge", "Memory in use, by what and whose: of sequences, or kept to go on from.");
    const uint64_t held = (uint64_t)stats->pages_held * stats->page_bytes, used = (uint64_t)stats->pages_used * stats->page_bytes;
    es_text_printf(out,
                   "evenshare_cache_bytes{what=\"pages\",whose=\"sequences\"} %" PRIu64
                   "\nevenshare_cache_bytes{what=\"pages\",whose=\"cache\"} %" PRIu64
                   "\nevenshare_cache_bytes{what=\"states\",whose=\"both\"} %" PRIu64 "\n",
                   held, used > held ? used - held : 0, (uint64_t)stats->states_used * stats->state_bytes);
    es_metrics_family(out, "evenshare_cache_lookups_total", "counter",
                      "Prompts of which something (hit) or nothing (miss) was found in the prefix cache.");
    es_text_printf(out,
                   "evenshare_cache_lookups_total{result=\"hit\"} %" PRIu64 "\nevenshare_cache_lookups_total{result=\"miss\"} %" PRIu64
                   "\n",
                   stats->cache_hits, stats->cache_misses);
    es_metrics_family(out, "evenshare_cache_disk_pieces_total", "counter",
                      "Pages and states of the prefix cache in --cache-dir: read at the start, written, not written.");
    es_text_printf(out,
                   "evenshare_cache_disk_pieces_total{what=\"read\"} %" PRIu64
                   "\nevenshare_cache_disk_pieces_total{what=\"written\"} %" PRIu64
                   "\nevenshare_cache_disk_pieces_total{what=\"failed\"} %" PRIu64 "\n",
                   stats->disk_read, stats->disk_written, stats->disk_failed);
}

void es_serve_metrics(es_server *server, es_http_connection *connection)
{
    const es_engine_stats stats = server->backend.stats(server->backend.self);
    const es_backend_info *info = server->backend.info(server->backend.self);
    es_text out = {0};
    es_metrics_family(&out, "evenshare_info", "gauge", "Always 1; its labels say what is served.");
    es_text_puts(&out, "evenshare_info{");
    put_label(&out, "model", server->api.alias);
    es_text_putc(&out, ',');
    put_label(&out, "fingerprint", info->fingerprint ? info->fingerprint : "");
    es_text_puts(&out, ",version=\"" ES_VERSION "\"} 1\n");
    put_engine(server, &stats, &out);
    put_steps(&stats, &out);
    put_cache(&stats, &out);
    put_replies(server, &out);
    es_metrics_write(&server->metrics, &out);
    es_http_reply(connection, 200, "text/plain; version=0.0.4; charset=utf-8", out.data ? out.data : "", out.bytes);
    es_text_free(&out);
}

/* ---- /slots ---- */

static json_t *slot_json(const es_server *server, const es_answer *answer, size_t index)
{
    const es_choice *choice = index < answer->choice_count ? &answer->choices[index] : NULL;
    json_t *slot = json_object();
    const char *state = "reading";
    int64_t prompt = 0, done = 0, made = 0, most = -1;
    if (choice) {
        const es_request request = es_call_request(&answer->call, index);
        prompt = (int64_t)request.prompt_count;
        made = choice->tokens;
        most = request.max_tokens;
        done = made ? prompt : choice->prompt_done;
        state = choice->moved_out ? "moved out" : made ? "generating" : done ? "prompt" : "waiting";
    }
    json_object_set_new(slot, "id", json_string(answer->id));
    json_object_set_new(slot, "choice", json_integer((json_int_t)index));
    json_object_set_new(slot, "state", json_string(state));
    json_object_set_new(slot, "is_processing", json_true());
    json_object_set_new(slot, "stream", json_boolean(choice && answer->call.stream));
    json_object_set_new(slot, "prompt_tokens", json_integer((json_int_t)prompt));
    json_object_set_new(slot, "prompt_tokens_done", json_integer((json_int_t)done));
    json_object_set_new(slot, "generated_tokens", json_integer((json_int_t)made));
    json_object_set_new(slot, "max_tokens", json_integer((json_int_t)most));
    json_object_set_new(slot, "age_seconds", json_real((double)(es_metrics_now(&server->metrics) - answer->began) * 1e-9));
    return slot;
}

void es_serve_slots(es_server *server, es_http_connection *connection)
{
    json_t *slots = json_array();
    for (size_t b = 0; b < ES_ANSWER_BUCKETS; b++) {
        for (const es_answer *answer = server->answers[b]; answer; answer = answer->next) {
            const size_t count = answer->choice_count ? answer->choice_count : 1;
            for (size_t i = 0; i < count && json_array_size(slots) < SLOTS_MAX; i++)
                if (!answer->choice_count || !answer->choices[i].ended)
                    json_array_append_new(slots, slot_json(server, answer, i));
        }
    }
    es_server_reply_json(connection, 200, slots);
}

/* pull.c: `evenshare pull`, `list` and `rm`: models by name. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "evenshare/status.h"
#include "hub/pull.h"
#include "hub/store.h"

typedef struct settings {
    const char *name, *endpoint;
    bool quiet, json;
} settings;

#define FIELD(name) offsetof(settings, name)
#define NAME_ROW                                                                                                              \
    {                                                                                                                         \
        "model", 'm', ES_OPTION_TEXT, "hf:ORG/NAME[:FILE]", FIELD(name),                                                      \
            .positional = true, .typed = true, .help = "the model; FILE is a file's name or a quantisation like Q8_0"                        \
    }
static const es_option pull_rows[] = {
    NAME_ROW,
    {"endpoint",       0, ES_OPTION_TEXT, "URL", FIELD(endpoint), .fallback = ES_HUB_ENDPOINT, .environment = "HF_ENDPOINT",
      .help = "the hub, or a mirror of it"},
    {"quiet",  'q', ES_OPTION_FLAG, NULL, FIELD(quiet), .help = "no progress"},
    {0}
};
static const es_option list_rows[] = {
    {"json",          0, ES_OPTION_FLAG, NULL, FIELD(json), .help = "print a JSON array"},
    {0}
};
static const es_option rm_rows[] = {NAME_ROW, {0}};
#undef NAME_ROW
#undef FIELD
static const es_option_group pull_groups[] = {
    {NULL, pull_rows, 0},
    {0  }
};
static const es_option_group list_groups[] = {
    {NULL, list_rows, 0},
    {0  }
};
static const es_option_group rm_groups[] = {
    {NULL, rm_rows, 0},
    {0  }
};

/* "3.4 GB": for people, in powers of ten as hubs count. */
static void put_size(char out[16], int64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double size = (double)bytes;
    int unit = 0;
    for (; size >= 1000 && unit < 4; unit++) size /= 1000;
    snprintf(out, 16, "%.*f %s", unit && size < 100 ? 1 : 0, size, units[unit]);
}

/* ---- pull ---- */

typedef struct view {
    const char *endpoint;
    const es_hub_name *name;
    bool terminal, quiet;
    const es_hub_file *file; /* whose line stands on the terminal */
    es_hub_phase phase;
    struct timespec began;
    int64_t from; /* bytes that were there when the phase began */
} view;

static double seconds_since(const struct timespec *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - t->tv_sec) + 1e-9 * (double)(now.tv_nsec - t->tv_nsec);
}

static void show_list(const view *v, const es_hub_listing *listing)
{
    int64_t sum = 0;
    int count = 0;
    char size[16];
    for (size_t i = 0; i < listing->count; i++)
        if (listing->files[i].wanted) sum += listing->files[i].bytes, count++;
    put_size(size, sum);
    fprintf(stderr, "hf:%s/%s: %d file%s, %s\n", v->name->org, v->name->repo, count, count == 1 ? "" : "s", size);
    fprintf(stderr, "licence: %s; its terms: %s/%s/%s\n", listing->licence[0] ? listing->licence : "not stated", v->endpoint,
            v->name->org, v->name->repo);
}

static void show_line(view *v, es_hub_phase phase, const es_hub_file *file, int64_t bytes)
{
    if (v->file != file || v->phase != phase) {
        v->file = file;
        v->phase = phase;
        v->from = bytes;
        clock_gettime(CLOCK_MONOTONIC, &v->began);
    }
    char all[16], rate[16];
    put_size(all, file->bytes);
    const double seconds = seconds_since(&v->began);
    put_size(rate, seconds > 0.2 ? (int64_t)((double)(bytes - v->from) / seconds) : 0);
    const int percent = file->bytes ? (int)(100 * (double)bytes / (double)file->bytes) : 100;
    if (phase == ES_HUB_KEPT)
        fprintf(stderr, "%s%s: %s%s\n", v->terminal ? "\r\033[K" : "", file->name, all, v->terminal ? "" : ", kept");
    else if (v->terminal)
        fprintf(stderr, "\r\033[K%s: %s%d %% of %s, %s/s", file->name, phase == ES_HUB_CHECKING ? "checking, " : "", percent,
                all, rate);
}

static void on_progress(void *self, es_hub_phase phase, const es_hub_listing *listing, const es_hub_file *file, int64_t bytes)
{
    view *v = self;
    if (phase == ES_HUB_LISTED)
        show_list(v, listing);
    else if (!v->quiet)
        show_line(v, phase, file, bytes);
}

static int pull(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_pull, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (!s.name) return es_command_refuse(&es_command_pull, "name a model: evenshare pull hf:ORG/NAME");
    es_hub_name name;
    es_status status = es_hub_name_parse(s.name, &name);
    view v = {.endpoint = s.endpoint, .name = &name, .terminal = isatty(STDERR_FILENO), .quiet = s.quiet};
    const es_hub_options options = {s.endpoint, getenv("HF_TOKEN"), on_progress, &v};
    if (status == ES_OK) status = es_hub_pull(&name, &options);
    if (v.terminal && v.phase != ES_HUB_KEPT && v.file) fputc('\n', stderr);
    char *path;
    if (status == ES_OK) status = es_hub_find(&name, &path);
    if (status != ES_OK) return es_command_fail(&es_command_pull, status);
    puts(path);
    free(path);
    return 0;
}

const es_command es_command_pull = {
    "pull", "fetch a model from a hub: hf:ORG/NAME, or hf:ORG/NAME:Q8_0",
    "Fetches a GGUF file (Q4_K_M or the next best, unless FILE says which; all parts of a split one), or, where there is "
    "none, "
    "the safetensors with their configuration, and prints the path. Every command takes the name afterwards: "
    "evenshare serve -m hf:ORG/NAME.\n\n"
    "What breaks off goes on where it was when the command is given again. Each file is compared with the digest that the hub "
    "lists. The licence is shown and kept in evenshare.json beside the files.\n\n"
    "HF_TOKEN holds a token for what is not open to everyone, HF_ENDPOINT the address of a mirror, ES_MODELS the folder to "
    "put "
    "models into [$XDG_DATA_HOME/evenshare/models or ~/.local/share/evenshare/models].",
    pull_groups, pull};

/* ---- list ---- */

static bool is_weights(const char *name)
{
    return strstr(name, ".gguf") || strstr(name, ".safetensors");
}

static json_t *model_json(const es_hub_name *name, const es_hub_listing *listing)
{
    json_t *files = json_array(), *row = json_object();
    for (size_t i = 0; i < listing->count; i++)
        json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", listing->files[i].name, "bytes",
                                               (json_int_t)listing->files[i].bytes, "digest", listing->files[i].digest));
    char whole[2 * ES_HUB_PART + 8];
    snprintf(whole, sizeof whole, "hf:%s/%s", name->org, name->repo);
    json_object_set_new(row, "name", json_string(whole));
    json_object_set_new(row, "licence", json_string(listing->licence));
    json_object_set_new(row, "commit", json_string(listing->commit));
    json_object_set_new(row, "files", files);
    return row;
}

static void add_json(void *rows, const es_hub_name *name, const es_hub_listing *listing)
{
    json_array_append_new(rows, model_json(name, listing));
}

/* One line for each file that can be opened; the parts of a split one, and of a folder, are one. */
static void print_model(void *any, const es_hub_name *name, const es_hub_listing *listing)
{
    *(bool *)any = true;
    int64_t bytes = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const char *file = listing->files[i].name;
        if (!is_weights(file)) continue;
        bytes += listing->files[i].bytes;
        const char *next = i + 1 < listing->count ? listing->files[i + 1].name : "";
        const char *split = strstr(file, "-of-");
        const size_t prefix = split ? (size_t)(split - file) - 5 : 0;
        const bool gguf = strstr(file, ".gguf") != NULL;
        if ((split && strncmp(file, next, prefix) == 0) || (!gguf && strstr(next, ".safetensors"))) continue;
        char size[16];
        put_size(size, bytes);
        printf("hf:%s/%s%s%s  %s  %s\n", name->org, name->repo, gguf ? ":" : "", gguf ? file : "", size,
               listing->licence[0] ? listing->licence : "-");
        bytes = 0;
    }
}

static int list(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_list, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    json_t *rows = json_array();
    bool any = false;
    const es_status status = s.json ? es_hub_each(add_json, rows) : es_hub_each(print_model, &any);
    if (status == ES_OK && s.json) {
        json_dumpf(rows, stdout, JSON_INDENT(1));
        putchar('\n');
    } else if (status == ES_OK && !any)
        fputs("no model was pulled yet: evenshare pull hf:ORG/NAME\n", stderr);
    json_decref(rows);
    return status == ES_OK ? 0 : es_command_fail(&es_command_list, status);
}

const es_command es_command_list = {"list", "the models that were pulled: name, size, licence", NULL, list_groups, list};

/* ---- rm ---- */

static int rm(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_rm, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (!s.name) return es_command_refuse(&es_command_rm, "name a model (evenshare list shows them)");
    es_hub_name name;
    int64_t bytes = 0;
    es_status status = es_hub_name_parse(s.name, &name);
    if (status == ES_OK) status = es_hub_remove(&name, &bytes);
    if (status != ES_OK) return es_command_fail(&es_command_rm, status);
    char size[16];
    put_size(size, bytes);
    es_log(ES_LOG_NOTICE, "%s is gone, %s", s.name, size);
    return 0;
}

const es_command es_command_rm = {
    "rm", "remove a model that was pulled",
    "Removes what evenshare pull has fetched: all of the model's files, or the one that is named. Nothing else is touched.",
    rm_groups, rm};

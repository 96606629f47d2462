/* store.c: see store.h. */
#include "hub/store.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

#define RECORD "evenshare.json"
enum { RECORD_MAX = 4 << 20 };

static es_status take_text(es_text *text, char **path)
{
    if (text->failed) {
        es_text_free(text);
        return es_fail(ES_NO_MEMORY, "no memory for a path");
    }
    *path = text->data;
    return ES_OK;
}

es_status es_hub_root(char **path)
{
    const char *own = getenv("ES_MODELS"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    es_text text = {0};
    if (own && *own)
        es_text_puts(&text, own);
    else if (data && data[0] == '/')
        es_text_printf(&text, "%s/evenshare/models", data);
    else if (home && home[0] == '/')
        es_text_printf(&text, "%s/.local/share/evenshare/models", home);
    else
        return es_fail(ES_NOT_FOUND, "there is no place for models: set ES_MODELS to a folder");
    return take_text(&text, path);
}

es_status es_hub_folder(const es_hub_name *name, char **path)
{
    char *root;
    ES_TRY(es_hub_root(&root));
    es_text text = {0};
    es_text_printf(&text, "%s/%s/%s", root, name->org, name->repo);
    free(root);
    return take_text(&text, path);
}

/* ---- the record ---- */

es_status es_hub_record_read(const char *folder, es_hub_listing *listing)
{
    *listing = (es_hub_listing){.count = 0};
    char *path = es_path_join(folder, RECORD), *text;
    size_t bytes;
    const es_status status = path ? es_file_read(path, RECORD_MAX, &text, &bytes) : es_fail(ES_NO_MEMORY, "no memory");
    free(path);
    ES_TRY(status);
    const es_status read = es_hub_listing_read(text, bytes, listing);
    free(text);
    if (read != ES_OK) return es_fail_within(read, "%s/" RECORD, folder);
    for (size_t i = 0; i < listing->count; i++) listing->files[i].wanted = true;
    return ES_OK;
}

/* The record has the shape of the hub's own listing, so that one reader serves both. */
static json_t *file_json(const es_hub_file *file)
{
    json_t *row = json_object();
    json_object_set_new(row, "rfilename", json_string(file->name));
    json_object_set_new(row, "size", json_integer(file->bytes));
    if (file->kind == ES_DIGEST_SHA256)
        json_object_set_new(row, "lfs", json_pack("{s:s}", "sha256", file->digest));
    else
        json_object_set_new(row, "blobId", json_string(file->digest));
    return row;
}

static const es_hub_file *find_file(const es_hub_listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->count; i++)
        if (listing->files[i].wanted && strcmp(listing->files[i].name, name) == 0) return &listing->files[i];
    return NULL;
}

static es_status write_json(const char *folder, json_t *root)
{
    es_text path = {0}, fresh = {0};
    es_text_printf(&path, "%s/" RECORD, folder);
    es_text_printf(&fresh, "%s/" RECORD ".new", folder);
    const bool done = !path.failed && !fresh.failed && json_dump_file(root, fresh.data, JSON_INDENT(1)) == 0 &&
                      rename(fresh.data, path.data) == 0;
    es_text_free(&path);
    es_text_free(&fresh);
    return done ? ES_OK : es_fail(ES_IO, "%s/" RECORD " could not be written: %s", folder, strerror(errno));
}

static es_status write_record(const char *folder, const es_hub_name *name, const es_hub_listing *listing,
                              const es_hub_listing *earlier)
{
    json_t *rows = json_array(), *root = json_object();
    for (size_t i = 0; i < listing->count; i++)
        if (listing->files[i].wanted) json_array_append_new(rows, file_json(&listing->files[i]));
    for (size_t i = 0; i < earlier->count; i++)
        if (earlier->files[i].wanted && !find_file(listing, earlier->files[i].name))
            json_array_append_new(rows, file_json(&earlier->files[i]));
    es_text source = {0};
    es_text_printf(&source, "hf:%s/%s", name->org, name->repo);
    json_object_set_new(root, "source", json_string(source.data ? source.data : ""));
    es_text_free(&source);
    json_object_set_new(root, "sha", json_string(listing->commit));
    json_object_set_new(root, "cardData", json_pack("{s:s}", "license", listing->licence));
    json_object_set_new(root, "siblings", rows);
    const es_status status = write_json(folder, root);
    json_decref(root);
    return status;
}

es_status es_hub_record_write(const char *folder, const es_hub_name *name, const es_hub_listing *listing)
{
    es_hub_listing earlier = {.count = 0};
    const es_status read = es_hub_record_read(folder, &earlier);
    if (read != ES_OK && read != ES_NOT_FOUND) return read;
    const es_status status = write_record(folder, name, listing, &earlier);
    es_hub_listing_free(&earlier);
    return status;
}

/* ---- finding ---- */

static es_status path_of(const es_hub_listing *listing, const char *folder, char **path)
{
    const char *first = NULL; /* names are in order: the first part comes first */
    for (size_t i = 0; i < listing->count && !first; i++) {
        const size_t n = strlen(listing->files[i].name);
        if (listing->files[i].wanted && n > 5 && strcmp(listing->files[i].name + n - 5, ".gguf") == 0)
            first = listing->files[i].name;
    }
    *path = first ? es_path_join(folder, first) : strdup(folder);
    if (!*path) return es_fail(ES_NO_MEMORY, "no memory for a path");
    if (es_path_exists(*path)) return ES_OK;
    const es_status status = es_fail(ES_NOT_FOUND, "%s is gone", *path);
    free(*path);
    *path = NULL;
    return status;
}

es_status es_hub_find(const es_hub_name *name, char **path)
{
    char *folder;
    es_hub_listing record = {.count = 0};
    ES_TRY(es_hub_folder(name, &folder));
    es_status status = es_hub_record_read(folder, &record);
    if (status == ES_NOT_FOUND)
        status = es_fail(ES_NOT_FOUND, "hf:%s/%s is not on this machine: evenshare pull hf:%s/%s%s%s", name->org, name->repo,
                         name->org, name->repo, *name->file ? ":" : "", name->file);
    if (status == ES_OK) status = es_hub_listing_pick(&record, name->file);
    if (status == ES_OK) status = path_of(&record, folder, path);
    es_hub_listing_free(&record);
    free(folder);
    return status;
}

/* The names in a folder that do not begin with a dot, in order; *count of them. Owned by the caller, as is each. */
static char **list_folder(const char *path, size_t *count)
{
    struct dirent **entries = NULL;
    const int n = scandir(path, &entries, NULL, alphasort);
    char **names = calloc(n > 0 ? (size_t)n : 1, sizeof *names);
    *count = 0;
    for (int i = 0; i < n; i++) {
        if (names && entries[i]->d_name[0] != '.' && strlen(entries[i]->d_name) < ES_HUB_FILE)
            names[*count] = strdup(entries[i]->d_name);
        if (names && names[*count]) (*count)++;
        free(entries[i]);
    }
    free(entries);
    return names;
}

static void visit_one(const char *org, const char *repo,
                      void (*visit)(void *user, const es_hub_name *name, const es_hub_listing *listing), void *user)
{
    es_hub_name name = {.file = ""};
    snprintf(name.org, sizeof name.org, "%s", org);
    snprintf(name.repo, sizeof name.repo, "%s", repo);
    char *folder;
    es_hub_listing record;
    if (es_hub_folder(&name, &folder) != ES_OK) return;
    if (es_hub_record_read(folder, &record) == ES_OK) {
        visit(user, &name, &record);
        es_hub_listing_free(&record);
    }
    free(folder);
}

es_status es_hub_each(void (*visit)(void *user, const es_hub_name *name, const es_hub_listing *listing), void *user)
{
    char *root;
    ES_TRY(es_hub_root(&root));
    size_t orgs;
    char **org = list_folder(root, &orgs);
    for (size_t i = 0; i < orgs; i++) {
        char *path = es_path_join(root, org[i]);
        size_t repos = 0;
        char **repo = path ? list_folder(path, &repos) : NULL;
        for (size_t r = 0; r < repos; r++) {
            visit_one(org[i], repo[r], visit, user);
            free(repo[r]);
        }
        free(repo);
        free(path);
        free(org[i]);
    }
    free(org);
    free(root);
    return ES_OK;
}

/* ---- removing ---- */

static es_status remove_file(const char *folder, const char *name, const char *ending)
{
    es_text path = {0};
    es_text_printf(&path, "%s/%s%s", folder, name, ending);
    const bool bad = path.failed || (unlink(path.data) != 0 && errno != ENOENT);
    const es_status status = bad ? es_fail(ES_IO, "%s/%s could not be removed: %s", folder, name, strerror(errno)) : ES_OK;
    es_text_free(&path);
    return status;
}

/* The folder goes when nothing is left in it, and its owner's when that was the last one. */
static void remove_folders(const es_hub_name *name, const char *folder)
{
    char *root;
    remove_file(folder, RECORD, "");
    remove_file(folder, ".lock", "");
    if (rmdir(folder) != 0 || es_hub_root(&root) != ES_OK) return;
    char *org = es_path_join(root, name->org);
    if (org) rmdir(org);
    free(org);
    free(root);
}

static es_status remove_wanted(const es_hub_name *name, const char *folder, es_hub_listing *record, int64_t *bytes)
{
    if (*name->file) {
        /* one of several: licences and what the others need stay */
        ES_TRY(es_hub_listing_pick(record, name->file));
        for (size_t i = 0; i < record->count; i++)
            if (!strstr(record->files[i].name, ".gguf")) record->files[i].wanted = false;
    }
    size_t left = 0;
    for (size_t i = 0; i < record->count; i++) {
        es_hub_file *file = &record->files[i];
        if (file->wanted) {
            ES_TRY(remove_file(folder, file->name, ""));
            ES_TRY(remove_file(folder, file->name, ".part"));
            *bytes += file->bytes;
        } else
            left += strstr(file->name, ".gguf") != NULL;
        file->wanted = !file->wanted;
    }
    if (*name->file && left) {
        const es_hub_listing nothing = {.count = 0};
        return write_record(folder, name, record, &nothing);
    }
    for (size_t i = 0; i < record->count; i++)
        if (record->files[i].wanted) ES_TRY(remove_file(folder, record->files[i].name, ""));
    remove_folders(name, folder);
    return ES_OK;
}

/* A pull that never ended has written no record. */
static es_status remove_leftovers(const es_hub_name *name, const char *folder)
{
    size_t count, removed = 0;
    char **names = list_folder(folder, &count);
    for (size_t i = 0; i < count; i++) {
        char plain[ES_HUB_FILE];
        snprintf(plain, sizeof plain, "%s", names[i]);
        char *part = strstr(plain, ".part");
        if (part && !part[5]) *part = '\0';
        if (es_hub_file_is_fit(plain) && remove_file(folder, names[i], "") == ES_OK) removed++;
        free(names[i]);
    }
    free(names);
    if (!removed) return es_fail(ES_NOT_FOUND, "hf:%s/%s is not on this machine (see evenshare list)", name->org, name->repo);
    remove_folders(name, folder);
    return ES_OK;
}

es_status es_hub_remove(const es_hub_name *name, int64_t *bytes)
{
    char *folder;
    es_hub_listing record = {.count = 0};
    *bytes = 0;
    ES_TRY(es_hub_folder(name, &folder));
    es_status status = es_hub_record_read(folder, &record);
    if (status == ES_OK)
        status = remove_wanted(name, folder, &record, bytes);
    else if (status == ES_NOT_FOUND)
        status = remove_leftovers(name, folder);
    es_hub_listing_free(&record);
    free(folder);
    return status;
}

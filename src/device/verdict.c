/* verdict.c: the list of verdicts, its key, and the file that keeps it. */
#include "device/verdict.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/build.h"
#include "base/file.h"

static const char *const names[ES_VERDICTS] = {"unknown", "trusted", "wrong", "crashed", "hung", "absent", "never run here"};

const char *es_verdict_name(es_verdict verdict)
{
    return verdict >= 0 && verdict < ES_VERDICTS ? names[verdict] : names[ES_VERDICT_UNKNOWN];
}

/* --- the key --- */

/* The value of a "name : value" line of /proc/cpuinfo's first processor; "?" when there is none. */
static void read_cpu_line(const char *text, const char *name, char *value, size_t room)
{
    snprintf(value, room, "?");
    const size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, name, length) != 0 || !strchr("\t :", line[length])) continue;
        const char *colon = strchr(line, ':');
        const char *end = colon ? strchr(colon, '\n') : NULL;
        if (!end) return;
        for (colon++; *colon == ' '; colon++) continue;
        snprintf(value, room, "%.*s", (int)(end - colon), colon);
        return;
    }
}

static void name_device(es_verdicts *v)
{
    char text[4096] = "", vendor[24], family[8], model[8], name[64], stepping[8], microcode[24];
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    read_cpu_line(text, "vendor_id", vendor, sizeof vendor), read_cpu_line(text, "cpu family", family, sizeof family);
    read_cpu_line(text, "model", model, sizeof model), read_cpu_line(text, "model name", name, sizeof name);
    read_cpu_line(text, "stepping", stepping, sizeof stepping), read_cpu_line(text, "microcode", microcode, sizeof microcode);
    snprintf(v->device, sizeof v->device, "%s (%s %s/%s/%s)", name, vendor, family, model, stepping);
    struct utsname system;
    const bool known = uname(&system) == 0;
    snprintf(v->driver, sizeof v->driver, "Linux %.60s, microcode %s", known ? system.release : "?", microcode);
}

es_status es_verdicts_open(es_verdicts **verdicts)
{
    es_verdicts *v = calloc(1, sizeof *v);
    if (!v) return es_fail(ES_NO_MEMORY, "no memory for a list of verdicts");
    name_device(v);
    snprintf(v->build, sizeof v->build, "%s", es_build_name());
    *verdicts = v;
    return ES_OK;
}

/* --- rows --- */

void es_verdict_kernel(char kernel[64], const char *set, const char *operation, const char *type)
{
    snprintf(kernel, 64, "%s/%s%s%s", set, operation, type ? "/" : "", type ? type : "");
}

const es_verdict_row *es_verdicts_find(const es_verdicts *v, const char *kernel)
{
    for (int i = 0; i < v->count; i++)
        if (strcmp(v->row[i].kernel, kernel) == 0) return &v->row[i];
    return NULL;
}

es_verdict es_verdict_of(const es_verdicts *v, const char *set, const char *operation, const char *type)
{
    char kernel[64];
    es_verdict_kernel(kernel, set, operation, type);
    const es_verdict_row *row = es_verdicts_find(v, kernel);
    return row ? row->verdict : ES_VERDICT_UNKNOWN;
}

void es_verdicts_put(es_verdicts *v, const es_verdict_row *row)
{
    int at = 0;
    while (at < v->count && strcmp(v->row[at].kernel, row->kernel) != 0) at++;
    if (at == ES_VERDICT_ROWS) return;
    v->row[at] = *row;
    if (at == v->count) v->count++;
}

/* --- the file --- */

/* Names the file; what it is really about stands inside. */
static uint64_t hash_key(const es_verdicts *v)
{
    uint64_t hash = 0xCBF29CE484222325u;
    const char *const parts[] = {v->device, v->driver, v->build};
    for (int p = 0; p < 3; p++)
        for (const char *c = parts[p];; c++) {
            hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
            if (!*c) break;
        }
    return hash;
}

static es_status name_file(const es_verdicts *v, char *folder, size_t room, char *path, size_t path_room)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/') n = snprintf(folder, room, "%s/evenshare", cache);
    else if (home && home[0] == '/') n = snprintf(folder, room, "%s/.cache/evenshare", home);
    if (n < 0) return es_fail(ES_NOT_FOUND, "neither XDG_CACHE_HOME nor HOME says where verdicts could be kept");
    const int m = snprintf(path, path_room, "%s/verdicts-%016" PRIx64 ".json", folder, hash_key(v));
    if (n >= (int)room || m >= (int)path_room) return es_fail(ES_INVALID, "the cache folder's name is too long");
    return ES_OK;
}

static bool same_text(const json_t *root, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text && strcmp(text, wanted) == 0;
}

static es_status take_rows(es_verdicts *v, const json_t *root)
{
    if (!same_text(root, "device", v->device) || !same_text(root, "driver", v->driver) || !same_text(root, "build", v->build))
        return es_fail(ES_NOT_FOUND, "the kept verdicts are of another machine or build");
    const json_t *kernels = json_object_get(root, "kernels");
    const char *kernel;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)kernels, kernel, value) {
        es_verdict_row row = {.speedup = json_number_value(json_object_get(value, "speedup"))};
        const char *name = json_string_value(json_object_get(value, "verdict"));
        const char *detail = json_string_value(json_object_get(value, "detail"));
        while (row.verdict < ES_VERDICTS && (!name || strcmp(name, names[row.verdict]) != 0)) row.verdict++;
        if (row.verdict == ES_VERDICTS || strlen(kernel) >= sizeof row.kernel)
            return es_fail(ES_NOT_FOUND, "the kept verdicts are damaged");
        snprintf(row.kernel, sizeof row.kernel, "%s", kernel);
        snprintf(row.detail, sizeof row.detail, "%s", detail ? detail : "");
        es_verdicts_put(v, &row);
    }
    v->device_hung = json_is_true(json_object_get(root, "device_hung"));
    return v->count ? ES_OK : es_fail(ES_NOT_FOUND, "no verdicts are kept");
}

es_status es_verdicts_load(es_verdicts *v)
{
    char folder[512], path[600];
    ES_TRY(name_file(v, folder, sizeof folder, path, sizeof path));
    char *text;
    size_t bytes;
    if (es_file_read(path, 1 << 20, &text, &bytes) != ES_OK)
        return es_fail(ES_NOT_FOUND, "no verdicts are kept; evenshare doctor finds them");
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const es_status status = take_rows(v, root);
    if (status != ES_OK) v->count = 0;
    json_decref(root);
    return status;
}

static json_t *to_json(const es_verdicts *v)
{
    json_t *kernels = json_object();
    for (int i = 0; i < v->count; i++) {
        const es_verdict_row *row = &v->row[i];
        json_object_set_new(kernels, row->kernel,
                            json_pack("{s:s,s:s,s:f}", "verdict", es_verdict_name(row->verdict), "detail", row->detail,
                                      "speedup", row->speedup));
    }
    return json_pack("{s:s,s:s,s:s,s:b,s:o}", "device", v->device, "driver", v->driver, "build", v->build, "device_hung",
                     v->device_hung, "kernels", kernels);
}

#define KEPT_SECONDS (30 * 86400)

/* Every build leaves a file: those of builds long gone go. */
static void forget_old(const char *folder)
{
    DIR *dir = opendir(folder);
    const time_t now = time(NULL);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat about;
        if (strncmp(entry->d_name, "verdicts-", 9) != 0 || fstatat(dirfd(dir), entry->d_name, &about, 0) != 0) continue;
        if (S_ISREG(about.st_mode) && now - about.st_mtime > KEPT_SECONDS) unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) closedir(dir);
}

es_status es_verdicts_save(const es_verdicts *v)
{
    char folder[512], path[600], fresh[640];
    ES_TRY(name_file(v, folder, sizeof folder, path, sizeof path));
    for (char *slash = folder + 1;; *slash++ = '/') { /* each folder on the way */
        slash = strchr(slash, '/');
        if (slash) *slash = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST)
            return es_fail(ES_IO, "%s: cannot be made: %s", folder, strerror(errno));
        if (!slash) break;
    }
    forget_old(folder);
    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    json_t *root = to_json(v);
    FILE *file = root ? fopen(fresh, "w") : NULL;
    const bool written = file && json_dumpf(root, file, JSON_INDENT(1)) == 0;
    const bool closed = file && fclose(file) == 0;
    json_decref(root);
    if (written && closed && rename(fresh, path) == 0) return ES_OK;
    const int reason = errno;
    unlink(fresh);
    return es_fail(ES_IO, "%s: cannot be written: %s", path, strerror(reason));
}

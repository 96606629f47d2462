/* name.c: see name.h. */
#include "hub/name.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-+";

bool es_hub_is_name(const char *text)
{
    return strncmp(text, "hf:", 3) == 0;
}

/* A part of a path that can only be itself. */
static bool is_plain(const char *text, size_t bytes, size_t room)
{
    return bytes > 0 && bytes < room && text[0] != '.' && text[0] != '-' && strspn(text, alphabet) >= bytes &&
           text[bytes - 1] != '.';
}

es_status es_hub_name_parse(const char *text, es_hub_name *name)
{
    memset(name, 0, sizeof *name);
    const char *org = es_hub_is_name(text) ? text + 3 : text;
    const size_t org_bytes = strcspn(org, "/");
    const char *repo = org[org_bytes] ? org + org_bytes + 1 : "";
    const size_t repo_bytes = strcspn(repo, ":");
    const char *file = repo[repo_bytes] ? repo + repo_bytes + 1 : "";
    if (!es_hub_is_name(text) || !is_plain(org, org_bytes, ES_HUB_PART) || !is_plain(repo, repo_bytes, ES_HUB_PART))
        return es_fail(ES_INVALID, "\"%.200s\" is no name of a model; one looks like hf:ORG/NAME or hf:ORG/NAME:Q4_K_M", text);
    if (repo[repo_bytes] && !is_plain(file, strlen(file), ES_HUB_FILE))
        return es_fail(ES_INVALID, "\"%.200s\": behind the colon stands a file's name or a quantisation, like Q4_K_M", text);
    memcpy(name->org, org, org_bytes);
    memcpy(name->repo, repo, repo_bytes);
    memcpy(name->file, file, strlen(file));
    return ES_OK;
}

bool es_hub_file_is_fit(const char *file)
{
    static const char *const endings[] = {".gguf", ".safetensors", ".json", ".jinja", ".txt", ".model"};
    static const char *const whole[] = {"LICENSE", "LICENSE.md", "LICENCE", "NOTICE"};
    const size_t bytes = strlen(file);
    if (!is_plain(file, bytes, ES_HUB_FILE)) return false;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(file, whole[i]) == 0) return true;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n = strlen(endings[i]);
        if (bytes > n && strcmp(file + bytes - n, endings[i]) == 0) return true;
    }
    return false;
}

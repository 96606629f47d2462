/* guard.c: see guard.h. */
#include "serve/guard.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

bool es_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcasecmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    return false;
}

/* The name in "name", "name:port" or "[v6]:port"; false when it is none of them. */
static bool host_name(const char *host, char *name, size_t room)
{
    size_t n;
    const char *rest;
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        if (!end) return false;
        n = (size_t)(end - host) - 1;
        rest = end + 1;
        host++;
    } else {
        n = strcspn(host, ":");
        rest = host + n;
    }
    if (n == 0 || n >= room) return false;
    if (*rest == ':') {
        rest++;
        rest += strspn(rest, "0123456789");
    }
    if (*rest) return false;
    memcpy(name, host, n);
    name[n] = '\0';
    return true;
}

bool es_host_is_ours(const char *host, const char *bound)
{
    char name[256];
    if (!*host) return true; /* HTTP/1.0 without Host: no browser */
    if (!host_name(host, name, sizeof name)) return false;
    return es_is_loopback(name) || strcasecmp(name, bound) == 0;
}

bool es_origin_is_own(const char *origin, const char *host)
{
    if (!*host) return false;
    if (strncasecmp(origin, "http://", 7) == 0) return strcasecmp(origin + 7, host) == 0;
    if (strncasecmp(origin, "https://", 8) == 0) return strcasecmp(origin + 8, host) == 0;
    return false;
}

/* Looks at every byte of the offered key whatever it finds; only its length can show. */
static bool same_key(const char *key, const char *offered)
{
    const size_t n = strlen(offered), m = strlen(key);
    volatile unsigned char difference = n != m;
    for (size_t i = 0; i < n; i++) difference |= (unsigned char)(offered[i] ^ key[m ? i % m : 0]);
    return difference == 0;
}

static bool is_key(const char *offered, const char *const *keys, size_t count)
{
    bool found = false;
    for (size_t i = 0; i < count; i++) found |= same_key(keys[i], offered);
    return found;
}

bool es_has_key(const es_http_request *request, const char *const *keys, size_t count)
{
    const char *header = es_http_find_header(request, "authorization");
    if (header && strncasecmp(header, "bearer ", 7) == 0) {
        const char *offered = header + 7;
        while (*offered == ' ') offered++;
        if (is_key(offered, keys, count)) return true;
    }
    header = es_http_find_header(request, "x-api-key");
    return header && is_key(header, keys, count);
}

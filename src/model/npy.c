/* npy.c: reads the header of a .npy file, which is a Python dictionary in text.
 *
 * Only what numpy writes is understood: three keys, a string, a boolean and a tuple of integers; anything else is refused. */
#include "model/npy.h"

#include <string.h>

typedef struct cursor {
    const char *path, *at, *end;
} cursor;

static es_status refuse(const cursor *c, const char *what)
{
    return es_fail(ES_BAD_FILE, "%s: %s in the .npy header; it is damaged or not written by numpy", c->path, what);
}

static void skip_spaces(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

/* The next character that is no space, if it is this one. */
static bool take(cursor *c, char wanted)
{
    skip_spaces(c);
    if (c->at >= c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

/* A quoted string without escapes, into `text`. */
static es_status take_string(cursor *c, char *text, size_t room)
{
    skip_spaces(c);
    if (c->at >= c->end || (*c->at != '\'' && *c->at != '"')) return refuse(c, "no string where one belongs");
    const char quote = *c->at++;
    size_t n = 0;
    for (; c->at < c->end && *c->at != quote; c->at++) {
        if (n + 1 >= room || *c->at == '\\' || *c->at < ' ' || *c->at > '~') return refuse(c, "a strange string");
        text[n++] = *c->at;
    }
    if (!take(c, quote)) return refuse(c, "a string without an end");
    text[n] = '\0';
    return ES_OK;
}

static es_status take_word(cursor *c, bool *value)
{
    static const struct {
        const char *word;
        size_t length;
        bool value;
    } words[] = {{"True", 4, true}, {"False", 5, false}};
    skip_spaces(c);
    for (int i = 0; i < 2; i++) {
        if ((size_t)(c->end - c->at) < words[i].length || memcmp(c->at, words[i].word, words[i].length) != 0) continue;
        c->at += words[i].length;
        *value = words[i].value;
        return ES_OK;
    }
    return refuse(c, "neither True nor False after fortran_order");
}

static es_status take_integer(cursor *c, int64_t *value)
{
    skip_spaces(c);
    int64_t v = 0;
    const char *start = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *c->at - '0', &v))
            return refuse(c, "an axis too long");
    if (c->at == start) return refuse(c, "no number in the shape");
    *value = v;
    return ES_OK;
}

static es_status take_shape(cursor *c, es_npy *npy)
{
    if (!take(c, '(')) return refuse(c, "no tuple after shape");
    npy->rank = 0;
    while (!take(c, ')')) {
        if (npy->rank == ES_NPY_RANK) return refuse(c, "more than 32 axes");
        ES_TRY(take_integer(c, &npy->shape[npy->rank++]));
        if (take(c, ')')) return ES_OK;
        if (!take(c, ',')) return refuse(c, "no comma in the shape");
    }
    return ES_OK;
}

static es_status check_type(const cursor *c, const char *descr, es_npy *npy)
{
    const char order = descr[0], kind = order ? descr[1] : 0;
    const char *size = kind ? descr + 2 : "";
    npy->kind = kind;
    npy->bytes = size[0] >= '1' && size[0] <= '8' && size[1] == '\0' ? size[0] - '0' : 0;
    const bool power = npy->bytes == 1 || npy->bytes == 2 || npy->bytes == 4 || npy->bytes == 8;
    const bool known = (kind == 'f' && npy->bytes >= 2) || kind == 'i' || kind == 'u' || (kind == 'b' && npy->bytes == 1);
    if (!power || !known || (order != '<' && order != '|' && order != '='))
        return es_fail(ES_UNSUPPORTED, "%s: items of type %s; floats (f2, f4, f8), integers and booleans are read, all "
                       "little-endian", c->path, descr);
    return ES_OK;
}

static es_status take_entry(cursor *c, es_npy *npy, unsigned *seen)
{
    char key[24], descr[24];
    ES_TRY(take_string(c, key, sizeof key));
    if (!take(c, ':')) return refuse(c, "no colon after a key");
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    int which = 0;
    while (which < 3 && strcmp(key, keys[which]) != 0) which++;
    if (which == 3 || *seen & 1u << which) return refuse(c, "an unknown or repeated key");
    *seen |= 1u << which;
    if (which == 1) return take_word(c, &npy->fortran);
    if (which == 2) return take_shape(c, npy);
    skip_spaces(c);
    if (c->at < c->end && *c->at == '[')
        return es_fail(ES_UNSUPPORTED, "%s: an array of records; arrays of plain numbers are read", c->path);
    ES_TRY(take_string(c, descr, sizeof descr));
    return check_type(c, descr, npy);
}

es_status es_npy_parse(const char *path, const unsigned char *data, size_t bytes, es_npy *npy)
{
    if (bytes < 10 || memcmp(data, "\x93NUMPY", 6) != 0) return es_fail(ES_BAD_FILE, "%s: not a .npy file", path);
    const int version = data[6];
    if (version < 1 || version > 3) return es_fail(ES_UNSUPPORTED, "%s: .npy version %d; 1 to 3 are read", path, version);
    const size_t prefix = version == 1 ? 10 : 12;
    if (bytes < prefix) return es_fail(ES_BAD_FILE, "%s: cut short in the .npy header", path);
    size_t length = (size_t)data[8] | (size_t)data[9] << 8;
    if (version > 1) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > bytes - prefix) return es_fail(ES_BAD_FILE, "%s: the .npy header claims %zu bytes", path, length);
    cursor c = {path, (const char *)data + prefix, (const char *)data + prefix + length};

    es_npy made = {0};
    unsigned seen = 0;
    if (!take(&c, '{')) return refuse(&c, "no dictionary");
    while (!take(&c, '}')) {
        ES_TRY(take_entry(&c, &made, &seen));
        if (take(&c, '}')) break;
        if (!take(&c, ',')) return refuse(&c, "no comma between entries");
    }
    skip_spaces(&c);
    if (seen != 7 || c.at != c.end) return refuse(&c, "too little or too much");

    made.items = 1;
    for (int i = 0; i < made.rank; i++)
        if (__builtin_mul_overflow(made.items, made.shape[i], &made.items)) return refuse(&c, "a shape too large");
    const size_t room = bytes - prefix - length;
    if ((uint64_t)made.items > room / (size_t)made.bytes)
        return es_fail(ES_BAD_FILE, "%s: %" PRId64 " items of %d bytes need more than the %zu bytes that are there; "
                       "it is cut short", path, made.items, made.bytes, room);
    made.data = data + prefix + length;
    *npy = made;
    return ES_OK;
}

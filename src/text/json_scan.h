/* json_scan.h: is this text JSON, and where does it end? One byte at a time, nothing built, nothing kept.
 *
 *   es_json_scan scan = {0};
 *   while (i < bytes && (seen = es_json_scan_byte(&scan, text[i])) == ES_JSON_MORE) i++;
 *
 * A model's answer is searched for calls while it is written: what follows "{" may be JSON, and must be let go at the first
 * byte that says it is not. Strict as RFC 8259, but for what no byte tells: UTF-8 and duplicate keys. */
#ifndef ES_TEXT_JSON_SCAN_H
#define ES_TEXT_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum { ES_JSON_SCAN_DEPTH = 64 };

/** Zero before the first byte. */
typedef struct es_json_scan {
    uint8_t state, depth, hex;
    uint8_t key;         /* the string at hand names a member */
    uint64_t arrays;     /* bit d: the container at depth d + 1 is an array */
    const char *literal; /* what is left of true, false or null */
} es_json_scan;

typedef enum es_json_seen {
    ES_JSON_MORE,   /**< so far it is the beginning of one */
    ES_JSON_WHOLE,  /**< this byte closed it */
    ES_JSON_BROKEN, /**< this byte cannot stand here, or nesting passed ES_JSON_SCAN_DEPTH */
} es_json_seen;

/** The next byte of an object or array (nothing else ends by itself); white space may come first. */
es_json_seen es_json_scan_byte(es_json_scan *scan, char c);

/** A member of the object that `text` is (checked before, by the scan): its value's bytes, or NULL where there is none. Names
 *  written with escapes are not found. */
const char *es_json_slice(const char *text, size_t bytes, const char *name, size_t *value_bytes);

#endif

/* error.h: raising and forwarding failures inside the engine.
 *
 *   if (end > file->bytes)
 *       return es_fail(ES_BAD_FILE, "%s: tensor %s ends at byte %" PRIu64 ", the file has %zu; download it again", ...);
 *   ES_TRY(es_file_map(path, &file));
 *
 * es_fail() is called once, where the fault is found; everyone above forwards the code with ES_TRY and adds nothing. */
#ifndef ES_BASE_ERROR_H
#define ES_BASE_ERROR_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evenshare/status.h"

/** Record a sentence for this thread (at most 1,023 bytes, cut on a character boundary). Called through es_fail(). */
void es_error_record(const char *format, ...) __attribute__((format(printf, 1, 2), cold));
/** Put "prefix: " before the recorded sentence. Called through es_fail_within(). */
void es_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

/** es_fail(status, format, ...): record why, and be the status. A macro, so that the compiler sees which code it is. */
#define es_fail(status, ...) (es_error_record(__VA_ARGS__), (es_status)(status))
/** es_fail_within(status, format, ...): for a caller that knows a name the callee did not; forwards `status`. */
#define es_fail_within(status, ...) (es_error_prefix(__VA_ARGS__), (es_status)(status))

/** Forward a failure. For functions that own nothing at that point; others use a cleanup label. */
#define ES_TRY(call)                                  \
    do {                                              \
        const es_status es_try_status = (call);       \
        if (es_try_status != ES_OK) return es_try_status; \
    } while (0)

#endif

/* evenshare/status.h: how every function says whether it worked.
 *
 *   es_status st = es_model_open("model.gguf", NULL, &model);
 *   if (st != ES_OK) {
 *       fprintf(stderr, "error: %s\n", es_error_message());   // what, where, and what to do about it
 *       return es_status_exit_code(st);
 *   }
 *
 * Functions return an es_status: 0, or one of the negative codes below; results come back through the last arguments, which
 * are left untouched on failure unless a function says otherwise. The sentence behind a failure is kept per thread until
 * the next failure on that thread. */
#ifndef EVENSHARE_STATUS_H
#define EVENSHARE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** What went wrong, as a program would distinguish it. The sentence in es_error_message() is for people. */
typedef enum es_status {
    ES_OK = 0,
    ES_INVALID = -1,     /**< the caller's argument or request is wrong and can be mended */
    ES_BAD_FILE = -2,    /**< a file is damaged, cut short, or not what its name says */
    ES_UNSUPPORTED = -3, /**< well-formed, but something this engine does not do; the message names what it does */
    ES_NOT_FOUND = -4,   /**< a file, a model or a name that is not there */
    ES_NO_MEMORY = -5,   /**< an allocation failed, or a budget does not allow it */
    ES_TOO_LONG = -6,    /**< a prompt or a context that can never fit */
    ES_BUSY = -7,        /**< full for now: try again later */
    ES_IO = -8,          /**< the operating system refused a read, a write or a socket */
    ES_CANCELLED = -9,   /**< stopped because someone asked */
    ES_INTERNAL = -10,   /**< a promise inside the engine was broken: a bug */
    ES_UNAVAILABLE = -11, /**< what should answer is being started anew: try again later */
} es_status;

/** The sentence for the last failure on the calling thread; "" when there was none. Valid until the next failure. */
const char *es_error_message(void);

/** A short fixed name ("bad_file"), for logs and JSON; "unknown" for a value that is no es_status. */
const char *es_status_name(es_status status);

/** The exit code a command should end with: 0 for ES_OK, 2 for what the user can mend (invalid, bad file, unsupported, not
 *  found, too long), 1 for everything else. */
int es_status_exit_code(es_status status);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

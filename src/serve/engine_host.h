/* engine_host.h: the engine's side of a server in two processes; its other side is backend_process.h.
 *
 *   es_status status = open_everything(&backend, &info);
 *   if (status != ES_OK) return es_host_refuse(ES_CHILD_FD, status);
 *   es_host_run(ES_CHILD_FD, &backend, &info, close_engine, engine);   // until the front end closes
 *
 * The host takes requests from the socket and hands them to the backend in this process; events and figures go back. It says
 * several times a second what the engine is doing, whether or not a step ever ends. */
#ifndef ES_SERVE_ENGINE_HOST_H
#define ES_SERVE_ENGINE_HOST_H

#include "serve/backend.h"
#include "serve/child.h"

/** Whether `fd` is a socket: false when this process was not started by a front end. */
bool es_host_is_started(int fd);
/** Say that the engine is ready, and serve until the other end closes. Then stop(user) is called, after which the backend
 * sends no more events. */
es_status es_host_run(int fd, const es_backend *backend, const es_engine_info *info, void (*stop)(void *user), void *user);
/** Say why there is no engine, with es_error_message(); returns the process's exit code. */
int es_host_refuse(int fd, es_status status);

#endif

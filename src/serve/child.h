/* child.h: a process that this program starts from its own executable, with a socket to it, and that dies with its parent.
 *
 *   char *const command[] = {"evenshare", "engine", NULL};
 *   es_child child;
 *   ES_TRY(es_child_start(command, &child));             // the child finds the other end at descriptor ES_CHILD_FD
 *   ...
 *   es_child_end(&child, 10, how, sizeof how);            // "was killed by signal 9 (Killed)"
 *
 * The child ignores SIGINT, SIGTERM and SIGHUP: a terminal or a service manager sends them to every process of a group, and it
 * is for the parent to decide when the child's work is done. It ends when the socket closes, at the latest with its parent. */
#ifndef ES_SERVE_CHILD_H
#define ES_SERVE_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

enum { ES_CHILD_FD = 3 };

typedef struct es_child {
    pid_t pid; /**< 0: none */
    int fd;    /**< this end of the socket; −1: none */
} es_child;

/** Start /proc/self/exe with these arguments, standard output closed. Call it from a thread that lives as long as the child
 * may: the child is killed when that thread ends. */
es_status es_child_start(char *const *command, es_child *child);
/** Close the socket, wait up to `seconds` for the child to end, kill it then, and say how it ended. */
void es_child_end(es_child *child, double seconds, char *how, size_t room);

#endif

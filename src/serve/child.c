/* child.c: see child.h. */
#include "serve/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define KILL_SECONDS 3.0 /* a process that a device holds in the kernel may not even die of SIGKILL */

/* Between fork and exec of a program with threads: nothing but system calls. */
static _Noreturn void become(char *const *command, int fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &ignore, NULL);
    sigaction(SIGTERM, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const int end = fcntl(fd, F_DUPFD, ES_CHILD_FD + 1); /* out of the way of what follows */
    const int nothing = open("/dev/null", O_RDWR);
    if (end < 0 || nothing < 0) _exit(127);
    dup2(nothing, STDIN_FILENO), dup2(nothing, STDOUT_FILENO);
    if (dup2(end, ES_CHILD_FD) < 0) _exit(127);
    close_range(ES_CHILD_FD + 1, ~0U, 0);
    execv("/proc/self/exe", command);
    _exit(127);
}

es_status es_child_start(char *const *command, es_child *child)
{
    int ends[2];
    *child = (es_child){.fd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return es_fail(ES_IO, "no socket to another process: %s", strerror(errno));
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) become(command, ends[1], parent);
    const int code = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return es_fail(ES_IO, "no other process can be started: %s", strerror(code));
    }
    *child = (es_child){pid, ends[0]};
    return ES_OK;
}

/* Whether it has ended within `seconds`. */
static bool reap(pid_t pid, double seconds, int *status)
{
    const es_clock clock = es_clock_monotonic();
    const uint64_t until = es_clock_now(&clock) + (uint64_t)(seconds * 1e9);
    for (useconds_t pause = 500;; pause = pause < 20000 ? pause * 2 : pause) {
        const pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid) return true;
        if (got < 0 && errno != EINTR) {
            *status = 0; /* somebody else took the status */
            return true;
        }
        if (es_clock_now(&clock) >= until) return false;
        usleep(pause);
    }
}

void es_child_end(es_child *child, double seconds, char *how, size_t room)
{
    if (room) *how = '\0';
    if (child->fd >= 0) close(child->fd);
    if (child->pid > 0) {
        int status = 0;
        bool ended = reap(child->pid, seconds, &status);
        if (!ended) {
            kill(child->pid, SIGKILL);
            ended = reap(child->pid, KILL_SECONDS, &status);
        }
        if (!ended)
            snprintf(how, room, "cannot be killed");
        else if (WIFSIGNALED(status))
            snprintf(how, room, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
            snprintf(how, room, "ended with code %d", WEXITSTATUS(status));
    }
    *child = (es_child){.fd = -1};
}

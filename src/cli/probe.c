/* probe.c: kernels in a child, one after the other, each announced before it runs.
 *
 * The child is this program, started anew (`evenshare doctor --probe avx2:0,1,2`): no lock, thread or heap of the parent is in
 * it. It writes a line before and after each kernel; when it falls silent, the parent knows which kernel it was. */
#include "cli/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/cpu/check.h"
#include "device/compare.h"
#include "device/cpu/trust.h"

enum { MOST_ROWS = 256, REAP_SECONDS = 3 };
#define GPU "cuda" /* the set of a GPU's operations */

/* --- the child --- */

/* One kernel: what the child says of it. */
static void run_row(const es_kernels *kernels, int index, bool timed)
{
    es_check_row row;
    es_compare_row gpu;
    const es_status status = kernels ? es_check_run(kernels, index, &(es_check_options){.timed = timed}, &row)
                                     : es_compare_run(ES_DEVICE_CUDA, index, &gpu);
    const bool ran = status == ES_OK, timed_it = ran && kernels && row.best_seconds > 0;
    const bool equal = ran && (kernels ? row.equal : gpu.equal), none = ran && kernels && row.cases == 0;
    const char *outcome = !ran ? "failed" : none ? "none" : equal ? "equal" : "wrong";
    printf("end %d %s %.17g %s\n", index, outcome, timed_it ? row.reference_seconds / row.best_seconds : 0,
           !ran ? es_error_message() : kernels ? row.difference : gpu.difference);
}

int es_probe_child(const char *what, bool timed)
{
    char set[16];
    const char *colon = strchr(what, ':');
    if (!colon || (size_t)(colon - what) >= sizeof set) return 2;
    snprintf(set, sizeof set, "%.*s", (int)(colon - what), what);
    es_kernels kernels;
    const bool gpu = strcmp(set, GPU) == 0;
    if (!gpu && es_kernels_of_set(set, &kernels) != ES_OK) return 2;
    for (const char *at = colon; *at;) {
        char *end;
        const long index = strtol(at + 1, &end, 10);
        if (end == at + 1 || index < 0 || index >= (gpu ? es_compare_count() : es_check_count())) return 2;
        at = end;
        printf("begin %ld\n", index);
        fflush(stdout);
        run_row(gpu ? NULL : &kernels, (int)index, timed);
        fflush(stdout);
    }
    return 0;
}

/* --- the parent --- */

typedef struct probe {
    es_verdicts *verdicts;
    const es_probe_options *options;
    const char *set;
    int pending[MOST_ROWS], count; /* indices of rows still to run, in order */
    int begun;                     /* the row that is running, or −1 */
    pid_t pid;
    int pipe;
} probe;

/* A GPU's operations carry the numeric mode with the set. */
static void name_row(const char *set, int index, char kernel[64])
{
    const char *operation, *type;
    if (strcmp(set, GPU) == 0) {
        es_compare_row row;
        char mode[16];
        es_compare_name(index, &row);
        snprintf(mode, sizeof mode, GPU "-%s", es_numeric_name(row.numeric));
        es_verdict_kernel(kernel, mode, row.operation, row.type);
        return;
    }
    es_check_name(index, &operation, &type);
    es_verdict_kernel(kernel, set, operation, type);
}

static void put(probe *p, int index, es_verdict verdict, double speedup, const char *detail)
{
    es_verdict_row row = {.verdict = verdict, .speedup = speedup};
    name_row(p->set, index, row.kernel);
    snprintf(row.detail, sizeof row.detail, "%s", detail);
    es_verdicts_put(p->verdicts, &row);
}

static void drop_first(probe *p)
{
    memmove(p->pending, p->pending + 1, (size_t)--p->count * sizeof *p->pending);
    p->begun = -1;
}

/* Another program's words: nothing of them is believed unless it fits. */
static void take_line(probe *p, char *line)
{
    if (p->count == 0) return;
    int index, used = 0;
    char outcome[8];
    double speedup;
    if (sscanf(line, "begin %d", &index) == 1 && index == p->pending[0]) {
        p->begun = index;
    } else if (sscanf(line, "end %d %7s %lf %n", &index, outcome, &speedup, &used) == 3 && used > 0 && index == p->begun) {
        const bool equal = strcmp(outcome, "equal") == 0, wrong = strcmp(outcome, "wrong") == 0;
        const bool none = strcmp(outcome, "none") == 0;
        put(p, index, equal ? ES_VERDICT_TRUSTED : wrong ? ES_VERDICT_WRONG : none ? ES_VERDICT_ABSENT : ES_VERDICT_UNKNOWN,
            speedup, line + used);
        drop_first(p);
    }
}

static es_status start_child(probe *p)
{
    char what[MOST_ROWS * 5 + 32];
    int n = snprintf(what, sizeof what, "%s:", p->set);
    for (int i = 0; i < p->count; i++) n += snprintf(what + n, sizeof what - (size_t)n, "%s%d", i ? "," : "", p->pending[i]);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return es_fail(ES_IO, "a pipe to a child cannot be made: %s", strerror(errno));
    const pid_t parent = getpid();
    p->pid = fork();
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(3);
        const int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, 0), dup2(ends[1], 1), dup2(nothing, 2);
        setenv("ES_TRUST", "all", 1);
        unsetenv("ES_DEVICE");
        execl("/proc/self/exe", "evenshare", "doctor", "--probe", what, p->options->timed ? "--timed" : (char *)NULL,
              (char *)NULL);
        _exit(3);
    }
    close(ends[1]);
    p->pipe = ends[0];
    if (p->pid > 0) return ES_OK;
    close(p->pipe);
    return es_fail(ES_IO, "a child process cannot be started: %s", strerror(errno));
}

static double now(void)
{
    const es_clock clock = es_clock_monotonic();
    return (double)es_clock_now(&clock) * 1e-9;
}

/* Lines until the child closes its end (true) or a kernel passes its deadline (false). */
static bool listen(probe *p)
{
    char buffer[1024];
    size_t held = 0;
    double until = now() + p->options->deadline;
    for (;;) {
        const double left = until - now();
        struct pollfd ready = {.fd = p->pipe, .events = POLLIN};
        const int some = left > 0 ? poll(&ready, 1, (int)(left * 1000) + 1) : 0;
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) return false;
        const ssize_t n = read(p->pipe, buffer + held, sizeof buffer - 1 - held);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return true;
        held += (size_t)n;
        buffer[held] = '\0';
        char *line = buffer;
        for (char *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            take_line(p, line);
            until = now() + p->options->deadline;
        }
        held -= (size_t)(line - buffer);
        if (held >= sizeof buffer - 1) held = 0; /* no line of ours is that long */
        memmove(buffer, line, held);
    }
}

/* Wait for the child's end, but not for ever: one that a dead device holds in the kernel cannot be killed. */
static bool reap(probe *p, int *how)
{
    for (double until = now() + REAP_SECONDS; now() < until; usleep(2000)) {
        const pid_t got = waitpid(p->pid, how, WNOHANG);
        if (got == p->pid || (got < 0 && errno != EINTR)) return true;
    }
    return false;
}

static void judge(probe *p, bool in_time, bool reaped, int how)
{
    if (p->count == 0) return;
    char detail[160];
    const int index = p->pending[0];
    if (!in_time) {
        snprintf(detail, sizeof detail, "did not come back within %g s%s", p->options->deadline,
                 reaped ? "" : ", and its process cannot be killed: the device is left alone");
        put(p, index, ES_VERDICT_HUNG, 0, detail);
    } else {
        if (WIFSIGNALED(how)) snprintf(detail, sizeof detail, "%s", strsignal(WTERMSIG(how)));
        else snprintf(detail, sizeof detail, "its process ended with code %d", WEXITSTATUS(how));
        put(p, index, ES_VERDICT_CRASHED, 0, detail);
    }
    drop_first(p);
}

/* Every child settles at least the first pending row, so that this ends. */
static es_status probe_set(probe *p)
{
    while (p->count > 0 && !p->verdicts->device_hung) {
        p->begun = -1;
        ES_TRY(start_child(p));
        const bool in_time = listen(p);
        int how = 0;
        if (!in_time) kill(p->pid, SIGKILL);
        close(p->pipe);
        const bool reaped = reap(p, &how);
        judge(p, in_time, reaped, how);
        if (!reaped) p->verdicts->device_hung = true;
    }
    return ES_OK;
}

/* Rows that a set takes over from the one before it are not run again. */
static es_status probe_level(const es_kernel_sets *sets, int level, es_verdicts *verdicts, const es_probe_options *options)
{
    probe p = {.verdicts = verdicts, .options = options, .set = sets->name[level], .begun = -1};
    for (int i = 0; i < es_check_count() && i < MOST_ROWS; i++) {
        const char *operation, *type;
        char kernel[64];
        es_check_name(i, &operation, &type);
        es_verdict_kernel(kernel, p.set, operation, type);
        if (options->only && !strstr(kernel, options->only)) continue;
        if (!es_kernel_sets_owns_row(sets, level, operation, type)) continue;
        const char *fatal = es_known_fatal(verdicts->device, verdicts->driver, kernel);
        if (fatal) put(&p, i, ES_VERDICT_FATAL, 0, fatal);
        else p.pending[p.count++] = i;
    }
    return probe_set(&p);
}

es_status es_probe_kernels(es_verdicts *verdicts, const es_probe_options *options)
{
    es_kernel_sets sets;
    es_kernel_sets_here(&sets);
    for (int level = sets.count - 1; level > 0; level--) ES_TRY(probe_level(&sets, level, verdicts, options));
    return ES_OK;
}

es_status es_probe_gpu(es_verdicts *verdicts, const es_probe_options *options)
{
    probe p = {.verdicts = verdicts, .options = options, .set = GPU, .begun = -1};
    for (int i = 0; i < es_compare_count() && i < MOST_ROWS; i++) {
        char kernel[64];
        name_row(GPU, i, kernel);
        if (options->only && !strstr(kernel, options->only)) continue;
        const char *fatal = es_known_fatal(verdicts->device, verdicts->driver, kernel);
        if (fatal) put(&p, i, ES_VERDICT_FATAL, 0, fatal);
        else p.pending[p.count++] = i;
    }
    return probe_set(&p);
}

bool es_probe_is_complete(const es_verdicts *verdicts)
{
    if (verdicts->device_hung) return true;
    es_kernel_sets sets;
    es_kernel_sets_here(&sets);
    for (int level = 1; level < sets.count; level++)
        for (int i = 0; i < es_check_count(); i++) {
            const char *operation, *type;
            char kernel[64];
            es_check_name(i, &operation, &type);
            es_verdict_kernel(kernel, sets.name[level], operation, type);
            if (es_kernel_sets_owns_row(&sets, level, operation, type) && !es_verdicts_find(verdicts, kernel)) return false;
        }
    return true;
}

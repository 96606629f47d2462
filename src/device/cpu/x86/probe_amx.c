/* probe_amx.c: whether AMX really works here.
 *
 * The CPU flag is not enough: the operating system must permit tiles to a process, and a hypervisor may show the flag and
 * trap the instruction. So permission is asked for once, and one tile product is tried in a child process with a deadline. */
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/cpu/kernels.h"

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18
#define DEADLINE_MILLISECONDS 2000

static bool usable;

/* 2 · 3 over 32 inputs. */
static bool tile_product_is_right(void)
{
    _Alignas(64) uint8_t config[64] = {1};
    _Alignas(64) int8_t a[64], b[64];
    _Alignas(64) int32_t c[16] = {0};
    config[16] = config[18] = config[20] = 64;
    config[48] = config[49] = config[50] = 1;
    config[20] = 4, config[50] = 16; /* b: 16 quadruples of one column */
    config[16] = 4;                  /* c: one number */
    memset(a, 2, sizeof a);
    memset(b, 3, sizeof b);
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
    _tile_zero(0);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 4);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, c, 64);
    _tile_release();
    __asm__ volatile("" : : : "memory");
    return c[0] == 2 * 3 * 64;
}

static bool child_succeeds(pid_t child)
{
    for (int waited = 0; waited < DEADLINE_MILLISECONDS; waited++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return false;
}

static void probe(void)
{
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    const unsigned amx = 1u << 22 | 1u << 24 | 1u << 25; /* bf16, tile, int8 */
    if ((d & amx) != amx) return;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0) return;
    const pid_t child = fork();
    if (child < 0) return;
    if (child == 0) {
        for (int s = SIGILL; s <= SIGSEGV; s++) signal(s, SIG_DFL);
        _exit(tile_product_is_right() ? 0 : 1);
    }
    usable = child_succeeds(child);
}

bool es_amx_usable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, probe);
    return usable;
}

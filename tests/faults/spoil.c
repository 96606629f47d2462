/* spoil.c: kernels that are wrong, crash, or never return, for the test of what becomes of them.
 *
 * Linked into the program evenshare_faulty only. ES_FAULT names them: "avx512/rmsnorm=wrong,avx2/swiglu=hang". Of each
 * instruction set rmsnorm, swiglu and axpy can be spoiled, as wrong, crash or hang; any kernel can be declared fatal.
 * "rmsnorm=late" is right until the file that ES_FAULT_FILE names exists: the call that finds it takes it away, and never
 * returns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cpu/trust.h"

static bool has_fault(const char *kernel, const char *fault)
{
    const char *faults = getenv("ES_FAULT");
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%s=%s", kernel, fault);
    for (const char *at = faults; at && *at; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, wanted, strlen(wanted)) == 0 && strchr(",", at[strlen(wanted)])) return true;
    return false;
}

static void wrong_rmsnorm(const float *x, const float *w, float *out, int32_t n, float eps)
{
    es_kernels right;
    es_kernels_reference(&right);
    right.rmsnorm(x, w, out, n, eps);
    if (n > 0) out[n - 1] *= 1.0000002f; /* one or two units in the last place */
}

static void wrong_swiglu(const float *gate, const float *up, float *out, int32_t n)
{
    (void)gate;
    for (int32_t i = 0; i < n; i++) out[i] = up[i];
}

static void wrong_axpy(float a, const float *x, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++) y[i] = a * x[i] + y[i]; /* rounds twice */
}

static void crash(void)
{
    volatile int *nowhere = NULL;
    *nowhere = 1;
}

static void hang(void)
{
    for (;;) pause();
}

#define FAULTS(name, parameters)          \
    static void crash_##name parameters   \
    {                                     \
        crash();                          \
    }                                     \
    static void hang_##name parameters    \
    {                                     \
        hang();                           \
    }
#define UNUSED __attribute__((unused))
FAULTS(rmsnorm, (UNUSED const float *x, UNUSED const float *w, UNUSED float *out, UNUSED int32_t n, UNUSED float eps))
FAULTS(swiglu, (UNUSED const float *gate, UNUSED const float *up, UNUSED float *out, UNUSED int32_t n))
FAULTS(axpy, (UNUSED float a, UNUSED const float *x, UNUSED float *y, UNUSED int32_t n))

static void late_rmsnorm(const float *x, const float *w, float *out, int32_t n, float eps)
{
    const char *file = getenv("ES_FAULT_FILE");
    if (file && unlink(file) == 0) hang();
    es_kernels right;
    es_kernels_reference(&right);
    right.rmsnorm(x, w, out, n, eps);
}

#define SPOIL(name)                                                                \
    do {                                                                           \
        char kernel[64];                                                           \
        es_verdict_kernel(kernel, set, #name, NULL);                               \
        if (has_fault(kernel, "wrong")) kernels->name = wrong_##name;              \
        if (has_fault(kernel, "crash")) kernels->name = crash_##name;              \
        if (has_fault(kernel, "hang")) kernels->name = hang_##name;                \
    } while (0)

void es_kernels_spoil(const char *set, es_kernels *kernels)
{
    if (strcmp(set, "amx") == 0 || strncmp(set, "avx512", 6) == 0) set = "avx512"; /* these three they have from it */
    SPOIL(rmsnorm);
    SPOIL(swiglu);
    SPOIL(axpy);
    char kernel[64];
    es_verdict_kernel(kernel, set, "rmsnorm", NULL);
    if (has_fault(kernel, "late")) kernels->rmsnorm = late_rmsnorm;
}

const char *es_known_fatal_extra(const char *kernel)
{
    return has_fault(kernel, "fatal") ? "the test says so" : NULL;
}

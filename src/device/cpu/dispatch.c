/* dispatch.c: which kernels this machine gets. */
#include "device/cpu/kernels.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* clang's __builtin_cpu_supports() knows no "f16c". */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_amx(void)
{
    return has_avx512vnni() && es_amx_usable();
}

static void fill_avx512vnni(es_kernels *kernels)
{
    es_kernels_avx512(kernels);
    es_attn_bf16_avx512(kernels);
    es_products_avx512(&kernels->products);
    kernels->fast_products = true;
    kernels->instruction_set = "avx512vnni";
}

static void fill_amx(es_kernels *kernels)
{
    fill_avx512vnni(kernels);
    es_products_amx(&kernels->products);
    kernels->instruction_set = "amx";
}

#define MXCSR_FLUSH 0x8040u /* flush to zero, denormals are zero */

unsigned es_float_mode_enter(void)
{
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | MXCSR_FLUSH);
    return saved;
}

void es_float_mode_leave(unsigned saved)
{
    _mm_setcsr(saved);
}
#else
static bool has_avx2(void)
{
    return false;
}

static bool has_avx512(void)
{
    return false;
}

void es_kernels_avx2(es_kernels *kernels)
{
    (void)kernels;
}

void es_kernels_avx512(es_kernels *kernels)
{
    (void)kernels;
}

static bool has_avx512vnni(void)
{
    return false;
}

static bool has_amx(void)
{
    return false;
}

static void fill_avx512vnni(es_kernels *kernels)
{
    (void)kernels;
}

static void fill_amx(es_kernels *kernels)
{
    (void)kernels;
}

#if defined(__aarch64__)
#define FPCR_FLUSH (1u << 24)

unsigned es_float_mode_enter(void)
{
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(saved | FPCR_FLUSH));
    return (unsigned)saved;
}

void es_float_mode_leave(unsigned saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)saved));
}
#else
unsigned es_float_mode_enter(void)
{
    return 0;
}

void es_float_mode_leave(unsigned saved)
{
    (void)saved;
}
#endif
#endif

static const struct {
    const char *name;
    bool (*here)(void);
    void (*fill)(es_kernels *);
} instruction_sets[] = {
    {"amx", has_amx, fill_amx},
    {"avx512vnni", has_avx512vnni, fill_avx512vnni},
    {"avx512", has_avx512, es_kernels_avx512},
    {"avx2", has_avx2, es_kernels_avx2},
};
#define SETS (sizeof instruction_sets / sizeof *instruction_sets)

es_status es_kernels_select(const char *highest, es_kernels *kernels)
{
    es_kernels_reference(kernels);
    const char *asked = highest ? highest : getenv("ES_INSTRUCTION_SET");
    if (asked && *asked == '\0') asked = NULL;
    if (asked && strcmp(asked, "reference") == 0) return ES_OK;
    for (size_t i = 0; i < SETS; i++) {
        if (asked && strcmp(asked, instruction_sets[i].name) != 0) continue;
        if (instruction_sets[i].here()) {
            instruction_sets[i].fill(kernels);
            return ES_OK;
        }
        if (asked) return es_fail(ES_UNSUPPORTED, "instruction set %s: this processor does not have it", asked);
    }
    if (asked) return es_fail(ES_INVALID, "instruction set %s: not one of amx, avx512vnni, avx512, avx2, reference", asked);
    return ES_OK;
}

es_numeric es_device_best_numeric(es_dtype weights)
{
    es_kernels kernels;
    /* Without VNNI the integer and bfloat16 products have only their reference: float32 is faster. */
    if (es_kernels_select(NULL, &kernels) != ES_OK || !kernels.fast_products || weights == ES_F32) return ES_NUMERIC_F32;
    return weights == ES_F16 || weights == ES_BF16 ? ES_NUMERIC_BF16 : ES_NUMERIC_INT8;
}

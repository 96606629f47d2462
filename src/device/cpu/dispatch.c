/* dispatch.c: which kernels this machine gets. */
#include "device/cpu/trust.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>

static bool has_avx512vnni(void)
{
    return es_cpu_has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512bf16(void)
{
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

static bool has_amx(void)
{
    return has_avx512vnni() && es_amx_usable();
}

static void fill_avx2(es_kernels *kernels)
{
    es_kernels_avx2(kernels);
    es_attn_bf16_avx2(kernels);
    es_attn_q8_avx2(kernels);
    es_products_avx2(&kernels->products);
    kernels->products_by = ES_PRODUCTS_BY_VECTORS;
}

/* AVX-512 alone does not multiply integers better than AVX2. */
static void fill_avx512(es_kernels *kernels)
{
    fill_avx2(kernels);
    es_kernels_avx512(kernels);
    es_attn_bf16_avx512(kernels);
}

static void fill_avx512vnni(es_kernels *kernels)
{
    fill_avx512(kernels);
    es_products_avx512(&kernels->products);
    es_attn_q8_avx512(kernels);
    kernels->instruction_set = "avx512vnni";
}

static void fill_avx512bf16(es_kernels *kernels)
{
    fill_avx512vnni(kernels);
    kernels->product_bf16dp = es_product_bf16dp_avx512bf16;
    kernels->instruction_set = "avx512bf16";
}

static void fill_amx(es_kernels *kernels)
{
    if (has_avx512bf16()) fill_avx512bf16(kernels);
    else fill_avx512vnni(kernels);
    es_products_amx(&kernels->products);
    es_attn_bf16_amx(kernels);
    kernels->products_by = ES_PRODUCTS_BY_TILES;
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
static void fill_avx2(es_kernels *kernels)
{
    (void)kernels;
}

static void fill_avx512(es_kernels *kernels)
{
    (void)kernels;
}

static bool has_avx512vnni(void)
{
    return false;
}

static bool has_avx512bf16(void)
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

static void fill_avx512bf16(es_kernels *kernels)
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
    {"avx512bf16", has_avx512bf16, fill_avx512bf16},
    {"avx512vnni", has_avx512vnni, fill_avx512vnni},
    {"avx512", es_cpu_has_avx512, fill_avx512},
    {"avx2", es_cpu_has_avx2, fill_avx2},
};
#define SETS (sizeof instruction_sets / sizeof *instruction_sets)

const char *es_kernels_set_name(int index)
{
    return index >= 0 && index < (int)SETS ? instruction_sets[index].name : NULL;
}

es_status es_kernels_of_set(const char *set, es_kernels *kernels)
{
    es_kernels_reference(kernels);
    if (strcmp(set, "reference") == 0) return ES_OK;
    for (size_t i = 0; i < SETS; i++) {
        if (strcmp(set, instruction_sets[i].name) != 0) continue;
        if (!instruction_sets[i].here())
            return es_fail(ES_UNSUPPORTED, "instruction set %s: this processor does not have it", set);
        instruction_sets[i].fill(kernels);
        if (es_kernels_spoil) es_kernels_spoil(set, kernels);
        return ES_OK;
    }
    return es_fail(ES_INVALID, "instruction set %s: not one of amx, avx512bf16, avx512vnni, avx512, avx2, reference", set);
}

/* What `evenshare doctor`, or the first start of a server, found out about this machine; NULL when nobody looked yet. */
static es_verdicts *load_verdicts(void)
{
    const char *trust = getenv("ES_TRUST");
    es_verdicts *verdicts;
    if ((trust && strcmp(trust, "all") == 0) || es_verdicts_open(&verdicts) != ES_OK) return NULL;
    if (es_verdicts_load(verdicts) == ES_OK) return verdicts;
    free(verdicts);
    return NULL;
}

/* Entry by entry: a kernel that did not earn its trust leaves its place to that of the set before. */
static void take_trusted(const char *set, const es_kernels *from, const es_verdicts *verdicts, es_kernels *to)
{
    for (int i = 0; i < es_kernels_entries(); i++) {
        const bool trusted = !verdicts || es_kernels_entry_verdict(verdicts, set, i) == ES_VERDICT_TRUSTED;
        if (trusted && es_kernels_take(to, from, i)) to->instruction_set = from->instruction_set;
    }
}

es_status es_kernels_select(const char *highest, es_kernels *kernels)
{
    const char *asked = highest ? highest : getenv("ES_INSTRUCTION_SET");
    if (asked && *asked == '\0') asked = NULL;
    es_kernels one;
    if (asked) ES_TRY(es_kernels_of_set(asked, &one));
    es_kernels_reference(kernels);
    if (asked && strcmp(asked, "reference") == 0) return ES_OK;
    es_verdicts *verdicts = load_verdicts();
    for (int i = (int)SETS - 1; i >= 0 && !(verdicts && verdicts->device_hung); i--) { /* from slow to fast */
        const char *set = instruction_sets[i].name;
        if (es_kernels_of_set(set, &one) == ES_OK) take_trusted(set, &one, verdicts, kernels);
        if (asked && strcmp(asked, set) == 0) break;
    }
    free(verdicts);
    return ES_OK;
}

es_numeric es_device_best_numeric(es_dtype weights)
{
    es_kernels kernels;
    if (es_kernels_select(NULL, &kernels) != ES_OK || weights == ES_F32) return ES_NUMERIC_F32;
    /* The other modes need products and attention; with one of them left to its reference, float32 is faster. */
    if (kernels.attn_tile_bf16 == es_attn_tile_bf16_ref) return ES_NUMERIC_F32;
    const bool halves = weights == ES_F16 || weights == ES_BF16;
    /* The order of AMX's tiles is slow to keep without them. */
    if (halves && kernels.products_by != ES_PRODUCTS_BY_TILES && kernels.product_bf16dp != es_product_bf16dp_ref)
        return ES_NUMERIC_BF16DP;
    if (kernels.products_by == ES_PRODUCTS_BY_REFERENCE) return ES_NUMERIC_F32;
    return halves ? ES_NUMERIC_BF16 : ES_NUMERIC_INT8;
}

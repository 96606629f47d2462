/* cpu.c: asks the processor. */
#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* clang's __builtin_cpu_supports() knows no "f16c". Asked once: a virtual machine answers CPUID in ten microseconds. */
static bool has_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known = UNKNOWN;
    if (known == UNKNOWN) {
        unsigned a, b, c, d;
        known = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? YES : NO;
    }
    return known == YES;
}

bool es_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool es_cpu_has_avx512(void)
{
    return es_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool es_cpu_has_avx2(void)
{
    return false;
}

bool es_cpu_has_avx512(void)
{
    return false;
}
#endif

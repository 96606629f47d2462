/* cpu.c: asks the processor. */
#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* clang's __builtin_cpu_supports() knows no "f16c". */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
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

/* cpu.h: which instruction sets this processor (and system) has. */
#ifndef ES_BASE_CPU_H
#define ES_BASE_CPU_H

#include <stdbool.h>

/** AVX2 with FMA and F16C: what files named *_avx2.c are compiled for. */
bool es_cpu_has_avx2(void);
/** AVX-512 F, BW, DQ and VL besides: files named *_avx512.c. */
bool es_cpu_has_avx512(void);

#endif

/* kernels_avx512.c: the vector kernels of mode f32 for AVX-512. What they do stands in kernels_body.h. */
#include "device/cpu/x86/vector_avx512.h"
#include "device/cpu/x86/kernels_body.h"

void es_kernels_avx512(es_kernels *kernels)
{
    fill_in(kernels, "avx512", es_decode_avx512);
}

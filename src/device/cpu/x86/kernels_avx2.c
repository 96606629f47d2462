/* kernels_avx2.c: the vector kernels of mode f32 for AVX2. What they do stands in kernels_body.h. */
#include "device/cpu/x86/vector_avx2.h"
#include "device/cpu/x86/kernels_body.h"

void es_kernels_avx2(es_kernels *kernels)
{
    fill_in(kernels, "avx2", es_decode_avx2);
}

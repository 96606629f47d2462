# One place for warnings, sanitizers and instruction sets.

add_library(es_flags INTERFACE)
target_compile_options(es_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith
  -Wwrite-strings -Werror
  # Same bits: the compiler may neither fuse a multiply with an add nor split one. Fused steps are written as fmaf().
  -ffp-contract=off -fno-math-errno -fno-strict-aliasing -fvisibility=hidden)
target_compile_definitions(es_flags INTERFACE _GNU_SOURCE ES_VERSION="${PROJECT_VERSION}"
  ES_DEFAULT_MODEL="${ES_DEFAULT_MODEL}")
if(NOT ES_PACKAGE)
  target_compile_definitions(es_flags INTERFACE ES_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endif()

# A build has a name: verdicts on kernels and caches on disk belong to one.
add_link_options(-Wl,--build-id=sha1)

if(ES_SANITIZE)
  # -g1: a report names functions and lines; to describe every variable took a third of the time to compile.
  set(ES_SANITIZE_FLAGS -fsanitize=${ES_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  if(ES_SANITIZE MATCHES "undefined" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    list(APPEND ES_SANITIZE_FLAGS -fno-sanitize=function)
  endif()
  add_compile_options(${ES_SANITIZE_FLAGS})
  add_link_options(${ES_SANITIZE_FLAGS})
endif()
if(ES_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()

# Files named *_avx2.c and so on are compiled for that instruction set; nothing else may use it.
function(es_set_instruction_sets sources)
  foreach(source ${sources})
    if(source MATCHES "_avx2\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
    elseif(source MATCHES "_avx512vnni\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mprefer-vector-width=512")
    elseif(source MATCHES "_avx512bf16\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mprefer-vector-width=512")
    elseif(source MATCHES "_amx\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mamx-tile;-mamx-int8;-mamx-bf16;-mprefer-vector-width=512")
    endif()
    # Their loops are unrolled by hand, which checks at each access make into functions that take gcc a minute to optimize, and
    # seven seconds with -O1.
    if(ES_SANITIZE AND source MATCHES "/x86/")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-O1")
    endif()
  endforeach()
endfunction()

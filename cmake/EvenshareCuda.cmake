# libevenshare_cuda.so: the CUDA backend, built where nvcc is, GPU or not; the program opens it at run time (src/device/cuda).
# CUDA is no language of the project, so that a machine without it configures as before. Machine code for sm_90 and sm_80; PTX
# for compute_80, which a driver compiles for anything newer, and for compute_75, for what is older. Some files use what only
# sm_90a has.
option(ES_CUDA "build the CUDA backend when nvcc is found" ON)
if(ES_CUDA AND NOT ES_SANITIZE AND NOT ES_FUZZ)
  find_program(ES_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(NOT ES_NVCC)
    message(STATUS "nvcc not found: the CUDA backend is not built")
  endif()
endif()

if(ES_NVCC AND ES_CUDA AND NOT ES_SANITIZE AND NOT ES_FUZZ)
  # What only some targets use is no mistake (177). A sum fused here and not there would break the same-bits promise: fused steps are written out (-fmad=false).
  set(ES_NVCC_FLAGS -O3 -std=c++20 -fmad=false -ftz=true -Werror all-warnings -diag-suppress 177 -Xcompiler -fPIC,-fvisibility=hidden,-Wall
      -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_75,code=compute_75
      -DES_VERSION=\"${PROJECT_VERSION}\" -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
  file(GLOB ES_CUDA_SOURCES CONFIGURE_DEPENDS src/device/cuda/*.cu)
  set(ES_CUDA_OBJECTS "")
  foreach(source ${ES_CUDA_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    file(RELATIVE_PATH shown ${CMAKE_SOURCE_DIR} ${source})
    set(hopper 90)
    if(name MATCHES "^(product_wide|limits|attn_decode)$")
      set(hopper 90a)
    endif()
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${ES_NVCC} ${ES_NVCC_FLAGS} -gencode arch=compute_${hopper},code=sm_${hopper} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling ${shown}" VERBATIM)
    list(APPEND ES_CUDA_OBJECTS ${object})
  endforeach()
  # The portable kernels once more for warps of 64 lanes: compiled, so that they stay so; nothing here runs them.
  set(ES_CUDA_WIDE "")
  foreach(name attention delta moe moe_few pick rows)
    set(source ${CMAKE_SOURCE_DIR}/src/device/cuda/${name}.cu)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}_warp64.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${ES_NVCC} -O1 -std=c++20 -fmad=false -ftz=true -DES_WARP=64 -diag-suppress 69,177
              -gencode arch=compute_75,code=compute_75 -DES_VERSION=\"${PROJECT_VERSION}\" -I${CMAKE_SOURCE_DIR}/src
              -I${CMAKE_SOURCE_DIR}/include -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling src/device/cuda/${name}.cu for warps of 64" VERBATIM)
    list(APPEND ES_CUDA_WIDE ${object})
  endforeach()
  set(ES_CUDA_C "") # what it needs of the program's own sources
  foreach(source src/device/dtype.c src/device/cuda/attn_plan.c src/share/plan.c src/share/share.c)
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}_c.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_C_COMPILER} -std=c11 -O2 -fPIC -fvisibility=hidden -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
              -MD -MF ${object}.d -c ${CMAKE_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_SOURCE_DIR}/${source} DEPFILE ${object}.d COMMENT "Compiling ${source} for the CUDA backend" VERBATIM)
    list(APPEND ES_CUDA_C ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  set(ES_CUDA_LIBRARY ${CMAKE_BINARY_DIR}/libevenshare_cuda.so)
  add_custom_command(OUTPUT ${ES_CUDA_LIBRARY}
    COMMAND ${ES_NVCC} -shared -cudart static -Xlinker --no-undefined,--as-needed -o ${ES_CUDA_LIBRARY} ${ES_CUDA_OBJECTS} ${ES_CUDA_C}
    DEPENDS ${ES_CUDA_OBJECTS} ${ES_CUDA_C} COMMENT "Linking libevenshare_cuda.so" VERBATIM)
  add_custom_target(evenshare_cuda ALL DEPENDS ${ES_CUDA_LIBRARY} ${ES_CUDA_WIDE})
  install(FILES ${ES_CUDA_LIBRARY} TYPE LIB)

  # Programs for a machine with a GPU, built on demand: cmake --build build/release --target cuda_programs. They carry kernels
  # that only measuring wants (ES_CUDA_MEASURE), and machine code for sm_90 alone.
  set(ES_CUDA_MEASURE ${ES_NVCC} -O3 -lineinfo -std=c++20 -fmad=false -ftz=true --extended-lambda -gencode arch=compute_90,code=sm_90 -cudart static
      -DES_CUDA_MEASURE -Xcompiler -fPIC -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
  string(REPLACE "arch=compute_90,code=sm_90" "arch=compute_90a,code=sm_90a" ES_CUDA_MEASURE_A "${ES_CUDA_MEASURE}")
  set(ES_CUDA_KERNELS ${CMAKE_SOURCE_DIR}/src/device/cuda)
  add_custom_target(cuda_programs
    COMMAND ${ES_CUDA_MEASURE_A} ${CMAKE_SOURCE_DIR}/tests/cuda/attn_test.cu ${ES_CUDA_KERNELS}/attn_decode.cu ${ES_CUDA_C}
            -o ${CMAKE_BINARY_DIR}/cuda_attn_test
    COMMAND ${ES_CUDA_MEASURE} ${CMAKE_SOURCE_DIR}/tests/cuda/fold_test.cu ${ES_CUDA_KERNELS}/fold.cu ${ES_CUDA_KERNELS}/scan.cu
            -o ${CMAKE_BINARY_DIR}/cuda_fold_test
    COMMAND ${ES_CUDA_MEASURE_A} ${CMAKE_SOURCE_DIR}/tests/cuda/product_test.cu ${ES_CUDA_KERNELS}/product.cu
            ${ES_CUDA_KERNELS}/product_many.cu ${ES_CUDA_KERNELS}/product_wide.cu ${ES_CUDA_KERNELS}/panel.cu
            ${ES_CUDA_KERNELS}/pack.cu ${ES_CUDA_KERNELS}/rows.cu ${ES_CUDA_C} -o ${CMAKE_BINARY_DIR}/cuda_product_test
    COMMAND ${ES_CUDA_MEASURE} ${CMAKE_SOURCE_DIR}/tests/cuda/race_probe.cu -o ${CMAKE_BINARY_DIR}/cuda_race_probe
    COMMAND ${ES_CUDA_MEASURE_A} -shared ${CMAKE_SOURCE_DIR}/bench/cuda_attn.cu ${ES_CUDA_KERNELS}/attn_decode.cu ${ES_CUDA_C}
            -o ${CMAKE_BINARY_DIR}/libbench_cuda_attn.so
    DEPENDS ${ES_CUDA_C} VERBATIM)
endif()

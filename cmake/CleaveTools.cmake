# Compiler flags, ccache and mold for every target.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Werror=switch -Werror=return-type -Wno-missing-field-initializers -fno-math-errno
                    -ffp-contract=off)

set(CLEAVE_SANITIZE "" CACHE STRING "address,undefined or thread")
if(CLEAVE_SANITIZE)
  add_compile_options(-fsanitize=${CLEAVE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${CLEAVE_SANITIZE})
  if(CLEAVE_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    add_compile_options(-fno-sanitize=function)  # reads before a function's first byte; compiled kernels begin a page
  endif()
endif()

option(CLEAVE_FUZZ "build the fuzz targets with libFuzzer (otherwise they replay their corpus)" OFF)
if(CLEAVE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

option(CLEAVE_COVERAGE "instrument for source-based coverage" OFF)
if(CLEAVE_COVERAGE)
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
endif()

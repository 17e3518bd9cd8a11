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
endif()

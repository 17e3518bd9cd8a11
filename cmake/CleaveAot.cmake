# The objects that `cleave optimize -o` links into the libraries it makes: the C runtime and the scalar functions.
# They are compiled apart from the rest: plain, position-independent, without sanitizers, for the oldest processor.
set(CLEAVE_AOT_DIR ${CMAKE_BINARY_DIR}/aot)
file(MAKE_DIRECTORY ${CLEAVE_AOT_DIR})
set(aot_flags -O2 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -fno-math-errno -ffp-contract=off
    -Wall -Wextra -I${CMAKE_SOURCE_DIR}/src)
function(aot_object name compiler source)
  add_custom_command(
    OUTPUT ${CLEAVE_AOT_DIR}/${name}.o
    COMMAND ${compiler} ${ARGN} ${aot_flags} -MD -MF ${CLEAVE_AOT_DIR}/${name}.d -c ${source} -o ${CLEAVE_AOT_DIR}/${name}.o
    DEPENDS ${source} DEPFILE ${CLEAVE_AOT_DIR}/${name}.d VERBATIM)
endfunction()
aot_object(runtime ${CMAKE_C_COMPILER} ${CMAKE_SOURCE_DIR}/src/runtime/aot.c -std=gnu11)
aot_object(helpers ${CMAKE_CXX_COMPILER} ${CMAKE_SOURCE_DIR}/src/jit/aot/helpers.cpp -std=c++20 -fno-exceptions -fno-rtti)
set_source_files_properties(
  ${CMAKE_SOURCE_DIR}/src/jit/embed.cpp TARGET_DIRECTORY cleave_jit PROPERTIES
  OBJECT_DEPENDS "${CLEAVE_AOT_DIR}/runtime.o;${CLEAVE_AOT_DIR}/helpers.o"
  COMPILE_DEFINITIONS "CLEAVE_AOT_RUNTIME=\"${CLEAVE_AOT_DIR}/runtime.o\";CLEAVE_AOT_HELPERS=\"${CLEAVE_AOT_DIR}/helpers.o\"")
add_custom_target(cleave_aot_objects DEPENDS ${CLEAVE_AOT_DIR}/runtime.o ${CLEAVE_AOT_DIR}/helpers.o)
add_dependencies(cleave_jit cleave_aot_objects)

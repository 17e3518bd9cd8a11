# add_room(name SOURCES a.cpp ... USES room ... LIBS target ...)
#
# A room is a static library cleave_<name> made of src/<name>/*. It links exactly the rooms that it may use; the same
# table is kept in ARCHITECTURE.md and is checked against every #include by tools/check_rooms.
function(add_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;USES;LIBS" ${ARGN})
  string(REPLACE "/" "_" target "cleave_${name}")
  add_library(${target} STATIC ${ROOM_SOURCES})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(used ${ROOM_USES})
    string(REPLACE "/" "_" used_target "cleave_${used}")
    target_link_libraries(${target} PUBLIC ${used_target})
  endforeach()
  target_link_libraries(${target} PUBLIC fmt::fmt ${ROOM_LIBS})
  set_property(GLOBAL APPEND PROPERTY CLEAVE_ROOMS ${target})
endfunction()

# add_cleave_test(name SOURCES ... USES room ...): one GoogleTest executable, registered with CTest.
function(add_cleave_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;USES;LIBS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_compile_options(${name} PRIVATE -O1)  # half the time to compile; what is tested is a room's library
  foreach(used ${TEST_USES})
    string(REPLACE "/" "_" used_target "cleave_${used}")
    target_link_libraries(${name} PRIVATE ${used_target})
  endforeach()
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE CLEAVE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest GTest::gtest_main ${TEST_LIBS})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()

# libcleave.so and what is installed: `cmake --install build --prefix DIR` gives the command, the library, two headers,
# find_package(cleave) and pkg-config's cleave.pc.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

target_include_directories(cleave_api PUBLIC ${CMAKE_SOURCE_DIR}/include)
set_target_properties(cleave_api PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

# The names of include/cleave are visible; those of the rooms, of LLVM and of protobuf's messages stay inside.
add_library(cleave_library SHARED $<TARGET_OBJECTS:cleave_api>)
target_link_libraries(cleave_library PRIVATE cleave_driver)
target_link_options(cleave_library PRIVATE "LINKER:--exclude-libs,ALL")
target_include_directories(cleave_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                           $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
target_compile_features(cleave_library INTERFACE cxx_std_20)
set_target_properties(cleave_library PROPERTIES OUTPUT_NAME cleave EXPORT_NAME cleave VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
add_library(cleave::cleave ALIAS cleave_library)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cleave)
install(TARGETS cleave_library EXPORT cleave LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/cleave DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT cleave NAMESPACE cleave:: DESTINATION ${package_dir} FILE cleave-targets.cmake)
file(WRITE ${CMAKE_BINARY_DIR}/cleave-config.cmake
     "include(\"\${CMAKE_CURRENT_LIST_DIR}/cleave-targets.cmake\")\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cleave-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cleave-config.cmake ${CMAKE_BINARY_DIR}/cleave-config-version.cmake
        DESTINATION ${package_dir})
# Relative to the file's own place, so that an installation can be moved.
file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
file(WRITE ${CMAKE_BINARY_DIR}/cleave.pc
"prefix=\${pcfiledir}/${up}
Name: cleave
Description: Optimizer and compiler for tensor programs
Version: ${PROJECT_VERSION}
Cflags: -I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
Libs: -L\${prefix}/${CMAKE_INSTALL_LIBDIR} -lcleave
")
install(FILES ${CMAKE_BINARY_DIR}/cleave.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

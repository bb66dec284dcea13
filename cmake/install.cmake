# Program, libraries, headers, descriptions for pkg-config and CMake, systemd's units, and man pages and shell completions, which the
# program itself writes. Components are the names of Debian's packages.
set(SALVO_LIBDIR lib CACHE STRING "folder of the libraries, below the prefix")
set(SALVO_UNIT_FOLDER lib/systemd/system CACHE STRING "folder of systemd's units, below the prefix or absolute")
install(TARGETS salvo RUNTIME DESTINATION bin COMPONENT salvo)
install(TARGETS salvo-shared LIBRARY DESTINATION ${SALVO_LIBDIR} COMPONENT libsalvo1 NAMELINK_COMPONENT libsalvo-dev)
install(FILES ${SALVO_STATIC_LIBRARY} DESTINATION ${SALVO_LIBDIR} COMPONENT libsalvo-dev)
install(DIRECTORY include/salvo DESTINATION include COMPONENT libsalvo-dev FILES_MATCHING PATTERN "*.h")

# Libraries that a program links with the static library.
set(SALVO_PRIVATE_FLAGS_LIST ${SALVO_PRIVATE_LIBRARIES} -lm)
foreach(library ${CMAKE_DL_LIBS})
  list(APPEND SALVO_PRIVATE_FLAGS_LIST -l${library})
endforeach()
string(JOIN " " SALVO_PRIVATE_FLAGS ${SALVO_PRIVATE_FLAGS_LIST} -pthread)
set(SALVO_SHARED_NAME ${CMAKE_SHARED_LIBRARY_PREFIX}salvo${CMAKE_SHARED_LIBRARY_SUFFIX})
set(SALVO_SONAME ${SALVO_SHARED_NAME}.${PROJECT_VERSION_MAJOR})
if(APPLE)
  set(SALVO_SONAME @rpath/libsalvo.${PROJECT_VERSION_MAJOR}.dylib)
endif()
file(RELATIVE_PATH SALVO_PREFIX_FROM_PC /${SALVO_LIBDIR}/pkgconfig /)
file(RELATIVE_PATH SALVO_PREFIX_FROM_CMAKE /${SALVO_LIBDIR}/cmake/salvo /)
configure_file(cmake/salvo.pc.in salvo.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/salvo.pc DESTINATION ${SALVO_LIBDIR}/pkgconfig COMPONENT libsalvo-dev)
configure_file(cmake/salvo-config.cmake.in salvo-config.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(salvo-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/salvo-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/salvo-config-version.cmake
  DESTINATION ${SALVO_LIBDIR}/cmake/salvo COMPONENT libsalvo-dev)

if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  foreach(unit salvo.service salvo.socket)
    configure_file(packaging/${unit}.in ${unit} @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${unit} DESTINATION ${SALVO_UNIT_FOLDER} COMPONENT salvo)
  endforeach()
  install(FILES packaging/salvo.sysusers DESTINATION lib/sysusers.d RENAME salvo.conf COMPONENT salvo)
endif()

if(NOT CMAKE_CROSSCOMPILING)
  install(CODE "
    set(SALVO_PROGRAM \"${CMAKE_BINARY_DIR}/salvo\")
    set(SALVO_SHARE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/written_files.cmake\")" COMPONENT salvo)
endif()

# The installed libraries. salvo-lib is the archive that this tree's program and tests link: it has all internal symbols.
# Others link libsalvo.so or libsalvo.a, in which every global symbol begins with salvo_; utf8proc is inside both.
add_library(salvo-shared SHARED $<TARGET_OBJECTS:salvo-lib>)
set_target_properties(salvo-shared PROPERTIES OUTPUT_NAME salvo VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_link_libraries(salvo-shared PRIVATE utf8proc Threads::Threads m ${CMAKE_DL_LIBS})
if(APPLE)
  # Apple's linker exports what begins with salvo_; others, such as zig's, export what is not hidden: utf8proc as well.
  include(CheckLinkerFlag)
  check_linker_flag(C -Wl,-exported_symbol,_salvo_* SALVO_EXPORTED_SYMBOL)
  if(SALVO_EXPORTED_SYMBOL)
    target_link_options(salvo-shared PRIVATE -Wl,-exported_symbol,_salvo_*)
  endif()
else()
  set(exports ${PROJECT_SOURCE_DIR}/cmake/salvo.map)
  target_link_options(salvo-shared PRIVATE -Wl,--version-script=${exports})
  set_target_properties(salvo-shared PROPERTIES LINK_DEPENDS ${exports})
  if(NOT SALVO_SANITIZE)
    target_link_options(salvo-shared PRIVATE -Wl,-z,defs)
  endif()
endif()

# The static library is one object in which all other symbols are local. macOS has no objcopy: its archive holds the
# objects as they are; their symbols are hidden from other shared libraries, and visible to the program that links them.
set(SALVO_STATIC_LIBRARY ${CMAKE_BINARY_DIR}/libsalvo.a)
if(UTF8PROC_LIBRARY MATCHES "\\.a$")
  set(utf8proc_objects ${UTF8PROC_LIBRARY})
else()
  set(SALVO_PRIVATE_LIBRARIES -lutf8proc)
endif()
if(APPLE)
  set(SALVO_PRIVATE_LIBRARIES -lutf8proc)
  add_custom_command(OUTPUT ${SALVO_STATIC_LIBRARY} DEPENDS salvo-lib
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:salvo-lib> ${SALVO_STATIC_LIBRARY} VERBATIM)
else()
  set(object ${CMAKE_BINARY_DIR}/salvo.o)
  add_custom_command(OUTPUT ${SALVO_STATIC_LIBRARY} DEPENDS salvo-lib $<TARGET_OBJECTS:salvo-lib>
    COMMAND ${CMAKE_COMMAND} -E rm -f ${object} ${SALVO_STATIC_LIBRARY}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${object} $<TARGET_OBJECTS:salvo-lib> ${utf8proc_objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard --keep-global-symbol=salvo_* ${object}
    COMMAND ${CMAKE_AR} qcs ${SALVO_STATIC_LIBRARY} ${object}
    COMMAND_EXPAND_LISTS VERBATIM)
endif()
add_custom_target(salvo-static ALL DEPENDS ${SALVO_STATIC_LIBRARY})

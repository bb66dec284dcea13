# utf8proc is linked statically. Cross builds name a source folder instead, since their system has no copy of it.
set(SALVO_UTF8PROC_SOURCE "" CACHE PATH "folder with utf8proc.c, where the target system has no static library")

if(SALVO_UTF8PROC_SOURCE)
  add_library(utf8proc STATIC ${SALVO_UTF8PROC_SOURCE}/utf8proc.c)
  target_compile_options(utf8proc PRIVATE -w)
  target_include_directories(utf8proc SYSTEM PUBLIC ${SALVO_UTF8PROC_SOURCE})
  target_compile_definitions(utf8proc PUBLIC UTF8PROC_STATIC)
else()
  find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc REQUIRED)
  find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
  add_library(utf8proc UNKNOWN IMPORTED)
  set_target_properties(utf8proc PROPERTIES IMPORTED_LOCATION ${UTF8PROC_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${UTF8PROC_INCLUDE} INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)
endif()

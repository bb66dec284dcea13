# utf8proc is linked statically where there is a static library, so that the program runs on machines without it.
find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc REQUIRED)
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
add_library(utf8proc UNKNOWN IMPORTED)
set_target_properties(utf8proc PROPERTIES IMPORTED_LOCATION ${UTF8PROC_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${UTF8PROC_INCLUDE} INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)

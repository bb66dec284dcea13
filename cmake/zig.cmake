# The compiler of PyPI's `ziglang`, which brings the headers and libraries of other platforms.
macro(salvo_use_zig target libraries)
  include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
  salvo_find_libraries_in(${libraries})
  get_filename_component(cache ${CMAKE_FIND_ROOT_PATH} DIRECTORY)
  file(GLOB zig ${cache}/venv/lib/python*/site-packages/ziglang/zig)
  set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig-cc ${zig} ${target})
  # zig is one program for all: GNU's ar would write an index that other linkers do not read.
  set(CMAKE_AR ${zig})
  set(CMAKE_C_ARCHIVE_CREATE "<CMAKE_AR> ar qcs <TARGET> <OBJECTS>")
  set(CMAKE_C_ARCHIVE_FINISH "")
endmacro()

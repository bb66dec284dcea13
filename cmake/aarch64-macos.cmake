# macOS from Linux, compile and link only: the compiler of PyPI's `ziglang` brings the headers and libraries it needs.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
salvo_find_libraries_in(aarch64-macos)
get_filename_component(cache ${CMAKE_FIND_ROOT_PATH} DIRECTORY)
file(GLOB zig ${cache}/venv/lib/python*/site-packages/ziglang/zig)
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig-cc ${zig})
# zig is one program for all: GNU's ar would write an index that macOS's linker does not read.
set(CMAKE_AR ${zig})
set(CMAKE_C_ARCHIVE_CREATE "<CMAKE_AR> ar qcs <TARGET> <OBJECTS>")
set(CMAKE_C_ARCHIVE_FINISH "")

# Programs for Linux with glibc 2.28 or later, for scripts/tarball.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
salvo_use_zig(aarch64-linux-gnu.2.28 aarch64-tarball)

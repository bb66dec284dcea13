# macOS from Linux, compile and link only.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
salvo_use_zig(aarch64-macos aarch64-macos)

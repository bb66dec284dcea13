# Debian packages through CPack, for scripts/package: salvo (program), libsalvo1, libsalvo-dev. Their documentation was written to
# SALVO_PACKAGE_DOCS before.
install(DIRECTORY ${SALVO_PACKAGE_DOCS}/salvo/ DESTINATION share/doc/salvo COMPONENT salvo)
install(DIRECTORY ${SALVO_PACKAGE_DOCS}/libsalvo1/ DESTINATION share/doc/libsalvo1 COMPONENT libsalvo1)
install(DIRECTORY ${SALVO_PACKAGE_DOCS}/libsalvo-dev/ DESTINATION share/doc/libsalvo-dev COMPONENT libsalvo-dev)
install(FILES packaging/debian/default DESTINATION /etc/default RENAME salvo COMPONENT salvo)
# Debian compresses man pages, without a time, so that equal pages are equal files.
install(CODE "
  file(GLOB pages \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/man/man1/*.1\")
  execute_process(COMMAND gzip -9nf \${pages} COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD_RECURSE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share\"
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
    DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)" COMPONENT salvo)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME salvo)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${SALVO_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL salvo libsalvo1 libsalvo-dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(text "salvo runs language models from GGUF files on CPUs, on NVIDIA GPUs through\nCUDA and on other GPUs through Vulkan. \
The whole forward pass of a token is\none submission to the device. CUDA and Vulkan are opened at run time.\n.\n")
function(salvo_package component name section summary details)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}${details}" PARENT_SCOPE)
endfunction()
salvo_package(salvo salvo science "inference engine for language models in GGUF files"
  "This package has the command line and the server, with a page to chat and\nthe interfaces of OpenAI, Anthropic, Ollama and llama.cpp.")
salvo_package(libsalvo1 libsalvo1 libs "inference engine for language models (library)" "This package has the shared library.")
salvo_package(libsalvo-dev libsalvo-dev libdevel "inference engine for language models (development)"
  "This package has the headers, the static library, and files for pkg-config\nand CMake.")
set(CPACK_DEBIAN_SALVO_PACKAGE_RECOMMENDS "ca-certificates, libcurl4, libvulkan1")
set(CPACK_DEBIAN_SALVO_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/packaging/debian/conffiles"
  "${PROJECT_SOURCE_DIR}/packaging/debian/postinst" "${PROJECT_SOURCE_DIR}/packaging/debian/prerm"
  "${PROJECT_SOURCE_DIR}/packaging/debian/postrm")
set(CPACK_DEBIAN_LIBSALVO1_PACKAGE_RECOMMENDS libvulkan1)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_LIBSALVO1_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/packaging/debian/triggers")
set(CPACK_DEBIAN_LIBSALVO-DEV_PACKAGE_DEPENDS "libsalvo1 (= ${PROJECT_VERSION}-1)")
set(CPACK_DEBIAN_LIBSALVO-DEV_PACKAGE_SHLIBDEPS OFF)
include(CPack)

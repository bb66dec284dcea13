# Program, library, header, what pkg-config asks for, and the shell completions, which the program itself writes.
install(TARGETS salvo RUNTIME DESTINATION bin)
install(TARGETS salvo-lib ARCHIVE DESTINATION lib)
install(FILES include/salvo/salvo.h DESTINATION include/salvo)
configure_file(cmake/salvo.pc.in salvo.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/salvo.pc DESTINATION lib/pkgconfig)

if(NOT CMAKE_CROSSCOMPILING)
  foreach(completion bash:bash-completion/completions/salvo zsh:zsh/site-functions/_salvo
      fish:fish/vendor_completions.d/salvo.fish)
    string(REPLACE ":" ";" completion ${completion})
    list(POP_FRONT completion shell path)
    install(CODE "
      execute_process(COMMAND \"${CMAKE_BINARY_DIR}/salvo\" completions ${shell} OUTPUT_VARIABLE text RESULT_VARIABLE failed)
      if(failed)
        message(FATAL_ERROR \"salvo completions ${shell} failed\")
      endif()
      set(target \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/${path}\")
      message(STATUS \"Installing: \${target}\")
      file(WRITE \"\${target}\" \"\${text}\")")
  endforeach()
endif()

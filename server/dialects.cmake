# Reading requests and writing answers, for tests that need no libevent.
set(dialects)
foreach(name anthropic build calls choice constraint dialect error json model ollama request responses tools write_llama write_openai write_parts)
  list(APPEND dialects ${PROJECT_SOURCE_DIR}/server/api_${name}.c)
endforeach()

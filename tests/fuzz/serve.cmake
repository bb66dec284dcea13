# The endpoints of the server over a fake HTTP, which needs no libevent.
set(server ${PROJECT_SOURCE_DIR}/server)
file(GLOB endpoints CONFIGURE_DEPENDS ${server}/api_*.c)
get_target_property(dialects salvo-dialects SOURCES)
list(TRANSFORM dialects PREPEND ${server}/)
list(REMOVE_ITEM endpoints ${dialects} ${server}/api_webui.c ${server}/api_workers.c)
salvo_fuzz(fuzz_serve SOURCES fuzz_serve.c fake_http.c ${endpoints}
  ../models/vocabulary_copy.c ../unit/text_sample.c ../unit/gguf_sample.c
  ../tools/model_mix.c ../tools/model_plan.c ../tools/model_write.c ../tools/random_weights.c
  SEEDS seeds-serve DICTIONARY requests.dict)
target_link_libraries(fuzz_serve PRIVATE salvo-dialects)

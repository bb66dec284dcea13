# The endpoints of the server over a fake HTTP, which needs no libevent.
set(server ${PROJECT_SOURCE_DIR}/server)
file(GLOB endpoints CONFIGURE_DEPENDS ${server}/api_*.c)
list(REMOVE_ITEM endpoints ${server}/api_webui.c ${server}/api_workers.c)
salvo_fuzz(fuzz_serve SOURCES fuzz_serve.c fake_http.c ${endpoints} ${server}/http_access.c ${server}/http_request.c
  ../models/vocabulary_copy.c ../unit/text_sample.c ../unit/gguf_sample.c
  ../tools/model_mix.c ../tools/model_plan.c ../tools/model_write.c ../tools/random_weights.c
  SEEDS seeds-serve DICTIONARY requests.dict)
target_include_directories(fuzz_serve PRIVATE ../tools)

salvo_fuzz(fuzz_http SOURCES fuzz_http.c SEEDS seeds-http DICTIONARY http.dict)
target_link_libraries(fuzz_http PRIVATE salvo-dialects)

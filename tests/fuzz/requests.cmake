salvo_fuzz(fuzz_requests SOURCES fuzz_requests.c SEEDS seeds-requests DICTIONARY requests.dict)
target_link_libraries(fuzz_requests PRIVATE salvo-dialects)

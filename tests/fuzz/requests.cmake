include(${PROJECT_SOURCE_DIR}/server/dialects.cmake)
salvo_fuzz(fuzz_requests SOURCES fuzz_requests.c ${dialects} SEEDS seeds-requests DICTIONARY requests.dict)

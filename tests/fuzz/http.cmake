set(server ${PROJECT_SOURCE_DIR}/server)
salvo_fuzz(fuzz_http SOURCES fuzz_http.c ${server}/http_head.c ${server}/http_parser.c ${server}/http_request.c
  SEEDS seeds-http DICTIONARY http.dict)

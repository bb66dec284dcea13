/* Functions that several endpoints of Ollama use. */
#ifndef SERVER_API_OLLAMA_H
#define SERVER_API_OLLAMA_H

#include "api_json.h"

/* A time as Ollama writes it: "2025-01-31T12:00:00Z". */
void api_write_ollama_time(struct json_writer *json, const char *key, int64_t seconds);

#endif

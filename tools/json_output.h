/* JSON on standard output. */
#ifndef TOOLS_JSON_OUTPUT_H
#define TOOLS_JSON_OUTPUT_H

#include "base/json.h"

/* A writer to standard output; main reports errors of the stream. */
struct json_writer json_output(void);

/* A metadata value of a GGUF file. */
void json_value(struct json_writer *json, struct salvo_value value);

#endif

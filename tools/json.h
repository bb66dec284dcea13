/* Writes one JSON value to a stream as it goes; commas and escapes are its business. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <salvo/salvo.h>

#include <stdio.h>

struct json {
    FILE *stream;
    bool need_comma;
};

void json_begin(struct json *json, char bracket); /* '{' or '[' */
void json_end(struct json *json, char bracket);   /* '}' or ']' */
void json_key(struct json *json, const char *key);
void json_key_text(struct json *json, struct salvo_text key);

void json_string(struct json *json, const char *text);
void json_text(struct json *json, struct salvo_text text); /* bytes that are not UTF-8 become U+FFFD */
void json_unsigned(struct json *json, uint64_t number);
void json_signed(struct json *json, int64_t number);
void json_float(
    struct json *json, double number, bool single); /* null when not finite: JSON has no word for it */
void json_bool(struct json *json, bool value);
void json_value(struct json *json, struct salvo_value value);

/* The shortest text that reads back as the same number; 40 bytes are enough. */
const char *format_float(double number, bool single, char *text);

#endif

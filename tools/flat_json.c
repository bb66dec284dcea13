#include "flat_json.h"

#include <stdio.h>

bool flat_json_read(const char *text, size_t size, size_t longest,
    void (*take)(void *user, const char *key, const struct json_event *value), void *user)
{
    struct json_reader reader = {.longest = longest};
    struct json_event event = {.kind = JSON_NULL};
    char key[16] = "";
    json_reader_feed(&reader, text, size, true);
    while (event.kind != JSON_DONE && json_reader_next(&reader, &event) == SALVO_OK) {
        const int length = event.text.size < sizeof key ? (int)event.text.size : (int)sizeof key - 1;
        if (event.kind == JSON_KEY)
            snprintf(key, sizeof key, "%.*s", length, event.text.data);
        else
            take(user, key, &event);
    }
    json_reader_free(&reader);
    return event.kind == JSON_DONE;
}

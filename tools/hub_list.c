/* Reads the list of files of a repository: an array of {"type", "path", "size", "lfs": {"oid", "size"}}, in
 * one or several pages. */
#include "base/json.h"
#include "command.h"
#include "http_retry.h"
#include "hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_PAGES = 100, LARGEST_PAGE = 64 << 20, MOST_FILES = 100000 };

struct listing_page {
    struct hub_listing *listing;
    struct json_reader reader;
    size_t depth, bytes;
    char key[32], outer_key[32]; /* current key; key of the object within the entry that contains it */
    char path[HUB_PATH], sha256[SHA256_TEXT];
    bool is_file, is_complete;
    uint64_t size;
    const char *problem;
};

static void take_value(struct listing_page *page, const struct json_event *event)
{
    const char *text = event->text.data;
    const size_t size = event->text.size;
    const bool in_lfs = page->depth == 3 && strcmp(page->outer_key, "lfs") == 0;
    if (page->depth != 2 && !in_lfs)
        return;
    if (event->kind == JSON_STRING && !in_lfs && strcmp(page->key, "type") == 0) {
        page->is_file = size == 4 && memcmp(text, "file", 4) == 0;
    } else if (event->kind == JSON_STRING && !in_lfs && strcmp(page->key, "path") == 0) {
        if (size < sizeof page->path && !memchr(text, 0, size))
            snprintf(page->path, sizeof page->path, "%.*s", (int)size, text);
    } else if (event->kind == JSON_STRING && in_lfs && strcmp(page->key, "oid") == 0) {
        const size_t prefix = size > 7 && memcmp(text, "sha256:", 7) == 0 ? 7 : 0;
        if (sha256_is_valid(text + prefix, size - prefix))
            memcpy(page->sha256, text + prefix, SHA256_TEXT - 1);
    } else if (event->kind == JSON_INTEGER && strcmp(page->key, "size") == 0 && event->integer >= 0) {
        page->size = (uint64_t)event->integer;
    }
}

static void end_entry(struct listing_page *page)
{
    struct hub_file file = {.path = page->path, .size = page->size};
    const size_t length = strlen(page->path);
    memcpy(file.sha256, page->sha256, sizeof file.sha256);
    const bool is_model = page->is_file && length > 5 && strcasecmp(page->path + length - 5, ".gguf") == 0;
    if (is_model && page->listing->count >= MOST_FILES)
        page->problem = "it has too many files";
    else if (is_model && hub_path_is_inner(page->path) && !hub_listing_add(page->listing, &file))
        page->problem = "out of memory";
}

static void take_event(struct listing_page *page, const struct json_event *event)
{
    switch (event->kind) {
    case JSON_OBJECT_BEGIN:
    case JSON_ARRAY_BEGIN:
        if (page->depth == 0 && event->kind != JSON_ARRAY_BEGIN)
            page->problem = "it is not an array";
        if (++page->depth == 2) {
            page->path[0] = 0;
            memset(page->sha256, 0, sizeof page->sha256);
            page->is_file = false;
            page->size = 0;
        } else if (page->depth == 3) {
            memcpy(page->outer_key, page->key, sizeof page->outer_key);
        }
        break;
    case JSON_OBJECT_END:
    case JSON_ARRAY_END:
        if (page->depth-- == 2)
            end_entry(page);
        break;
    case JSON_KEY:
        snprintf(page->key, sizeof page->key, "%.*s", (int)(event->text.size < 31 ? event->text.size : 31),
            event->text.data);
        break;
    default:
        take_value(page, event);
    }
}

static bool read_events(struct listing_page *page)
{
    struct json_event event;
    while (!page->problem) {
        if (json_reader_next(&page->reader, &event) != SALVO_OK)
            page->problem = page->reader.error;
        else if (event.kind == JSON_MORE)
            return true;
        else if (event.kind == JSON_DONE)
            return page->is_complete = true;
        else
            take_event(page, &event);
    }
    return false;
}

static bool begin_page(void *user, const struct http_reply *reply)
{
    struct listing_page *page = user;
    if (reply->is_encoded)
        page->problem = "it is compressed";
    return !page->problem;
}

static bool add_to_page(void *user, const char *data, size_t size)
{
    struct listing_page *page = user;
    page->bytes += size;
    if (page->bytes > LARGEST_PAGE)
        page->problem = "it is too long";
    json_reader_feed(&page->reader, data, size, false);
    return !page->problem && read_events(page);
}

/* One page; `next` gets the address of the one that follows, or "". */
static int read_page(const struct http_request *request, struct hub_listing *listing, char next[HTTP_URL])
{
    struct http_reply reply;
    char error[HTTP_URL + HTTP_TEXT];
    const size_t before = listing->count;
    next[0] = 0;
    for (unsigned tries = 0;; tries++) {
        struct listing_page page = {.listing = listing, .reader = {.longest = 4096}};
        struct http_request own = *request;
        own.user = &page;
        enum http_result result = http_get(&own, &reply, error);
        if (result == HTTP_DONE && reply.status == 200 && !page.problem) {
            json_reader_feed(&page.reader, "", 0, true);
            (void)read_events(&page);
        }
        const char *problem = page.problem;
        char text[HTTP_TEXT];
        if (problem)
            snprintf(text, sizeof text, "%s", problem);
        json_reader_free(&page.reader);
        if (problem)
            return failure("%s: the list of files cannot be read: %s", request->url, text);
        if (page.is_complete) {
            memcpy(next, reply.next, HTTP_URL);
            return EXIT_DONE;
        }
        while (listing->count > before) /* the page is read again */
            free(listing->files[--listing->count].path);
        if (tries == HTTP_TRIES || !http_may_retry(request, result, &reply))
            return http_complain(request, result, &reply, error);
        http_pause(&reply, tries);
    }
}

int hub_list(const struct hub_reference *reference, uint32_t timeout, struct hub_listing *out)
{
    char url[HTTP_URL], next[HTTP_URL], mine[HTTP_TEXT], other[HTTP_TEXT];
    const struct http_request request = {.url = url,
        .token = hub_token(),
        .endpoint = hub_endpoint(),
        .timeout = timeout,
        .begin = begin_page,
        .body = add_to_page};
    *out = (struct hub_listing){0};
    if (!url_origin(hub_endpoint(), mine, sizeof mine))
        return usage_error("HF_ENDPOINT '%s' is not an HTTP or HTTPS URL", hub_endpoint());
    snprintf(
        url, sizeof url, "%s/api/models/%s/tree/main?recursive=true", hub_endpoint(), reference->repository);
    for (int page = 0; page < MOST_PAGES; page++) {
        int result = read_page(&request, out, next);
        if (result != EXIT_DONE || !*next)
            return result;
        if (!url_origin(next, other, sizeof other) || strcmp(mine, other) != 0)
            return failure("%s: the list of files continues at another server: %s", url, next);
        memcpy(url, next, sizeof url);
    }
    return failure("%s: the list of files has more than %d pages", url, MOST_PAGES);
}

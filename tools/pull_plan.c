#include "pull_plan.h"

#include "command.h"
#include "known_models.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LONGEST_NAME = 200 }; /* NAME_MAX less the endings of files in .salvo */

/* Whether the character is a control of a terminal, or changes the direction of writing, or ends a line: with
 * it a name could look like another name. */
static bool is_control(const unsigned char *at)
{
    if (at[0] == 0xe2 && at[1] == 0x80)
        return at[2] >= 0xa8 && at[2] <= 0xae; /* U+2028 to U+202E */
    if (at[0] == 0xe2 && at[1] == 0x81)
        return at[2] >= 0xa6 && at[2] <= 0xa9;                               /* U+2066 to U+2069 */
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0); /* U+0080 to U+009F */
}

bool is_model_file_name(const char *name)
{
    const size_t length = strlen(name);
    if (length <= 5 || length > LONGEST_NAME || strcmp(name + length - 5, ".gguf") != 0)
        return false;
    if (name[0] == '.' || name[0] == '-')
        return false;
    for (const char *at = name; *at; at++) {
        if (*at == '/' || *at == '\\' || is_control((const unsigned char *)at))
            return false;
    }
    return true;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The name of a file in the models folder: as the source calls it, or with the stem that the user gives. */
static int name_file(const struct pull_request *request, const char *base, struct pull_file *file)
{
    size_t stem;
    unsigned parts;
    const unsigned number = split_number(base, &stem, &parts);
    const char *given = request->name;
    int given_length = given ? (int)strlen(given) : 0;
    if (given_length > 5 && strcasecmp(given + given_length - 5, ".gguf") == 0)
        given_length -= 5;
    if (!given)
        snprintf(file->name, sizeof file->name, "%.*s.gguf", (int)strlen(base) - 5, base);
    else if (number)
        snprintf(file->name, sizeof file->name, "%.*s-%05u-of-%05u.gguf", given_length, given, number, parts);
    else
        snprintf(file->name, sizeof file->name, "%.*s.gguf", given_length, given);
    if (is_model_file_name(file->name))
        return EXIT_DONE;
    return usage_error(
        "'%s' cannot be the name of a model file; --name gives another one", given ? given : base);
}

static int allocate(struct pull_plan *plan, size_t count)
{
    plan->files = calloc(count, sizeof *plan->files);
    plan->count = plan->files ? count : 0;
    return plan->files ? EXIT_DONE : failure("out of memory");
}

static int check_sum_option(const struct pull_request *request, size_t files)
{
    if (!request->sha256)
        return EXIT_DONE;
    if (!sha256_is_valid(request->sha256, strlen(request->sha256)))
        return usage_error(
            "invalid --sha256 '%s': expected 64 hexadecimal digits in lower case", request->sha256);
    if (files > 1)
        return usage_error("--sha256 is for one file; the model has %zu", files);
    return EXIT_DONE;
}

/* ---- A hub ---- */

static int take_listed(const struct pull_request *request, const struct hub_reference *reference,
    const struct hub_choice *choice, struct pull_plan *plan)
{
    int result = check_sum_option(request, choice->count);
    if (result == EXIT_DONE)
        result = allocate(plan, choice->count);
    for (size_t i = 0; i < choice->count && result == EXIT_DONE; i++) {
        const struct hub_file *listed = choice->files[i];
        struct pull_file *file = &plan->files[i];
        if (request->sha256 && *listed->sha256 && strcmp(request->sha256, listed->sha256) != 0)
            return failure("%s: the hub has a file with SHA-256 %s, not %s", listed->path, listed->sha256,
                request->sha256);
        snprintf(file->sha256, sizeof file->sha256, "%s", request->sha256 ? request->sha256 : listed->sha256);
        snprintf(file->source, sizeof file->source, "hf:%s/%s", reference->repository, listed->path);
        file->size = listed->size;
        file->has_size = file->is_listed = true;
        if (!hub_url(reference, listed->path, file->url, sizeof file->url))
            return failure("%s: the path is too long", listed->path);
        result = name_file(request, base_name(listed->path), file);
    }
    return result;
}

static int plan_hub(const struct pull_request *request, struct pull_plan *plan)
{
    struct hub_reference reference;
    struct hub_listing listing = {0};
    struct hub_choice choice = {0};
    char error[HUB_ERROR];
    int result = hub_parse(request->source, &reference);
    if (result == EXIT_DONE)
        result = hub_list(&reference, request->timeout, &listing);
    if (result == EXIT_DONE && !hub_choose(&reference, &listing, &choice, error))
        result = failure("%s: %s", request->source, error);
    if (result == EXIT_DONE)
        result = take_listed(request, &reference, &choice, plan);
    free(choice.files);
    hub_listing_free(&listing);
    return result;
}

/* ---- A URL ---- */

static int hex_value(char digit)
{
    return isdigit((unsigned char)digit) ? digit - '0' : tolower((unsigned char)digit) - 'a' + 10;
}

/* The last part of the URL's path, decoded. */
static void name_in_url(const char *url, char *out, size_t room)
{
    const char *end = url + strcspn(url, "?#"), *at = end;
    size_t used = 0;
    while (at > url && at[-1] != '/')
        at--;
    for (; at < end && used + 1 < room; at++) {
        const bool is_coded =
            *at == '%' && end - at > 2 && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]);
        out[used++] = is_coded ? (char)(16 * hex_value(at[1]) + hex_value(at[2])) : *at;
        at += is_coded ? 2 : 0;
    }
    out[used] = 0;
}

static int plan_url(const struct pull_request *request, struct pull_plan *plan)
{
    char name[NAME_MAX + 1], origin[HTTP_TEXT];
    size_t stem;
    unsigned parts;
    const char *url = request->source, *end = url + strcspn(url, "?#");
    if (strlen(url) >= HTTP_URL)
        return usage_error("the URL has more than %d bytes", HTTP_URL - 1);
    if (!url_origin(url, origin, sizeof origin))
        return usage_error(
            "%s: a URL with a user name or unusual characters in its host is not supported", url);
    name_in_url(url, name, sizeof name);
    if (strlen(name) <= 5 || strcasecmp(name + strlen(name) - 5, ".gguf") != 0) {
        if (!request->name)
            return usage_error("%s: the URL does not end in the name of a .gguf file; --name gives one", url);
        snprintf(name, sizeof name, "model.gguf"); /* which --name replaces */
    }
    /* Split parts are found by their number at the end of the path. */
    const bool is_split = split_number(name, &stem, &parts) && end - url > 20;
    int result = check_sum_option(request, is_split ? parts : 1);
    if (result == EXIT_DONE)
        result = allocate(plan, is_split ? parts : 1);
    for (unsigned i = 0; result == EXIT_DONE && i < plan->count; i++) {
        struct pull_file *file = &plan->files[i];
        if (is_split) {
            char number[8];
            snprintf(number, sizeof number, "%05u", i + 1);
            memcpy(name + stem + 1, number, 5);
            snprintf(file->url, sizeof file->url, "%.*s%s%s", (int)(end - url - 19), url, number, end - 14);
        } else {
            snprintf(file->url, sizeof file->url, "%s", url);
        }
        snprintf(file->source, sizeof file->source, "%s", file->url);
        snprintf(file->sha256, sizeof file->sha256, "%s", request->sha256 ? request->sha256 : "");
        result = name_file(request, name, file);
    }
    return result;
}

int pull_plan_make(const struct pull_request *request, struct pull_plan *out)
{
    struct pull_request own = *request;
    *out = (struct pull_plan){0};
    const struct known_model *known = own.source ? known_model_find(own.source) : &known_models[0];
    if (known) {
        own.source = known->source;
        own.sha256 = own.sha256 ? own.sha256 : known->sha256;
    }
    if (hub_is_reference(own.source))
        return plan_hub(&own, out);
    if (strncasecmp(own.source, "http://", 7) == 0 || strncasecmp(own.source, "https://", 8) == 0)
        return plan_url(&own, out);
    return usage_error("%s: expected hf:ORG/REPO[:QUANT|/FILE.gguf], a URL, or a name that `salvo help pull` "
                       "lists",
        own.source);
}

void pull_plan_free(struct pull_plan *plan)
{
    free(plan->files);
    *plan = (struct pull_plan){0};
}

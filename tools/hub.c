#include "hub.h"

#include "command.h"
#include "http_retry.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *hub_endpoint(void)
{
    static char endpoint[HTTP_TEXT];
    const char *given = getenv("HF_ENDPOINT");
    snprintf(endpoint, sizeof endpoint, "%s", given && *given ? given : "https://huggingface.co");
    size_t length = strlen(endpoint);
    while (length && endpoint[length - 1] == '/')
        endpoint[--length] = 0;
    return endpoint;
}

/* NULL if the token has a blank or a control character: a line break would add headers. */
const char *hub_token(void)
{
    const char *token = getenv("HF_TOKEN");
    for (const char *at = token; at && *at; at++) {
        if (*at <= ' ' || *at > '~')
            return NULL;
    }
    return token && *token && strlen(token) < 1024 ? token : NULL;
}

bool hub_is_reference(const char *text)
{
    return strncmp(text, "hf:", 3) == 0;
}

/* ORG/REPO: letters, digits, and - _ . within. Returns its length, 0 for anything else. */
static size_t repository_length(const char *text)
{
    size_t length = 0, parts = 1, part = 0;
    for (; text[length] && !(text[length] == '/' && parts == 2) && text[length] != ':'; length++) {
        const char byte = text[length];
        if (byte == '/') {
            if (part == 0)
                return 0;
            parts++;
            part = 0;
            continue;
        }
        const bool is_inner = strchr("-_.", byte) != NULL;
        if (!isalnum((unsigned char)byte) && !(is_inner && (part || byte == '_')))
            return 0;
        part++;
    }
    return parts == 2 && part ? length : 0;
}

/* A path that stays within the repository. */
bool hub_path_is_inner(const char *path)
{
    if (!*path || *path == '/' || strlen(path) >= HUB_PATH)
        return false;
    for (const char *part = path;; part++) {
        const size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && part[0] == '.') || (length == 2 && memcmp(part, "..", 2) == 0))
            return false;
        part += length;
        if (!*part)
            return true;
    }
}

static bool ends_in_gguf(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && strcasecmp(path + length - 5, ".gguf") == 0;
}

int hub_parse(const char *text, struct hub_reference *out)
{
    const char *rest = text + strlen("hf:");
    const size_t length = repository_length(rest);
    *out = (struct hub_reference){.quant = ""};
    if (!length || length >= sizeof out->repository)
        return usage_error("%s: expected hf:ORG/REPO, hf:ORG/REPO:QUANT or hf:ORG/REPO/FILE.gguf", text);
    memcpy(out->repository, rest, length);
    rest += length;
    if (*rest == ':') {
        const size_t size = strlen(++rest);
        for (const char *at = rest; *at; at++) {
            if (!isalnum((unsigned char)*at) && *at != '_' && *at != '-')
                return usage_error("%s: '%s' is not the name of a quantisation, such as Q4_K_M", text, rest);
        }
        if (!size || size >= sizeof out->quant)
            return usage_error("%s: expected the name of a quantisation behind ':', such as Q4_K_M", text);
        if (strcasecmp(rest, "latest") != 0) /* the default, as Ollama calls it */
            memcpy(out->quant, rest, size);
    } else if (*rest == '/') {
        if (!hub_path_is_inner(rest + 1) || !ends_in_gguf(rest + 1))
            return usage_error("%s: expected the path of a .gguf file behind the repository", text);
        snprintf(out->file, sizeof out->file, "%s", rest + 1);
    }
    return EXIT_DONE;
}

/* ---- Addresses ---- */

static void append_encoded(char *out, size_t room, const char *path)
{
    size_t used = strlen(out);
    for (; *path && used + 4 < room; path++) {
        const bool is_plain = isalnum((unsigned char)*path) || strchr("-._~/", *path);
        used += (size_t)snprintf(out + used, room - used, is_plain ? "%c" : "%%%02X", (unsigned char)*path);
    }
}

bool hub_url(const struct hub_reference *reference, const char *path, char *out, size_t room)
{
    snprintf(out, room, "%s/%s/resolve/main/", hub_endpoint(), reference->repository);
    append_encoded(out, room, path);
    return strlen(out) + 4 < room;
}

/* ---- Choosing ---- */

unsigned split_number(const char *name, size_t *stem, unsigned *out_parts)
{
    enum { SUFFIX = 20 }; /* -00001-of-00002.gguf */
    const size_t length = strlen(name);
    const char *at = name + length - SUFFIX;
    *out_parts = 0;
    *stem = length > 5 ? length - 5 : length;
    if (length <= SUFFIX || at[0] != '-' || memcmp(at + 6, "-of-", 4) != 0)
        return 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)at[1 + i]) || !isdigit((unsigned char)at[10 + i]))
            return 0;
    }
    const unsigned number = (unsigned)strtoul(at + 1, NULL, 10), parts = (unsigned)strtoul(at + 10, NULL, 10);
    if (number == 0 || number > parts)
        return 0;
    *stem = length - SUFFIX;
    *out_parts = parts;
    return number;
}

/* Whether the path names the quantisation: Q4_K is not in model-Q4_K_M.gguf. */
static bool names_quant(const char *path, const char *quant)
{
    const size_t length = strlen(quant);
    for (const char *at = path; *at; at++) {
        if (strncasecmp(at, quant, length) != 0)
            continue;
        const bool begins = at == path || !isalnum((unsigned char)at[-1]);
        if (begins && !isalnum((unsigned char)at[length]) && at[length] != '_')
            return true;
    }
    return false;
}

/* Other GGUF files of repositories: vision parts, and importance matrices. */
static bool is_beside_models(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strncasecmp(name, "mmproj", 6) == 0 || strstr(name, "imatrix");
}

static bool fits(const struct hub_reference *reference, const char *quant, const struct hub_file *file)
{
    size_t stem, wanted_stem;
    unsigned parts, wanted_parts;
    if (split_number(file->path, &stem, &parts) > 1)
        return false;
    if (!*reference->file)
        return !is_beside_models(file->path) && (!*quant || names_quant(file->path, quant));
    if (strcmp(file->path, reference->file) == 0)
        return true;
    return split_number(reference->file, &wanted_stem, &wanted_parts) && parts == wanted_parts &&
           stem == wanted_stem && memcmp(file->path, reference->file, stem) == 0;
}

static size_t count_fitting(const struct hub_reference *reference, const char *quant,
    const struct hub_listing *listing, const struct hub_file **first)
{
    size_t count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        if (fits(reference, quant, &listing->files[i]) && count++ == 0)
            *first = &listing->files[i];
    }
    return count;
}

static void list_names(const struct hub_reference *reference, const char *quant,
    const struct hub_listing *listing, char *out, size_t room)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < listing->count && used < room; i++) {
        if (fits(reference, quant, &listing->files[i]))
            used +=
                (size_t)snprintf(out + used, room - used, "%s%s", used ? ", " : "", listing->files[i].path);
    }
}

static bool collect_parts(
    const struct hub_listing *listing, const struct hub_file *first, struct hub_choice *out, char *error)
{
    size_t stem;
    unsigned parts;
    const bool is_split = split_number(first->path, &stem, &parts) > 0;
    out->files = calloc(is_split ? parts : 1, sizeof *out->files);
    if (!out->files) {
        snprintf(error, HUB_ERROR, "out of memory");
        return false;
    }
    out->files[out->count++] = first;
    for (unsigned number = 2; is_split && number <= parts; number++) {
        char path[HUB_PATH];
        snprintf(path, sizeof path, "%.*s-%05u-of-%05u.gguf", (int)stem, first->path, number, parts);
        const struct hub_file *found = NULL;
        for (size_t i = 0; i < listing->count && !found; i++)
            found = strcmp(listing->files[i].path, path) == 0 ? &listing->files[i] : NULL;
        if (!found) {
            snprintf(error, HUB_ERROR, "%s is missing", path);
            free(out->files);
            *out = (struct hub_choice){0};
            return false;
        }
        out->files[out->count++] = found;
    }
    return true;
}

bool hub_choose(const struct hub_reference *reference, const struct hub_listing *listing,
    struct hub_choice *out, char error[HUB_ERROR])
{
    char names[900];
    const char *quant = reference->quant;
    const struct hub_file *first = NULL;
    *out = (struct hub_choice){0};
    size_t count = count_fitting(reference, quant, listing, &first);
    if (count > 1 && !*quant) {
        count = count_fitting(reference, quant = "Q4_K_M", listing, &first);
        if (count == 0)
            count = count_fitting(reference, quant = "Q8_0", listing, &first);
    }
    if (count == 1)
        return collect_parts(listing, first, out, error);
    list_names(reference, count ? quant : "", listing, names, sizeof names);
    if (*reference->file)
        snprintf(error, HUB_ERROR, "the repository has no file %s", reference->file);
    else if (count > 1)
        snprintf(error, HUB_ERROR, "several files fit %s; name one: %s", quant, names);
    else if (!*names)
        snprintf(error, HUB_ERROR, "the repository has no GGUF model");
    else
        snprintf(error, HUB_ERROR, "no file with %s; name one: %s",
            *reference->quant ? quant : "Q4_K_M or Q8_0, the defaults", names);
    return false;
}

/* ---- Listings ---- */

bool hub_listing_add(struct hub_listing *listing, const struct hub_file *file)
{
    if (listing->count == listing->capacity) {
        const size_t capacity = listing->capacity ? 2 * listing->capacity : 16;
        struct hub_file *files = realloc(listing->files, capacity * sizeof *files);
        if (!files)
            return false;
        listing->files = files;
        listing->capacity = capacity;
    }
    struct hub_file copy = *file;
    copy.path = strdup(file->path);
    if (!copy.path)
        return false;
    listing->files[listing->count++] = copy;
    return true;
}

void hub_listing_free(struct hub_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        free(listing->files[i].path);
    free(listing->files);
    *listing = (struct hub_listing){0};
}

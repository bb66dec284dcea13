#include "engine/backends.h"

#include "engine/arguments.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

const struct backend *const all_backends[] = {
#ifdef SALVO_CUDA
    &cuda_backend,
#endif
#ifdef SALVO_VULKAN
    &vulkan_backend,
#endif
    &metal_backend,
    &cpu_backend,
    NULL,
};

/* Every backend, in the order of all_backends; `missing` says why it is not in this build. */
static const struct {
    const char *name, *missing;
} known[] = {
#ifdef SALVO_CUDA
    {"cuda", NULL},
#else
    {"cuda", SALVO_CUDA_MISSING},
#endif
#ifdef SALVO_VULKAN
    {"vulkan", NULL},
#else
    {"vulkan", SALVO_VULKAN_MISSING},
#endif
    {"metal", NULL},
    {"cpu", NULL},
};

static const struct backend *built_in(const char *name)
{
    for (size_t i = 0; all_backends[i]; i++) {
        if (strcmp(all_backends[i]->name, name) == 0)
            return all_backends[i];
    }
    return NULL;
}

size_t salvo_backend_count(void)
{
    return sizeof known / sizeof *known;
}

enum salvo_status salvo_backend_at(size_t index, struct salvo_backend *out)
{
    REQUIRE(out);
    if (index >= salvo_backend_count())
        return fail(
            SALVO_ERROR_ARGUMENT, "backend %zu was asked for; there are %zu", index, salvo_backend_count());
    const struct backend *backend = built_in(known[index].name);
    struct salvo_backend result = {
        .name = known[index].name, .built = backend != NULL, .why = known[index].missing};
    if (backend) {
        result.devices = backend->device_count();
        if (result.devices == 0)
            result.why = backend->why_none ? backend->why_none() : "it found none";
    }
    return result_write("salvo_backend", &result, sizeof result, out);
}

static const char *built_in_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; all_backends[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", all_backends[i]->name);
    return text;
}

/* Whether `auto` may use a backend: it has a device, and does not ask to be skipped. */
static bool auto_may_use(const struct backend *backend)
{
    return backend->device_count() > 0 && !(backend->auto_skips && backend->auto_skips());
}

static bool is_auto(const char *name)
{
    return !name || strcmp(name, "auto") == 0;
}

/* Warns that `auto` skips a backend because none of its devices can be used; not of one that it never
 * takes. */
static void warn_skipped(const struct backend *taken)
{
    for (size_t i = 0; all_backends[i] && all_backends[i] != taken; i++) {
        const struct backend *backend = all_backends[i];
        if (backend->device_count() == 0 && !backend->auto_skips && backend->unusable &&
            backend->unusable(0)) {
            log_line(SALVO_LOG_WARNING, "%s: %s; going on with %s", backend->name, backend->unusable(0),
                taken->name);
        }
    }
}

enum salvo_status backend_find(const char *name, const struct backend **out)
{
    const bool any = is_auto(name);
    *out = any ? NULL : built_in(name);
    for (size_t i = 0; any && !*out && all_backends[i]; i++) {
        if (auto_may_use(all_backends[i]))
            *out = all_backends[i];
    }
    if (any && *out)
        warn_skipped(*out);
    if (*out)
        return SALVO_OK;
    char names[64];
    if (any)
        return fail(
            SALVO_ERROR_UNSUPPORTED, "no backend (%s) has a device", built_in_names(names, sizeof names));
    for (size_t i = 0; i < salvo_backend_count(); i++) {
        if (strcmp(known[i].name, name) == 0)
            return fail(SALVO_ERROR_UNSUPPORTED, "backend '%s' is not in this build: %s; it has: %s", name,
                known[i].missing, built_in_names(names, sizeof names));
    }
    return fail(SALVO_ERROR_ARGUMENT, "backend '%s' is not known; this build has: %s", name,
        built_in_names(names, sizeof names));
}

const struct backend *backend_after(const char *name, const struct backend *backend)
{
    size_t i = 0;
    while (all_backends[i] && all_backends[i] != backend)
        i++;
    while (all_backends[i] && all_backends[++i]) {
        if (is_auto(name) && auto_may_use(all_backends[i]))
            return all_backends[i];
    }
    return NULL;
}

enum salvo_status backend_check_device(const struct backend *backend, uint32_t number)
{
    const uint32_t count = backend->device_count();
    if (number < count)
        return SALVO_OK;
    if (count == 0 && backend->why_none)
        return fail(
            SALVO_ERROR_UNSUPPORTED, "backend '%s' has no device: %s", backend->name, backend->why_none());
    return fail(
        SALVO_ERROR_ARGUMENT, "backend '%s' has no device %u: it has %u", backend->name, number, count);
}

#include "engine/backends.h"

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
    &cpu_backend,
    NULL,
};

static bool is_known(const char *name)
{
    static const char *const names[] = {"cpu", "cuda", "vulkan"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

static const char *built_in_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; all_backends[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", all_backends[i]->name);
    return text;
}

/* What `auto` takes: a backend with a device, unless all it has is a processor that acts as one. */
static bool is_taken_by_auto(const struct backend *backend)
{
    return backend->device_count() > 0 && !(backend->is_only_asked && backend->is_only_asked());
}

static bool is_auto(const char *name)
{
    return !name || strcmp(name, "auto") == 0;
}

/* Says why `auto` passes over a backend whose devices are all of a kind that cannot be used. */
static void tell_passed_over(const struct backend *taken)
{
    for (size_t i = 0; all_backends[i] != taken; i++) {
        const struct backend *backend = all_backends[i];
        if (backend->device_count() == 0 && backend->unusable && backend->unusable(0))
            log_line(SALVO_LOG_WARNING, "%s: %s; going on with %s", backend->name, backend->unusable(0),
                taken->name);
    }
}

enum salvo_status backend_find(const char *name, const struct backend **out)
{
    const bool any = is_auto(name);
    for (size_t i = 0; all_backends[i]; i++) {
        if (any ? is_taken_by_auto(all_backends[i]) : strcmp(all_backends[i]->name, name) == 0) {
            *out = all_backends[i];
            if (any)
                tell_passed_over(*out);
            return SALVO_OK;
        }
    }
    *out = NULL;
    char names[64];
    if (any)
        return fail(
            SALVO_ERROR_UNSUPPORTED, "no backend (%s) has a device", built_in_names(names, sizeof names));
    if (is_known(name))
        return fail(SALVO_ERROR_UNSUPPORTED, "backend '%s' is not built in; this build has: %s", name,
            built_in_names(names, sizeof names));
    return fail(SALVO_ERROR_ARGUMENT, "backend '%s' is not known; this build has: %s", name,
        built_in_names(names, sizeof names));
}

const struct backend *backend_after(const char *name, const struct backend *backend)
{
    size_t i = 0;
    while (all_backends[i] && all_backends[i] != backend)
        i++;
    while (all_backends[i] && all_backends[++i]) {
        if (is_auto(name) && is_taken_by_auto(all_backends[i]))
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

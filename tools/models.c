#include "models.h"

#include "command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char default_model_name[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

bool models_folder(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length;
    if (cache && *cache)
        length = snprintf(path, size, "%s/salvo/models", cache);
    else if (home && *home)
        length = snprintf(path, size, "%s/.cache/salvo/models", home);
    else
        return false;
    return length > 0 && (size_t)length < size;
}

/* A name in the models folder, with or without its ending. */
static bool find_in_folder(const char *name, char *path, size_t size)
{
    char folder[PATH_MAX];
    if (!models_folder(folder, sizeof folder))
        return false;
    static const char *const endings[] = {"", ".gguf"};
    for (size_t i = 0; i < 2; i++) {
        int length = snprintf(path, size, "%s/%s%s", folder, name, endings[i]);
        if (length > 0 && (size_t)length < size && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

struct salvo_model *open_model(const char *given)
{
    char path[PATH_MAX];
    const char *environment = getenv("SALVO_MODEL");
    const char *name = given ? given : environment && *environment ? environment : NULL;
    if (name && (!*name || strchr(name, '/') || access(name, F_OK) == 0)) {
        snprintf(path, sizeof path, "%s", name);
    } else if (!find_in_folder(name ? name : default_model_name, path, sizeof path)) {
        char folder[PATH_MAX];
        if (!models_folder(folder, sizeof folder)) {
            failure("%s%sneither XDG_CACHE_HOME nor HOME is set: there is no models folder%s",
                name ? name : "", name ? ": no such file, and " : "",
                name ? "" : "; give a model with -m FILE");
        } else if (name) {
            failure("%s: no such file, and no model of that name; `salvo list` shows what is there", name);
        } else {
            failure("the default model is not there yet: `make run` fetches it, or give one with -m FILE");
        }
        return NULL;
    }
    struct salvo_model *model;
    if (salvo_model_open(path, &model) != SALVO_OK) {
        library_failure();
        return NULL;
    }
    return model;
}

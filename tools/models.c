#include "models.h"

#include "command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

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

/* One entry per model: of a split model the first file. */
static int is_model(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    const char *part = strstr(entry->d_name, "-of-");
    bool later_part =
        part && part - entry->d_name >= 6 && part[-6] == '-' && memcmp(part - 5, "00001", 5) != 0;
    return length > 5 && strcmp(entry->d_name + length - 5, ".gguf") == 0 && !later_part;
}

int models_scan(const char *folder, struct dirent ***out)
{
    *out = NULL;
    return scandir(folder, out, is_model, alphasort);
}

/* How well a model's file name fits the one that was given; the best ones are candidates. */
enum fit { FITS_NOT, FITS_AS_PREFIX, FITS_WITHOUT_CASE, FITS_EXACTLY };

static enum fit fit_of(const char *file, const char *name)
{
    const size_t length = strlen(name);
    if (strncasecmp(file, name, length) != 0)
        return FITS_NOT;
    const bool is_whole = !file[length] || strcasecmp(file + length, ".gguf") == 0;
    if (!is_whole)
        return FITS_AS_PREFIX;
    return strncmp(file, name, length) == 0 ? FITS_EXACTLY : FITS_WITHOUT_CASE;
}

static int ambiguous(const char *name, struct dirent *const *entries, int count, enum fit best)
{
    char list[1024];
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof list; i++) {
        if (fit_of(entries[i]->d_name, name) == best)
            used += (size_t)snprintf(
                list + used, sizeof list - used, "%s%s", used ? ", " : "", entries[i]->d_name);
    }
    return failure("%s: several models match: %s%s", name, list, used >= sizeof list ? "..." : "");
}

/* The best match for the name in the models folder. EXIT_DONE with an empty path when none matches. */
static int find_in_folder(const char *folder, const char *name, char *path, size_t size)
{
    struct dirent **entries;
    enum fit best = FITS_NOT;
    int candidates = 0, chosen = 0, result = EXIT_DONE;
    const int count = models_scan(folder, &entries);
    for (int i = 0; i < count; i++) {
        enum fit fit = fit_of(entries[i]->d_name, name);
        candidates = fit > best ? 1 : candidates + (fit == best);
        chosen = fit > best ? i : chosen;
        best = fit > best ? fit : best;
    }
    path[0] = 0;
    if (best == FITS_NOT)
        candidates = 0;
    if (candidates > 1)
        result = ambiguous(name, entries, count, best);
    else if (candidates == 1 && snprintf(path, size, "%s/%s", folder, entries[chosen]->d_name) >= (int)size)
        path[0] = 0;
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return result;
}

/* A path, or a file in the current folder. */
static bool is_path(const char *name)
{
    struct stat file;
    return !*name || strchr(name, '/') || (stat(name, &file) == 0 && !S_ISDIR(file.st_mode));
}

/* The path of the model that a name means, or of the default model. */
static int find_model(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    if (name && is_path(name)) {
        if (snprintf(path, PATH_MAX, "%s", name) >= PATH_MAX)
            return failure("%.60s...: the model name is too long", name);
        return EXIT_DONE;
    }
    if (!models_folder(folder, sizeof folder))
        return failure("%s%sno models folder: neither XDG_CACHE_HOME nor HOME is set%s", name ? name : "",
            name ? ": no such file, and " : "", name ? "" : "; give a model with -m FILE");
    int result = find_in_folder(folder, name ? name : default_model_name, path, PATH_MAX);
    if (result != EXIT_DONE || *path)
        return result;
    if (!name)
        return failure("the default model is not installed; `make run` downloads it, -m FILE uses another");
    struct stat file;
    if (stat(name, &file) == 0)
        return failure("%s: a folder, not a model, and no model of this name", name);
    return failure("%s: no such file and no model of this name; `salvo list` lists the models%s", name,
        strchr(name, ' ') ? ". Give a prompt with -p" : "");
}

struct salvo_model *open_model(const char *given)
{
    char path[PATH_MAX];
    const char *environment = getenv("SALVO_MODEL");
    struct salvo_model *model;
    if (find_model(given ? given : environment && *environment ? environment : NULL, path) != EXIT_DONE)
        return NULL;
    if (salvo_model_open(path, &model) != SALVO_OK) {
        library_failure();
        return NULL;
    }
    return model;
}

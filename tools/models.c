#include "models.h"

#include "command.h"
#include "known_models.h"
#include "model_folder.h"
#include "model_record.h"
#include "pull.h"
#include "question.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

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

int find_in_folder(const char *folder, const char *name, char path[PATH_MAX])
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
    else if (candidates == 1 &&
             snprintf(path, PATH_MAX, "%s/%s", folder, entries[chosen]->d_name) >= PATH_MAX)
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

/* Downloads a model that is not there: with --pull, or after a question on a terminal. */
static int offer_pull(const char *source, char path[PATH_MAX])
{
    struct pull_result result;
    const struct pull_request request = {.source = source, .timeout = PULL_TIMEOUT, .ask = !pull_wanted};
    if (!pull_wanted && !question_possible())
        return failure("%s is not in the models folder; `salvo pull %s` or the option --pull downloads it",
            source, source);
    const int status = pull_model(&request, &result);
    if (status == EXIT_DONE)
        memcpy(path, result.path, PATH_MAX);
    return status;
}

/* A model of a hub: the one that was pulled, or a new one. */
static int find_pulled(const char *source, const char *folder, char path[PATH_MAX])
{
    struct hub_reference reference;
    char name[NAME_MAX + 1];
    const int result = hub_parse(source, &reference);
    if (result != EXIT_DONE)
        return result;
    if (record_find(folder, &reference, name) && snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX)
        return EXIT_DONE;
    return offer_pull(source, path);
}

/* The path of the model that a name means, or of the default model. */
static int find_model(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    const bool is_reference = name && hub_is_reference(name);
    if (name && !is_reference && is_path(name)) {
        if (snprintf(path, PATH_MAX, "%s", name) >= PATH_MAX)
            return failure("%.60s...: the model name is too long", name);
        return EXIT_DONE;
    }
    if (!models_folder(folder, sizeof folder))
        return failure("%s%sno models folder: neither XDG_CACHE_HOME nor HOME is set%s", name ? name : "",
            name ? ": no such file, and " : "", name ? "" : "; give a model with -m FILE");
    if (is_reference)
        return find_pulled(name, folder, path);
    const int result = find_in_folder(folder, name ? name : default_model_name, path);
    if (result != EXIT_DONE || *path)
        return result;
    const struct known_model *known = name ? known_model_find(name) : NULL;
    if (known)
        return find_pulled(known->source, folder, path);
    if (!name && (pull_wanted || question_possible()))
        return offer_pull(known_models[0].name, path);
    if (!name)
        return failure("the default model is not installed; `salvo pull` downloads it, -m FILE uses another");
    struct stat file;
    if (stat(name, &file) == 0)
        return failure("%s: a folder, not a model, and no model of this name", name);
    return failure("%s: no such file and no model of this name; `salvo list` lists the models%s", name,
        strchr(name, ' ') ? ". Give a prompt with -p" : "");
}

/* Notes the use of a model of the models folder. */
static void note_use(const char *path)
{
    char folder[PATH_MAX];
    const size_t length = models_folder(folder, sizeof folder) ? strlen(folder) : 0;
    if (length && strncmp(path, folder, length) == 0 && path[length] == '/' &&
        !strchr(path + length + 1, '/'))
        record_use(folder, path + length + 1);
}

int open_model(const char *given, struct salvo_model **out)
{
    char path[PATH_MAX];
    const char *environment = getenv("SALVO_MODEL");
    *out = NULL;
    const int result = find_model(given ? given : environment && *environment ? environment : NULL, path);
    if (result != EXIT_DONE)
        return result;
    if (salvo_model_open(path, out) != SALVO_OK)
        return library_failure();
    note_use(path);
    return EXIT_DONE;
}

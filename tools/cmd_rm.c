#include "commands.h"
#include "hub.h"
#include "model_folder.h"
#include "model_record.h"
#include "models.h"
#include "question.h"
#include "terminal.h"
#include "unfinished.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    bool force;
} options;

static const struct option option_table[] = {
    {'f', "force", NULL, OPTION_FLAG, &options.force, "remove the model without a question"},
    {0},
};

/* Calls `act` for each file of the model, the first one first; false if it fails for one. */
static bool for_each_file(const char *folder, const char *name,
    bool (*act)(const char *folder, const char *name, void *user), void *user)
{
    size_t stem;
    unsigned parts;
    if (!split_number(name, &stem, &parts))
        return act(folder, name, user);
    for (unsigned i = 1; i <= parts; i++) {
        char part[NAME_MAX + 1];
        snprintf(part, sizeof part, "%.*s-%05u-of-%05u.gguf", (int)stem, name, i, parts);
        if (!act(folder, part, user))
            return false;
    }
    return true;
}

static bool add_size(const char *folder, const char *name, void *user)
{
    uint64_t *total = user;
    char path[PATH_MAX];
    struct stat file;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX && stat(path, &file) == 0)
        *total += (uint64_t)file.st_size;
    *total += unfinished_size(folder, name);
    return true;
}

static bool remove_file(const char *folder, const char *name, void *user)
{
    const bool *is_being_pulled = user;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX)
        return false;
    if (unlink(path) != 0 && errno != ENOENT) {
        failure("%s: cannot be removed: %s", path, strerror(errno));
        return false;
    }
    record_remove(folder, name);
    if (!*is_being_pulled)
        unfinished_remove(folder, name, NULL);
    return true;
}

/* Whether the user means the file by its whole name, with or without .gguf. */
static bool is_whole_name(const char *name, const char *given)
{
    const size_t length = strlen(given);
    return strcasecmp(name, given) == 0 ||
           (strncasecmp(name, given, length) == 0 && strcasecmp(name + length, ".gguf") == 0);
}

/* A model without files of which a download is unfinished. */
static bool find_unfinished(const char *folder, const char *given, char out[NAME_MAX + 1])
{
    struct unfinished_file *files;
    const size_t count = unfinished_list(folder, &files);
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        found = is_whole_name(files[i].name, given);
        if (found)
            snprintf(out, NAME_MAX + 1, "%s", files[i].name);
    }
    free(files);
    return found;
}

/* The name of the model's first file. */
static int find_name(const char *folder, const char *given, char out[NAME_MAX + 1], bool *is_unfinished)
{
    char path[PATH_MAX];
    struct hub_reference reference;
    *is_unfinished = false;
    if (hub_is_reference(given)) {
        const int result = hub_parse(given, &reference);
        if (result == EXIT_DONE && !record_find(folder, &reference, out))
            return failure("%s: no model, or more than one, was pulled from there", given);
        return result;
    }
    if (strchr(given, '/') || !*given)
        return usage_error("rm: expected the name of a model from `salvo list`, not a path: '%s'", given);
    const int result = find_in_folder(folder, given, path);
    if (result != EXIT_DONE)
        return result;
    *is_unfinished = !*path && find_unfinished(folder, given, out);
    if (*is_unfinished)
        return EXIT_DONE;
    if (!*path)
        return failure("%s: no model of this name; `salvo list` lists the models", given);
    snprintf(out, NAME_MAX + 1, "%s", path + strlen(folder) + 1);
    if (options.force && !is_whole_name(out, given))
        return usage_error("rm: --force needs the whole name: %s", out);
    return EXIT_DONE;
}

static int remove_model(const char *folder, const char *given)
{
    char name[NAME_MAX + 1], question[NAME_MAX + 64], size[32];
    uint64_t total = 0;
    bool is_unfinished;
    int lock, result = find_name(folder, given, name, &is_unfinished);
    if (result != EXIT_DONE)
        return result;
    for_each_file(folder, name, add_size, &total);
    snprintf(question, sizeof question, "Remove %s%s (%s)?", is_unfinished ? "the unfinished " : "", name,
        format_bytes(total, size));
    if (!options.force && !question_possible())
        return failure("%s is not removed without a question on a terminal, or --force", name);
    if (!options.force && !question_ask(question))
        return failure("%s is kept", name);
    bool is_being_pulled = !record_lock(folder, name, &lock);
    if (is_being_pulled && is_unfinished)
        return failure("%s is being pulled", name);
    result = for_each_file(folder, name, remove_file, &is_being_pulled) ? EXIT_DONE : EXIT_FAILED;
    if (!is_being_pulled)
        record_unlock(folder, name, lock);
    return result;
}

static int run(int count, char **arguments)
{
    char folder[PATH_MAX];
    if (count == 0)
        return usage_error("rm: expected the name of a model");
    if (!models_folder(folder, sizeof folder))
        return failure("no models folder: neither XDG_CACHE_HOME nor HOME is set");
    int result = EXIT_DONE;
    for (int i = 0; i < count && result == EXIT_DONE; i++)
        result = remove_model(folder, arguments[i]);
    return result;
}

const struct command rm_command = {
    .name = "rm",
    .arguments = "NAME...",
    .summary = "remove models from the models folder",
    .details = "A download that has not ended is removed by its name, too.",
    .options = option_table,
    .run = run,
};

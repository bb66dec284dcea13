#include "pull.h"

#include "command.h"
#include "download.h"
#include "model_folder.h"
#include "model_record.h"
#include "question.h"
#include "terminal.h"
#include "unfinished.h"

#include <errno.h>
#include <fcntl.h>
#include <salvo/salvo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_CHANGES = 3 };

struct pull {
    const struct pull_request *request;
    struct pull_plan plan;
    char folder[PATH_MAX], lock_path[PATH_MAX];
    int lock;
};

static bool join(const char *folder, const char *name, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* ---- One pull of a name at a time ---- */

/* A process that ends, however it does, releases the lock. The file may have been removed by the one that
 * had it, so the lock counts only if the path still means the file. */
static int take_lock(struct pull *pull)
{
    struct stat held, there;
    for (;;) {
        pull->lock = open(pull->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (pull->lock < 0)
            return failure("%s: cannot be written: %s", pull->lock_path, strerror(errno));
        if (flock(pull->lock, LOCK_EX | LOCK_NB) != 0) {
            fprintf(stderr, "waiting for another pull of %s\n", pull->plan.files[0].name);
            while (flock(pull->lock, LOCK_EX) != 0) {
                if (errno != EINTR)
                    return failure("%s: cannot be locked: %s", pull->lock_path, strerror(errno));
            }
        }
        if (fstat(pull->lock, &held) == 0 && stat(pull->lock_path, &there) == 0 &&
            held.st_ino == there.st_ino && held.st_dev == there.st_dev)
            return EXIT_DONE;
        close(pull->lock);
    }
}

static void release_lock(struct pull *pull)
{
    if (pull->lock < 0)
        return;
    unlink(pull->lock_path);
    close(pull->lock);
    pull->lock = -1;
}

/* ---- Files that are there ---- */

static bool has_sum(const char *path, const char *expected)
{
    static char buffer[1 << 16];
    struct sha256 hash;
    char sum[SHA256_TEXT];
    size_t got;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    sha256_begin(&hash);
    while ((got = fread(buffer, 1, sizeof buffer, file)) > 0)
        sha256_add(&hash, buffer, got);
    const bool failed = ferror(file) != 0;
    fclose(file);
    sha256_end(&hash, sum);
    return !failed && strcmp(sum, expected) == 0;
}

static bool note_source(const struct pull *pull, const struct pull_file *file)
{
    struct model_record record = {.size = file->size};
    memcpy(record.source, file->source, sizeof record.source);
    memcpy(record.sha256, file->sha256, sizeof record.sha256);
    return record_write(pull->folder, file->name, &record);
}

/* Sets is_there if the model has this file already. A file that did not come from this source is never
 * replaced. */
static int look_for_file(const struct pull *pull, struct pull_file *file)
{
    char path[PATH_MAX];
    struct stat found;
    struct model_record record;
    if (!join(pull->folder, file->name, path))
        return failure("%s: the path is too long", file->name);
    if (lstat(path, &found) != 0)
        return EXIT_DONE;
    const bool is_recorded = record_read(pull->folder, file->name, &record);
    const bool is_same_source = is_recorded && strcmp(record.source, file->source) == 0;
    if (is_recorded && (*file->sha256 ? strcmp(record.sha256, file->sha256) == 0 : is_same_source)) {
        file->is_there = true;
        file->size = record.size;
        memcpy(file->sha256, record.sha256, sizeof file->sha256);
        return EXIT_DONE;
    }
    if (is_same_source)
        return EXIT_DONE; /* the source has a newer file */
    if (!is_recorded && *file->sha256 && has_sum(path, file->sha256)) {
        file->is_there = true;
        file->size = (uint64_t)found.st_size;
        (void)note_source(pull, file);
        return EXIT_DONE;
    }
    return failure("%s exists and is another file%s%s; `salvo rm` removes it, --name gives the new one "
                   "another name",
        path, is_recorded ? ", pulled from " : "", is_recorded ? record.source : "");
}

/* ---- Unfinished files ---- */

/* An unfinished file is named after what it is a part of, so that a changed file begins anew. */
static int name_part(const struct pull *pull, struct pull_file *file)
{
    char ending[40], sum[SHA256_TEXT];
    struct sha256 hash;
    memcpy(sum, file->sha256, sizeof sum);
    if (!*sum) {
        sha256_begin(&hash);
        sha256_add(&hash, file->url, strlen(file->url));
        sha256_end(&hash, sum);
    }
    unfinished_ending(sum, ending);
    return record_path(pull->folder, file->name, ending, file->part)
               ? EXIT_DONE
               : failure("%s: the path is too long", file->name);
}

static int check_space(const struct pull *pull)
{
    uint64_t needed = 0;
    for (size_t i = 0; i < pull->plan.count; i++) {
        const struct pull_file *file = &pull->plan.files[i];
        struct stat part;
        const uint64_t there = stat(file->part, &part) == 0 ? (uint64_t)part.st_size : 0;
        if (file->is_there || !file->has_size || there >= file->size)
            continue;
        if (needed > UINT64_MAX - (file->size - there))
            return failure("%s: the sizes of the files are too large", file->name);
        needed += file->size - there;
    }
    return check_free_space(pull->plan.files[0].part, needed);
}

/* ---- Checking and moving ---- */

/* A split model is opened by the names of its files, so they get these names, as links in a folder. */
static bool open_split(const struct pull *pull, const char *stage)
{
    char path[PATH_MAX], target[PATH_MAX];
    struct salvo_model *model = NULL;
    bool good = mkdir(stage, 0777) == 0 || errno == EEXIST;
    for (size_t i = 0; i < pull->plan.count && good; i++) {
        const struct pull_file *file = &pull->plan.files[i];
        good = join(stage, file->name, path) && (unlink(path) == 0 || errno == ENOENT);
        if (good && file->is_there)
            good = join(pull->folder, file->name, target) && symlink(target, path) == 0;
        else if (good)
            good = symlink(file->part, path) == 0;
    }
    if (!good) {
        failure("%s: cannot be written: %s", stage, strerror(errno));
        return false;
    }
    if (!join(stage, pull->plan.files[0].name, path))
        return false;
    good = salvo_model_open(path, &model) == SALVO_OK;
    if (!good)
        failure("%s is whole but no usable model: %s", pull->plan.files[0].name, salvo_error());
    salvo_model_close(model);
    for (size_t i = 0; i < pull->plan.count; i++) {
        if (join(stage, pull->plan.files[i].name, path))
            unlink(path);
    }
    rmdir(stage);
    return good;
}

static int check_model(const struct pull *pull)
{
    const struct pull_file *file = &pull->plan.files[0];
    struct salvo_model *model = NULL;
    char stage[PATH_MAX];
    if (pull->plan.count > 1) {
        if (record_path(pull->folder, file->name, ".stage", stage) && open_split(pull, stage))
            return EXIT_DONE;
    } else {
        const bool good = salvo_model_open(file->part, &model) == SALVO_OK;
        salvo_model_close(model);
        if (good)
            return EXIT_DONE;
        failure("%s is whole but no usable model: %s", file->name, salvo_error());
    }
    for (size_t i = 0; i < pull->plan.count; i++) {
        if (!pull->plan.files[i].is_there)
            unlink(pull->plan.files[i].part);
    }
    return EXIT_FAILED;
}

static void flush_folder(const char *folder)
{
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor);
    close(descriptor);
}

/* The first file comes last: without it there is no model of this name. */
static int move_files(const struct pull *pull)
{
    char path[PATH_MAX];
    const struct pull_plan *plan = &pull->plan;
    if (plan->count > 1 && !plan->files[0].is_there && join(pull->folder, plan->files[0].name, path))
        unlink(path);
    for (size_t i = plan->count; i-- > 0;) {
        const struct pull_file *file = &plan->files[i];
        if (file->is_there)
            continue;
        if (!join(pull->folder, file->name, path) || rename(file->part, path) != 0)
            return failure("%s: cannot be moved to %s: %s", file->part, path, strerror(errno));
        if (!note_source(pull, file))
            return failure("%s is pulled, but its source cannot be noted: %s", file->name, salvo_error());
    }
    flush_folder(pull->folder);
    return EXIT_DONE;
}

/* ---- Pulls ---- */

static int ask_first(const struct pull *pull)
{
    uint64_t total = 0;
    char question[HTTP_URL + NAME_MAX + 64], size[32];
    for (size_t i = 0; i < pull->plan.count; i++)
        total += pull->plan.files[i].is_there ? 0 : pull->plan.files[i].size;
    snprintf(question, sizeof question, "Pull %s (%s) from %s?", pull->plan.files[0].name,
        format_bytes(total, size), pull->plan.files[0].source);
    return question_ask(question) ? EXIT_DONE : failure("%s was not pulled", pull->plan.files[0].name);
}

/* `changed` tells that the server has replaced a file since it was listed. */
static int fetch_files(struct pull *pull, bool *changed)
{
    for (size_t i = 0; i < pull->plan.count; i++) {
        struct pull_file *file = &pull->plan.files[i];
        if (file->is_there)
            continue;
        struct download one = {.name = file->name,
            .url = file->url,
            .part = file->part,
            .has_size = file->has_size,
            .size = file->size,
            .is_listed = file->is_listed,
            .timeout = pull->request->timeout};
        memcpy(one.sha256, file->sha256, sizeof one.sha256);
        const enum download_result result = download(&one);
        *changed = result == DOWNLOAD_CHANGED;
        if (result != DOWNLOAD_DONE)
            return EXIT_FAILED;
        memcpy(file->sha256, one.sha256, sizeof file->sha256);
        file->size = one.size;
    }
    return EXIT_DONE;
}

static int look_for_files(struct pull *pull, bool *all)
{
    *all = true;
    for (size_t i = 0; i < pull->plan.count; i++) {
        struct pull_file *file = &pull->plan.files[i];
        int result = look_for_file(pull, file);
        if (result == EXIT_DONE)
            result = name_part(pull, file);
        if (result != EXIT_DONE)
            return result;
        *all = *all && file->is_there;
        unfinished_remove(pull->folder, file->name, file->is_there ? NULL : file->part);
    }
    return EXIT_DONE;
}

static int pull_once(struct pull *pull, bool *changed, bool *was_there)
{
    int result = take_lock(pull);
    if (result == EXIT_DONE)
        result = look_for_files(pull, was_there);
    if (result != EXIT_DONE || *was_there)
        return result;
    if (pull->request->ask)
        result = ask_first(pull);
    if (result == EXIT_DONE)
        result = check_space(pull);
    if (result == EXIT_DONE)
        result = fetch_files(pull, changed);
    if (result == EXIT_DONE)
        result = check_model(pull);
    return result == EXIT_DONE ? move_files(pull) : result;
}

static int describe(const struct pull *pull, bool was_there, struct pull_result *out)
{
    const struct pull_file *first = &pull->plan.files[0];
    *out = (struct pull_result){.files = pull->plan.count, .was_there = was_there};
    memcpy(out->name, first->name, sizeof out->name);
    memcpy(out->source, first->source, sizeof out->source);
    memcpy(out->sha256, first->sha256, sizeof out->sha256);
    for (size_t i = 0; i < pull->plan.count; i++)
        out->size += pull->plan.files[i].size;
    return join(pull->folder, first->name, out->path) ? EXIT_DONE : EXIT_FAILED;
}

int pull_model(const struct pull_request *request, struct pull_result *out)
{
    struct pull_request own = *request;
    struct pull pull = {.request = &own, .lock = -1};
    const char *offline = getenv("HF_HUB_OFFLINE");
    bool changed = false, was_there = false;
    int result = EXIT_FAILED;
    if (offline && *offline && strcmp(offline, "0") != 0)
        return failure("HF_HUB_OFFLINE is set: nothing is downloaded");
    if (!models_folder(pull.folder, sizeof pull.folder))
        return failure("no models folder: neither XDG_CACHE_HOME nor HOME is set");
    for (int tries = 0; tries < MOST_CHANGES; tries++) {
        changed = false;
        result = pull_plan_make(&own, &pull.plan);
        if (result == EXIT_DONE)
            result = record_folder_make(pull.folder);
        if (result == EXIT_DONE &&
            !record_path(pull.folder, pull.plan.files[0].name, ".lock", pull.lock_path))
            result = failure("%s: the path is too long", pull.folder);
        if (result == EXIT_DONE)
            result = pull_once(&pull, &changed, &was_there);
        if (result == EXIT_DONE)
            result = describe(&pull, was_there, out);
        release_lock(&pull);
        pull_plan_free(&pull.plan);
        if (!changed)
            return result;
        own.ask = false;
    }
    return failure("the files on the server differ from its list of files; pull again later");
}

#include "model_record.h"

#include "command.h"
#include "flat_json.h"
#include "model_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool record_path(const char *folder, const char *name, const char *ending, char out[PATH_MAX])
{
    const int length = snprintf(out, PATH_MAX, "%s/.salvo/%s%s", folder, name, ending);
    return length > 0 && length < PATH_MAX;
}

int record_folder_make(const char *folder)
{
    char path[PATH_MAX];
    if (!record_path(folder, "", "", path))
        return failure("%s: the path is too long", folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return failure("%s: cannot be made: %s", path, strerror(errno));
        *slash = '/';
    }
    return EXIT_DONE;
}

static bool file_times(const char *folder, const char *name, uint64_t *size, int64_t *changed)
{
    char path[PATH_MAX];
    struct stat file;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, &file) != 0)
        return false;
    *size = (uint64_t)file.st_size;
#ifdef __APPLE__
    *changed = (int64_t)file.st_mtimespec.tv_sec * 1000000000 + file.st_mtimespec.tv_nsec;
#else
    *changed = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec;
#endif
    return true;
}

static void take_member(void *user, const char *key, const struct json_event *event)
{
    struct model_record *record = user;
    const int size = (int)event->text.size;
    if (event->kind == JSON_STRING && strcmp(key, "source") == 0)
        snprintf(record->source, sizeof record->source, "%.*s", size, event->text.data);
    else if (event->kind == JSON_STRING && strcmp(key, "sha256") == 0)
        snprintf(record->sha256, sizeof record->sha256, "%.*s", size, event->text.data);
    else if (event->kind == JSON_INTEGER && strcmp(key, "size") == 0)
        record->size = (uint64_t)event->integer;
    else if (event->kind == JSON_INTEGER && strcmp(key, "changed") == 0)
        record->changed = event->integer;
    else if (event->kind == JSON_INTEGER && strcmp(key, "pulled") == 0)
        record->pulled = event->integer;
}

bool record_read(const char *folder, const char *name, struct model_record *out)
{
    char path[PATH_MAX], text[2 * HTTP_URL];
    uint64_t size;
    int64_t changed;
    *out = (struct model_record){.size = 0};
    if (!record_path(folder, name, ".json", path) || !file_times(folder, name, &size, &changed))
        return false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    return flat_json_read(text, length, HTTP_URL - 1, take_member, out) && *out->source &&
           out->size == size && out->changed == changed;
}

static enum salvo_status write_file(void *user, const char *data, size_t size)
{
    return salvo_file_write(user, data, size);
}

bool record_write(const char *folder, const char *name, const struct model_record *record)
{
    char path[PATH_MAX];
    uint64_t size;
    int64_t changed;
    struct salvo_file *file;
    if (!record_path(folder, name, ".json", path) || !file_times(folder, name, &size, &changed) ||
        salvo_file_open(path, true, &file) != SALVO_OK)
        return false;
    struct json_writer json = {.write = write_file, .user = file};
    json_begin(&json, '{');
    json_key(&json, "source");
    json_string(&json, record->source);
    json_key(&json, "sha256");
    json_string(&json, record->sha256);
    json_key(&json, "size");
    json_unsigned(&json, size);
    json_key(&json, "changed");
    json_signed(&json, changed);
    json_key(&json, "pulled");
    json_signed(&json, (int64_t)time(NULL));
    json_end(&json, '}');
    const bool done = salvo_file_commit(file) == SALVO_OK;
    salvo_file_close(file);
    return done;
}

void record_remove(const char *folder, const char *name)
{
    static const char *const endings[] = {".json", ".used"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (record_path(folder, name, endings[i], path))
            unlink(path);
    }
}

bool record_lock(const char *folder, const char *name, int *lock)
{
    char path[PATH_MAX];
    *lock = record_path(folder, name, ".lock", path)
                ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)
                : -1;
    if (*lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    close(*lock);
    return false;
}

void record_unlock(const char *folder, const char *name, int lock)
{
    char path[PATH_MAX];
    if (lock < 0)
        return;
    if (record_path(folder, name, ".lock", path))
        unlink(path);
    close(lock);
}

void record_use(const char *folder, const char *name)
{
    char path[PATH_MAX], records[PATH_MAX];
    if (!record_path(folder, "", "", records) || !record_path(folder, name, ".used", path))
        return;
    /* A folder that cannot be written is no reason not to run the model. */
    (void)mkdir(records, 0777);
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0)
        return;
    (void)futimens(descriptor, NULL);
    close(descriptor);
}

int64_t record_last_use(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat file;
    return record_path(folder, name, ".used", path) && stat(path, &file) == 0 ? (int64_t)file.st_mtime : 0;
}

bool record_find(const char *folder, const struct hub_reference *reference, char out[NAME_MAX + 1])
{
    struct dirent **entries = NULL;
    struct hub_listing listing = {0};
    struct model_record record;
    struct hub_choice choice = {0};
    char prefix[HUB_NAME + 8], error[HUB_ERROR];
    const int count = models_scan(folder, &entries);
    const size_t length = (size_t)snprintf(prefix, sizeof prefix, "hf:%s/", reference->repository);
    bool found = false;
    for (int i = 0; i < count; i++) {
        struct hub_file file = {.path = record.source + length, .size = (uint64_t)i};
        if (record_read(folder, entries[i]->d_name, &record) && strncmp(record.source, prefix, length) == 0)
            (void)hub_listing_add(&listing, &file);
    }
    /* Only first parts are in the list, so a split model is found by its first part alone. */
    for (size_t i = 0; i < listing.count; i++) {
        size_t stem;
        unsigned parts;
        if (split_number(listing.files[i].path, &stem, &parts))
            snprintf(listing.files[i].path + stem, strlen(listing.files[i].path + stem) + 1, ".gguf");
    }
    struct hub_reference whole = *reference;
    size_t stem;
    unsigned parts;
    if (split_number(whole.file, &stem, &parts))
        snprintf(whole.file + stem, sizeof whole.file - stem, ".gguf");
    if (hub_choose(&whole, &listing, &choice, error)) {
        snprintf(out, NAME_MAX + 1, "%s", entries[choice.files[0]->size]->d_name);
        found = true;
    }
    free(choice.files);
    hub_listing_free(&listing);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return found;
}

#include "running.h"

#include "flat_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char own_path[PATH_MAX];
static int own_file = -1;

bool running_folder(char path[PATH_MAX])
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    return folder && *folder && snprintf(path, PATH_MAX, "%s/salvo", folder) < PATH_MAX;
}

static enum salvo_status write_descriptor(void *user, const char *data, size_t size)
{
    const int *descriptor = user;
    return write(*descriptor, data, size) == (ssize_t)size ? SALVO_OK : SALVO_ERROR_IO;
}

void running_begin(const char *address, const char *models)
{
    char folder[PATH_MAX];
    if (!running_folder(folder) || (mkdir(folder, 0700) != 0 && errno != EEXIST) ||
        snprintf(own_path, sizeof own_path, "%s/%ld.json", folder, (long)getpid()) >= PATH_MAX)
        return;
    unlink(own_path); /* of an earlier process with this number */
    own_file = open(own_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (own_file < 0)
        return;
    (void)flock(own_file, LOCK_EX | LOCK_NB);
    struct json_writer json = {.write = write_descriptor, .user = &own_file};
    json_begin(&json, '{');
    json_key(&json, "pid");
    json_signed(&json, getpid());
    json_key(&json, "started");
    json_signed(&json, (int64_t)time(NULL));
    json_key(&json, "address");
    json_string(&json, address);
    json_key(&json, "models");
    json_string(&json, models);
    json_end(&json, '}');
}

void running_end(void)
{
    if (own_file < 0)
        return;
    unlink(own_path);
    close(own_file);
    own_file = -1;
}

static void take_member(void *user, const char *key, const struct json_event *event)
{
    struct running_server *server = user;
    const int size = (int)event->text.size;
    if (event->kind == JSON_INTEGER && strcmp(key, "pid") == 0)
        server->pid = event->integer;
    else if (event->kind == JSON_INTEGER && strcmp(key, "started") == 0)
        server->started = event->integer;
    else if (event->kind == JSON_STRING && strcmp(key, "address") == 0)
        snprintf(server->address, sizeof server->address, "%.*s", size, event->text.data);
    else if (event->kind == JSON_STRING && strcmp(key, "models") == 0)
        snprintf(server->models, sizeof server->models, "%.*s", size, event->text.data);
}

bool running_read(const char *path, struct running_server *out)
{
    char text[4 * RUNNING_TEXT];
    *out = (struct running_server){.pid = 0};
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0)
        return false;
    const bool has_ended = flock(descriptor, LOCK_SH | LOCK_NB) == 0;
    const ssize_t size = has_ended ? 0 : read(descriptor, text, sizeof text);
    close(descriptor);
    if (has_ended)
        unlink(path);
    return size > 0 && flat_json_read(text, (size_t)size, RUNNING_TEXT - 1, take_member, out) && out->pid;
}

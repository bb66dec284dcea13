#include "base/atomic_file.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUFFIX = 9 }; /* a dot and eight letters */

static enum salvo_status cannot_write(const char *path, int error)
{
    return fail(SALVO_ERROR_IO, "%s: cannot write: %s", path, strerror(error));
}

static enum salvo_status exists(const char *path)
{
    return fail(SALVO_ERROR_IO, "%s: the file exists already", path);
}

/* Root can write any file: a file without write bits was protected on purpose. */
static bool is_protected(const char *path, mode_t mode)
{
    return !(mode & (S_IWUSR | S_IWGRP | S_IWOTH)) || faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0;
}

/* Finds the file to replace or create; `out_replaced` describes the existing one, or has mode 0. Renaming
 * over a link, a device or a pipe would destroy it. */
static enum salvo_status find_target(
    const char *path, bool is_new, char out[PATH_MAX], struct stat *out_replaced)
{
    struct stat information;
    *out_replaced = (struct stat){0};
    if (!*path)
        return fail(SALVO_ERROR_IO, "the name of the file to write is empty");
    if (strlen(path) >= PATH_MAX)
        return cannot_write(path, ENAMETOOLONG);
    if (stat(path, &information) == 0) {
        if (!S_ISREG(information.st_mode))
            return fail(SALVO_ERROR_IO, "%s: cannot write: it is not a regular file", path);
        if (is_new)
            return exists(path);
        if (is_protected(path, information.st_mode))
            return fail(SALVO_ERROR_IO, "%s: cannot write: the file is write-protected", path);
        if (!realpath(path, out))
            return cannot_write(path, errno);
        *out_replaced = information;
        return SALVO_OK;
    }
    if (errno != ENOENT)
        return cannot_write(path, errno);
    if (lstat(path, &information) == 0)
        return fail(SALVO_ERROR_IO, "%s: cannot write: it is a dangling symbolic link", path);
    memcpy(out, path, strlen(path) + 1);
    return SALVO_OK;
}

static bool choose_suffix(char suffix[SUFFIX + 1])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuv";
    unsigned char random[SUFFIX - 1];
    if (getentropy(random, sizeof random) != 0)
        return false;
    suffix[0] = '.';
    for (size_t i = 0; i < sizeof random; i++)
        suffix[i + 1] = letters[random[i] % (sizeof letters - 1)];
    suffix[SUFFIX] = 0;
    return true;
}

/*
 * Creates a temporary file beside the target. The kernel applies the umask to a new file; the replacement of
 * a private file must never be readable by others, not even while it is empty. Owner and group are kept if
 * the process may set them; mode bits for a group that could not be kept are dropped.
 */
static int create_neighbour(char *path, size_t target_length, const struct stat *replaced)
{
    mode_t mode = replaced->st_mode & 0777;
    int descriptor;
    do {
        if (!choose_suffix(path + target_length))
            return -1;
        descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode ? mode & 0700 : 0666);
    } while (descriptor < 0 && errno == EEXIST);
    if (descriptor < 0 || !mode)
        return descriptor;
    (void)!fchown(descriptor, replaced->st_uid, (gid_t)-1);
    if (fchown(descriptor, (uid_t)-1, replaced->st_gid) != 0)
        mode &= ~(mode_t)S_IRWXG;
    if (fchmod(descriptor, mode) != 0) {
        int error = errno;
        close(descriptor);
        unlink(path);
        errno = error;
        return -1;
    }
    return descriptor;
}

/* The length of the target's path that the temporary name keeps, leaving room for the suffix. */
static size_t shared_length(const char *target)
{
    const char *slash = strrchr(target, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - target) : 0, name = strlen(target + folder);
    return folder + (name > NAME_MAX - SUFFIX ? NAME_MAX - SUFFIX : name);
}

static enum salvo_status open_file(const char *path, bool is_new, struct atomic_file *out)
{
    enum salvo_status status = SALVO_OK;
    int descriptor = -1;
    struct stat replaced;
    char target[PATH_MAX];
    *out = (struct atomic_file){.is_new = is_new};

    TRY(find_target(path, is_new, target, &replaced));
    const size_t length = shared_length(target);
    TRY(memory_copy_string(path, &out->path));
    TRY(memory_copy_string(target, &out->target));
    TRY(NEW(&out->temporary_path, length + SUFFIX + 1));
    memcpy(out->temporary_path, target, length);
    descriptor = create_neighbour(out->temporary_path, length, &replaced);
    if (descriptor < 0) {
        status = cannot_write(path, errno);
        memory_free(out->temporary_path);
        out->temporary_path = NULL;
        goto cleanup;
    }
    out->stream = fdopen(descriptor, "wb");
    if (!out->stream)
        TRY(cannot_write(path, errno));
    descriptor = -1;

cleanup:
    if (descriptor >= 0)
        close(descriptor);
    if (status != SALVO_OK)
        atomic_file_abandon(out);
    return status;
}

enum salvo_status atomic_file_open(const char *path, struct atomic_file *out)
{
    return open_file(path, false, out);
}

enum salvo_status atomic_file_open_new(const char *path, struct atomic_file *out)
{
    return open_file(path, true, out);
}

enum salvo_status atomic_file_write(struct atomic_file *file, const void *data, size_t size)
{
    if (size == 0 || fwrite(data, 1, size, file->stream) == size)
        return SALVO_OK;
    file->error = errno ? errno : EIO;
    return fail(SALVO_ERROR_IO, "%s: writing %zu bytes failed: %s", file->path, size, strerror(file->error));
}

/* Names the file without replacing another. link() fails if the name exists, rename() does not; file
 * systems without links use the rename. */
static bool take_new_name(const struct atomic_file *file)
{
    struct stat information;
    if (link(file->temporary_path, file->target) == 0) {
        unlink(file->temporary_path);
        return true;
    }
    if (errno == EEXIST)
        return false;
    if (lstat(file->target, &information) == 0) {
        errno = EEXIST;
        return false;
    }
    return rename(file->temporary_path, file->target) == 0;
}

static bool take_name(const struct atomic_file *file)
{
    return file->is_new ? take_new_name(file) : rename(file->temporary_path, file->target) == 0;
}

/* The name survives a power failure only after its folder was flushed. Not every file system can flush a
 * folder, and not every writable folder is readable. */
static bool flush_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    int folder = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return true;
    bool flushed = fsync(folder) == 0 || errno != EIO;
    close(folder);
    return flushed;
}

enum salvo_status atomic_file_commit(struct atomic_file *file)
{
    enum salvo_status status = SALVO_OK;
    bool written = !file->error && fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0;
    int error = file->error ? file->error : errno;
    if (fclose(file->stream) != 0 && written) {
        written = false;
        error = errno;
    }
    file->stream = NULL;
    if (written && !take_name(file)) {
        written = false;
        error = errno;
    }
    if (written) {
        memory_free(file->temporary_path);
        file->temporary_path = NULL;
        if (!flush_folder(file->target))
            status = cannot_write(file->path, EIO);
    } else {
        status = file->is_new && error == EEXIST ? exists(file->path) : cannot_write(file->path, error);
    }
    atomic_file_abandon(file);
    return status;
}

void atomic_file_abandon(struct atomic_file *file)
{
    if (file->stream)
        fclose(file->stream);
    if (file->temporary_path)
        unlink(file->temporary_path);
    memory_free(file->temporary_path);
    memory_free(file->target);
    memory_free(file->path);
    *file = (struct atomic_file){0};
}

#include "base/atomic_file.h"

#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".XXXXXX";

/* The file to replace or to make. Renaming over a link, a device or a pipe would destroy it. */
static enum salvo_status find_target(const char *path, char out[PATH_MAX])
{
    struct stat information;
    if (!*path)
        return fail(SALVO_ERROR_IO, "the name of the file to write is empty");
    if (strlen(path) >= PATH_MAX)
        return fail(SALVO_ERROR_IO, "%s: cannot be written: %s", path, strerror(ENAMETOOLONG));
    if (stat(path, &information) == 0) {
        if (!S_ISREG(information.st_mode))
            return fail(SALVO_ERROR_IO, "%s: cannot be written: it is there and is not a regular file", path);
        if (!realpath(path, out))
            return fail(SALVO_ERROR_IO, "%s: cannot be written: %s", path, strerror(errno));
        return SALVO_OK;
    }
    if (errno != ENOENT)
        return fail(SALVO_ERROR_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (lstat(path, &information) == 0)
        return fail(SALVO_ERROR_IO, "%s: cannot be written: it is a link to what is not there", path);
    memcpy(out, path, strlen(path) + 1);
    return SALVO_OK;
}

enum salvo_status atomic_file_open(const char *path, struct atomic_file *out)
{
    enum salvo_status status = SALVO_OK;
    int descriptor = -1;
    char target[PATH_MAX];
    *out = (struct atomic_file){0};

    TRY(find_target(path, target));
    size_t length = strlen(target);
    TRY(memory_copy_string(path, &out->path));
    TRY(memory_copy_string(target, &out->target));
    TRY(NEW(&out->temporary_path, length + sizeof suffix));
    memcpy(out->temporary_path, target, length);
    memcpy(out->temporary_path + length, suffix, sizeof suffix);
    descriptor = mkstemp(out->temporary_path);
    if (descriptor < 0) {
        status = fail(SALVO_ERROR_IO, "%s: cannot be written: %s", path, strerror(errno));
        memory_free(out->temporary_path);
        out->temporary_path = NULL;
        goto cleanup;
    }
    /* mkstemp makes private files; a result file gets the rights any new file would get. */
    mode_t mask = umask(0);
    umask(mask);
    fchmod(descriptor, 0666 & ~mask);
    out->stream = fdopen(descriptor, "wb");
    if (!out->stream)
        TRY(fail(SALVO_ERROR_IO, "%s: %s", path, strerror(errno)));
    descriptor = -1;

cleanup:
    if (descriptor >= 0)
        close(descriptor);
    if (status != SALVO_OK)
        atomic_file_abandon(out);
    return status;
}

enum salvo_status atomic_file_write(struct atomic_file *file, const void *data, size_t size)
{
    if (size && fwrite(data, 1, size, file->stream) != size)
        return fail(SALVO_ERROR_IO, "%s: writing %zu bytes failed: %s", file->path, size, strerror(errno));
    return SALVO_OK;
}

enum salvo_status atomic_file_commit(struct atomic_file *file)
{
    enum salvo_status status = SALVO_OK;
    bool written = fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0;
    int error = errno;
    if (fclose(file->stream) != 0 && written) {
        written = false;
        error = errno;
    }
    file->stream = NULL;
    if (written && rename(file->temporary_path, file->target) != 0) {
        written = false;
        error = errno;
    }
    if (written) {
        memory_free(file->temporary_path);
        file->temporary_path = NULL;
    } else {
        status = fail(SALVO_ERROR_IO, "%s: cannot be written: %s", file->path, strerror(error));
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

/* The public functions on files. */
#include "base/atomic_file.h"
#include "base/memory.h"
#include "engine/arguments.h"

struct salvo_file {
    struct atomic_file file;
};

enum salvo_status salvo_file_open(const char *path, bool replace, struct salvo_file **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_file *file = NULL;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(path);
    TRY(NEW(&file, 1));
    TRY(replace ? atomic_file_open(path, &file->file) : atomic_file_open_new(path, &file->file));
    *out = file;
    file = NULL;
cleanup:
    memory_free(file);
    return status;
}

enum salvo_status salvo_file_write(struct salvo_file *file, const void *data, size_t size)
{
    REQUIRE(file);
    if (size)
        REQUIRE(data);
    if (!file->file.stream)
        return fail(SALVO_ERROR_ARGUMENT, "%zu bytes were written after the file was closed", size);
    return atomic_file_write(&file->file, data, size);
}

enum salvo_status salvo_file_commit(struct salvo_file *file)
{
    REQUIRE(file);
    if (!file->file.stream)
        return fail(SALVO_ERROR_ARGUMENT, "the file is closed already");
    return atomic_file_commit(&file->file);
}

void salvo_file_close(struct salvo_file *file)
{
    if (!file)
        return;
    atomic_file_abandon(&file->file);
    memory_free(file);
}

enum salvo_status salvo_file_check_writable(const char *path)
{
    struct atomic_file file;
    REQUIRE(path);
    enum salvo_status status = atomic_file_open(path, &file);
    atomic_file_abandon(&file);
    return status;
}

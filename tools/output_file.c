#include "output_file.h"

#include "command.h"

#include <sys/stat.h>

#if defined(__APPLE__)
#define CHANGED(file) ((file)->st_ctimespec)
#else
#define CHANGED(file) ((file)->st_ctim)
#endif

/* Identifies a file. The time of change is compared too, because a file that replaces it may get the same
 * inode. */
enum { MOST = 64 };
static struct owned_file {
    dev_t device;
    ino_t inode;
    struct timespec changed;
} owned[MOST];
static size_t owned_count; /* ever: the newest overwrite the oldest */

void output_file_own(const char *path)
{
    struct stat file;
    if (stat(path, &file) != 0)
        return;
    owned[owned_count++ % MOST] = (struct owned_file){file.st_dev, file.st_ino, CHANGED(&file)};
}

static bool is_owned(const struct stat *file)
{
    for (size_t i = 0; i < owned_count && i < MOST; i++) {
        const struct owned_file *one = &owned[i];
        if (one->device == file->st_dev && one->inode == file->st_ino &&
            one->changed.tv_sec == CHANGED(file).tv_sec && one->changed.tv_nsec == CHANGED(file).tv_nsec)
            return true;
    }
    return false;
}

int output_file_check(
    const char *path, const struct salvo_model *model, bool force, const char *hint, bool *out_replace)
{
    struct stat file;
    *out_replace = true;
    if (stat(path, &file) != 0) {
        *out_replace =
            force; /* also a file that another process creates meanwhile; the library reports errors */
        return EXIT_DONE;
    }
    if (model && salvo_model_is_at(model, path))
        return failure("%s: refusing to overwrite a file of the model", path);
    if (S_ISREG(file.st_mode) && !force && !is_owned(&file))
        return failure("%s: file exists; %s replaces it", path, hint);
    return EXIT_DONE;
}

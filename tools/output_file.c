#include "output_file.h"

#include "command.h"

#include <sys/stat.h>

/* By device and inode: a file that somebody else has put in its place is another one. */
enum { MOST = 64 };
static struct {
    dev_t device;
    ino_t inode;
} owned[MOST];
static size_t owned_count; /* ever: the newest overwrite the oldest */

void output_file_own(const char *path)
{
    struct stat file;
    if (stat(path, &file) != 0)
        return;
    owned[owned_count % MOST].device = file.st_dev;
    owned[owned_count++ % MOST].inode = file.st_ino;
}

static bool is_owned(const struct stat *file)
{
    for (size_t i = 0; i < owned_count && i < MOST; i++) {
        if (owned[i].device == file->st_dev && owned[i].inode == file->st_ino)
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
        *out_replace = false; /* the library says what else may be wrong with the name */
        return EXIT_DONE;
    }
    if (model && salvo_model_is_at(model, path))
        return failure("%s: the model is read from this file, which is not written over", path);
    if (S_ISREG(file.st_mode) && !force && !is_owned(&file))
        return failure("%s: the file is there already; %s replaces it", path, hint);
    return EXIT_DONE;
}

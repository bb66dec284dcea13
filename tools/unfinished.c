#include "unfinished.h"

#include "model_record.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUM_DIGITS = 16, ENDING = 1 + SUM_DIGITS + 5 };

void unfinished_ending(const char *sha256, char out[40])
{
    snprintf(out, 40, ".%.*s.part", SUM_DIGITS, sha256);
}

/* Whether the text begins with the ending of an unfinished file. */
static bool is_ending(const char *text)
{
    if (text[0] != '.')
        return false;
    for (size_t i = 1; i <= SUM_DIGITS; i++) {
        if (!isxdigit((unsigned char)text[i]))
            return false;
    }
    return strncmp(text + 1 + SUM_DIGITS, ".part", 5) == 0;
}

static DIR *open_records(const char *folder)
{
    char path[PATH_MAX];
    return record_path(folder, "", "", path) ? opendir(path) : NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct unfinished_file *first = a, *second = b;
    return strcmp(first->name, second->name);
}

size_t unfinished_list(const char *folder, struct unfinished_file **out)
{
    DIR *records = open_records(folder);
    const struct dirent *entry;
    size_t count = 0;
    *out = NULL;
    while (records && (entry = readdir(records))) {
        const size_t length = strlen(entry->d_name);
        char path[PATH_MAX];
        struct stat file;
        if (length <= ENDING || !is_ending(entry->d_name + length - ENDING) ||
            !record_path(folder, entry->d_name, "", path) || lstat(path, &file) != 0 ||
            !S_ISREG(file.st_mode))
            continue;
        struct unfinished_file *larger = realloc(*out, (count + 1) * sizeof *larger);
        if (!larger)
            break;
        *out = larger;
        larger[count].size = (uint64_t)file.st_size;
        snprintf(larger[count++].name, NAME_MAX + 1, "%.*s", (int)(length - ENDING), entry->d_name);
    }
    if (records)
        closedir(records);
    if (count)
        qsort(*out, count, sizeof **out, by_name);
    return count;
}

uint64_t unfinished_size(const char *folder, const char *name)
{
    struct unfinished_file *files;
    const size_t count = unfinished_list(folder, &files);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += strcmp(files[i].name, name) == 0 ? files[i].size : 0;
    free(files);
    return total;
}

void unfinished_remove(const char *folder, const char *name, const char *kept)
{
    char path[PATH_MAX];
    const size_t length = strlen(name);
    DIR *records = open_records(folder);
    const struct dirent *entry;
    while (records && (entry = readdir(records))) {
        const char *ending = entry->d_name + length;
        if (strncmp(entry->d_name, name, length) != 0)
            continue;
        const bool is_record = strncmp(ending, ".json.", 6) == 0; /* one that was not renamed */
        if ((is_record || is_ending(ending)) && record_path(folder, entry->d_name, "", path) &&
            (!kept || strncmp(path, kept, strlen(kept)) != 0))
            unlink(path);
    }
    if (records)
        closedir(records);
}

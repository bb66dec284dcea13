#include "model_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char default_model_name[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

bool models_folder(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length;
    if (cache && *cache)
        length = snprintf(path, size, "%s/salvo/models", cache);
    else if (home && *home)
        length = snprintf(path, size, "%s/.cache/salvo/models", home);
    else
        return false;
    return length > 0 && (size_t)length < size;
}

/* One entry per model: of a split model the first file. */
static int is_model(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    const char *part = strstr(entry->d_name, "-of-");
    bool later_part =
        part && part - entry->d_name >= 6 && part[-6] == '-' && memcmp(part - 5, "00001", 5) != 0;
    return length > 5 && strcasecmp(entry->d_name + length - 5, ".gguf") == 0 && !later_part;
}

int models_scan(const char *folder, struct dirent ***out)
{
    *out = NULL;
    return scandir(folder, out, is_model, alphasort);
}

/* The models folder. */
#ifndef TOOLS_MODEL_FOLDER_H
#define TOOLS_MODEL_FOLDER_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

extern const char default_model_name[];

/* ${XDG_CACHE_HOME:-~/.cache}/salvo/models; false when neither variable is set. */
bool models_folder(char *path, size_t size);

/* The models of a folder in alphabetical order, a split one by its first file; as scandir gives them. */
int models_scan(const char *folder, struct dirent ***out);

#endif

/* The models folder, and finding a model by name. */
#ifndef TOOLS_MODELS_H
#define TOOLS_MODELS_H

#include <salvo/salvo.h>

#include <dirent.h>

extern const char default_model_name[];

/* ${XDG_CACHE_HOME:-~/.cache}/salvo/models; false when neither variable is set. */
bool models_folder(char *path, size_t size);

/* The models of a folder in alphabetical order, a split one by its first file; as scandir gives them. */
int models_scan(const char *folder, struct dirent ***out);

/*
 * Opens a model by path, or by a name in the models folder: case is ignored, and a unique prefix is enough.
 * `given` NULL: $SALVO_MODEL, or the default model. NULL after an error message.
 */
struct salvo_model *open_model(const char *given);

#endif

/* Where models are kept, and which one a command means. */
#ifndef TOOLS_MODELS_H
#define TOOLS_MODELS_H

#include <salvo/salvo.h>

extern const char default_model_name[];

/* ${XDG_CACHE_HOME:-~/.cache}/salvo/models; false when there is no home. */
bool models_folder(char *path, size_t size);

/*
 * Opens the model that -m names: a path, or a name in the models folder; without -m $SALVO_MODEL or the
 * default model. Says why and returns NULL when that fails.
 */
struct salvo_model *open_model(const char *given);

#endif

/* Finding a model by name. */
#ifndef TOOLS_MODELS_H
#define TOOLS_MODELS_H

#include <limits.h>
#include <salvo/salvo.h>

/* The best match for a name in the models folder. EXIT_DONE with an empty path if none matches; EXIT_FAILED
 * after an error message if several do. */
int find_in_folder(const char *folder, const char *name, char path[PATH_MAX]);

/*
 * Opens a model by path, or by a name in the models folder: case is ignored, and a unique prefix is enough.
 * A model of a hub (hf:...) that was not pulled is pulled if --pull is given or the user agrees. `given`
 * NULL: $SALVO_MODEL, or the default model. After an error message `*out` is NULL, and the result is
 * EXIT_USAGE if `given` cannot name a model.
 */
int open_model(const char *given, struct salvo_model **out);

#endif

/* The options of every command that runs a model, and what opens it by them. */
#ifndef TOOLS_ENGINE_FLAGS_H
#define TOOLS_ENGINE_FLAGS_H

#include "command.h"

#include <salvo/salvo.h>

extern struct engine_flags {
    const char *model, *backend, *isa, *kv_type, *cache_type_k, *cache_type_v, *gpu_layers;
    uint32_t threads, context, batch, device;
    bool pin;
} engine_flags;

extern const struct option engine_flag_table[];

/* How much is said. */
extern struct output_flags {
    bool json, verbose, quiet;
} output_flags;

extern const struct option output_flag_table[];

/* A model on a device. */
struct loaded {
    struct salvo_model *model;
    struct salvo_engine *engine;
    struct salvo_session *session;
};

/* The options as the library wants them; EXIT_USAGE after saying which is wrong. */
int engine_options_from_flags(struct salvo_engine_options *out);

/* EXIT_USAGE, after saying so, when --gpu-layers names some of the layers: a device takes all or none. */
int check_gpu_layers(const struct salvo_model *model);

/* Opens model, engine and one session by the options. EXIT_DONE, or an exit status after saying why. */
int load(struct loaded *out);
int load_engine(
    struct loaded *loaded, const struct salvo_engine_options *options); /* when the model is open */
void unload(struct loaded *loaded);

#endif

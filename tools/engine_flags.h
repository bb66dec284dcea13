/* The options of commands that run a model, and functions that open a model with them. */
#ifndef TOOLS_ENGINE_FLAGS_H
#define TOOLS_ENGINE_FLAGS_H

#include "command.h"
#include "terminal.h"

#include <salvo/salvo.h>

extern struct engine_flags {
    const char *model, *backend, *isa, *kv_type, *cache_type_k, *cache_type_v, *gpu_layers, *kv_memory;
    uint32_t threads, context, batch, device;
    bool pin;
} engine_flags;

/* A command with another default for -c, or without -c, -b and --pin, has the model in its own table and
 * begins this one further down. */
extern const struct option engine_flag_table[];
enum { ENGINE_FLAGS_AFTER_CONTEXT = 2, ENGINE_FLAGS_AFTER_PIN = 4 };

#define CONTEXT_OPTION(help)                                                                  \
    {                                                                                         \
        'c', "context", "N", OPTION_NUMBER, &engine_flags.context, help, .also = "--ctx-size" \
    }

extern const struct option output_flag_table[];

/* A model on a device. */
struct loaded {
    struct salvo_model *model;
    struct salvo_engine *engine;
    struct salvo_session *session;
};

/* The options for the library; EXIT_USAGE after an error message. */
int engine_options_from_flags(struct salvo_engine_options *out);

/* EXIT_USAGE after an error message when --gpu-layers is neither 0 nor all layers. */
int check_gpu_layers(const struct salvo_model *model);

/* Opens model, engine and one session. EXIT_DONE, or an exit status after an error message. */
int load(struct loaded *out);
int load_engine(struct loaded *loaded, const struct salvo_engine_options *options); /* with an open model */
void unload(struct loaded *loaded);

#endif

/* make-model: GGUF files of a named shape and type with random weights, for tests and benchmarks. */
#include "model_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(FILE *stream)
{
    fprintf(stream, "usage: make-model SHAPE TYPE OUT [--seed N]\nshapes:");
    for (const struct model_shape *shape = model_shapes; shape->name; shape++)
        fprintf(stream, " %s", shape->name);
    fprintf(stream, "\ntypes:");
    for (const struct model_mix *mix = model_mixes; mix->name; mix++)
        fprintf(stream, " %s", mix->name);
    fprintf(stream, "\n");
    return stream == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return usage(stdout);
    if (argc == 6 && strcmp(argv[4], "--seed") == 0)
        seed = strtoull(argv[5], NULL, 10);
    else if (argc != 4)
        return usage(stderr);

    const struct model_shape *shape = model_shapes;
    while (shape->name && strcmp(shape->name, argv[1]) != 0)
        shape++;
    const struct model_mix *mix = model_mixes;
    while (mix->name && strcmp(mix->name, argv[2]) != 0)
        mix++;
    if (!shape->name || !mix->name)
        return usage(stderr);
    if (model_write(shape, mix, argv[3], seed) != SALVO_OK) {
        fprintf(stderr, "make-model: %s\n", salvo_error());
        return 1;
    }
    return 0;
}

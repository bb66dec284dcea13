/*
 * quant_tool quantize|dequantize TYPE: floats from standard input to blocks on standard output, or the other
 * way round. Quantising reports its speed on standard error.
 */
#include "base/buffer.h"
#include "base/memory.h"
#include "quant/quant.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static enum salvo_status read_all(FILE *stream, struct buffer *out)
{
    char piece[65536];
    size_t size;
    enum salvo_status status = SALVO_OK;
    while (status == SALVO_OK && (size = fread(piece, 1, sizeof piece, stream)) > 0)
        status = buffer_append(out, piece, size);
    return status;
}

static bool find_type(const char *name, enum tensor_type *out_type, const struct tensor_type_info **out_info)
{
    for (uint32_t type = 0; type < 256; type++) {
        const struct tensor_type_info *info = tensor_type_info(type);
        if (info && strcmp(info->name, name) == 0 && quant_check(type) == SALVO_OK) {
            *out_type = (enum tensor_type)type;
            *out_info = info;
            return true;
        }
    }
    return false;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    enum tensor_type type;
    const struct tensor_type_info *info;
    if (argc != 3 || !find_type(argv[2], &type, &info)) {
        fprintf(stderr, "usage: quant_tool quantize|dequantize TYPE\n");
        return 2;
    }
    enum salvo_status status = SALVO_OK;
    struct buffer input = {0};
    unsigned char *output = NULL;
    bool quantizing = strcmp(argv[1], "quantize") == 0;
    TRY(read_all(stdin, &input));
    size_t block_floats = info->block_elements * sizeof(float);
    size_t from = quantizing ? block_floats : info->block_bytes,
           to = quantizing ? info->block_bytes : block_floats;
    size_t blocks = input.size / from, count = blocks * info->block_elements;
    TRY(NEW(&output, blocks * to));
    double start = seconds();
    if (quantizing)
        quantize(type, (const float *)(const void *)input.data, count, output);
    else
        dequantize(type, input.data, count, (float *)(void *)output);
    if (quantizing)
        fprintf(stderr, "%.0f\n", (double)count / (seconds() - start));
    if (fwrite(output, to, blocks, stdout) != blocks)
        status = SALVO_ERROR_IO;
cleanup:
    buffer_free(&input);
    memory_free(output);
    return status == SALVO_OK ? 0 : 1;
}

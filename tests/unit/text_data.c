#include "text_data.h"

#include "cmocka_test.h"
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *existing(const char *path, const char *what)
{
    if (access(path, R_OK) == 0)
        return path;
    printf("skipped: no %s at %s\n", what, path);
    return NULL;
}

const char *test_data_folder(void)
{
    static char path[4096];
    const char *folder = getenv("SALVO_TEST_DATA"), *source = getenv("SALVO_SOURCE");
    if (folder)
        snprintf(path, sizeof path, "%s", folder);
    else
        snprintf(path, sizeof path, "%s/../shared/data", source ? source : ".");
    return existing(path, "test data");
}

const char *default_model_path(void)
{
    static char path[4096];
    static const char name[] = "salvo/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, sizeof path, "%s/%s", cache, name);
    else
        snprintf(path, sizeof path, "%s/.cache/%s", home ? home : "", name);
    return existing(path, "default model");
}

const char *test_data_path(const char *folder, const char *name)
{
    static char path[4096 + 256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

struct buffer read_whole_file(const char *path)
{
    struct buffer bytes = {0};
    FILE *stream = fopen(path, "rb");
    if (!stream)
        print_message("%s cannot be read\n", path);
    assert_non_null(stream);
    for (size_t got = 1; got;) {
        assert_int_equal(buffer_reserve(&bytes, 65536), SALVO_OK);
        got = fread(bytes.data + bytes.size, 1, 65535, stream);
        bytes.size += got;
    }
    bytes.data[bytes.size] = 0;
    fclose(stream);
    return bytes;
}

struct tokenizer *open_vocabulary(const char *path, struct gguf **out_gguf)
{
    struct tokenizer *tokenizer = NULL;
    enum salvo_status status = gguf_open(path, out_gguf);
    if (status == SALVO_OK)
        status = tokenizer_open(*out_gguf, &tokenizer);
    if (status != SALVO_OK)
        print_message("%s\n", salvo_error());
    assert_int_equal(status, SALVO_OK);
    return tokenizer;
}

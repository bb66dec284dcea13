/*
 * A program that others might write, compiled as C and as C++. Its own functions have names that the library
 * uses inside, with other parameters: neither may call the other's.
 */
#include <salvo/debug.h>
#include <salvo/salvo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
void buffer_free(void);
void fail(void);
void memory_free(void);
void gguf_open(void);
void file_open(void);
void utf8proc_tolower(void);
void utf8proc_category(void);
#ifdef __cplusplus
}
#endif

#define TRAP(name)                                                        \
    void name(void)                                                       \
    {                                                                     \
        fprintf(stderr, "the library called this program's %s\n", #name); \
        exit(3);                                                          \
    }
TRAP(buffer_free)
TRAP(fail)
TRAP(memory_free)
TRAP(gguf_open)
TRAP(file_open)
TRAP(utf8proc_tolower)
TRAP(utf8proc_category)

static int check(const char *path)
{
    struct salvo_model *model = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    const char text[] = "Hello, \xC3\x84pfel!";
    if (salvo_model_open("no such file", &model) != SALVO_ERROR_IO || !strstr(salvo_error(), "no such file"))
        return 1;
    if (salvo_model_open(path, &model) != SALVO_OK)
        return 1;
    if (salvo_tokenize(model, text, strlen(text), 0, &ids, &count) != SALVO_OK || count == 0)
        return 1;
    salvo_free(ids);
    salvo_model_close(model);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2 || check(argv[1]) != 0) {
        fprintf(stderr, "foreign: %s\n", salvo_error());
        return 1;
    }
    return 0;
}

#include "arch/arch.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

static const struct arch *const tables[] = {llama_archs, rwkv7_archs};

enum { TABLE_COUNT = sizeof tables / sizeof *tables };

static const struct arch *find_arch(struct salvo_text name)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        for (const struct arch *arch = tables[i]; arch->name; arch++) {
            if (strlen(arch->name) == name.size && !memcmp(arch->name, name.data, name.size))
                return arch;
        }
    }
    return NULL;
}

const struct arch *arch_of(const struct gguf *gguf)
{
    struct salvo_text name = {0};
    return gguf_get_text(gguf, "general.architecture", &name, NULL) == SALVO_OK ? find_arch(name) : NULL;
}

/* "llama, qwen2, ..." */
static void list_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        for (const struct arch *arch = tables[i]; arch->name && used < size; arch++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", arch->name);
    }
}

/* An unused tensor may be one that changes the model's results. */
static void warn_of_unused_tensors(const struct arch *arch, const struct program *program)
{
    size_t used = program->ignored_tensors, count = gguf_tensor_count(program->gguf);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        used += buffer->kind == BUFFER_WEIGHT &&
                buffer->rows * buffer->columns == buffer->tensor->elements; /* not a part */
    }
    if (used < count)
        log_line(SALVO_LOG_WARNING, "%s: %zu of its %zu tensors are not used by the architecture '%s'",
            gguf_path(program->gguf), count - used, count, arch->name);
}

enum salvo_status arch_build_for(const struct gguf *gguf, uint32_t context, struct program **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text name = {0};
    bool found;
    *out = NULL;
    TRY(gguf_get_text(gguf, "general.architecture", &name, &found));
    if (!found)
        TRY(fail(SALVO_ERROR_FORMAT, "%s: key 'general.architecture' is missing", gguf_path(gguf)));
    const struct arch *arch = find_arch(name);
    if (!arch) {
        char names[256];
        list_names(names, sizeof names);
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s: architecture '%.*s' is not supported; supported: %s",
            gguf_path(gguf), name.size < 64 ? (int)name.size : 64, name.data, names));
    }
    TRY(arch->build(arch, gguf, context, out));
    warn_of_unused_tensors(arch, *out);

cleanup:
    return status;
}

enum salvo_status arch_build(const struct gguf *gguf, struct program **out)
{
    return arch_build_for(gguf, 0, out);
}

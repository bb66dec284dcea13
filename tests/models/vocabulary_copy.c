#include "vocabulary_copy.h"

#include "gguf/gguf_writer.h"
#include "unit/text_sample.h"

static enum salvo_status copy_entries(struct gguf_writer *writer, const struct gguf *from)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < gguf_entry_count(from); i++)
        TRY(gguf_writer_copy(writer, gguf_entry_at(from, i)));
cleanup:
    return status;
}

enum salvo_status copy_with_vocabulary(const char *plain_path, const char *path)
{
    enum salvo_status status = SALVO_OK;
    struct text_sample sample = {0};
    struct gguf *plain = NULL;
    struct gguf_writer *writer = NULL;
    sample_bpe(&sample, "gpt-2");
    TRY(sample_open(&sample));
    TRY(gguf_open(plain_path, &plain));
    TRY(gguf_writer_open(path, &writer));
    TRY(copy_entries(writer, plain));
    TRY(copy_entries(writer, sample.gguf));
    for (size_t i = 0; i < gguf_tensor_count(plain); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(plain, i);
        TRY(gguf_writer_add_tensor(writer, tensor->name, tensor->type, tensor->dimensions, tensor->shape));
    }
    for (size_t i = 0; i < gguf_tensor_count(plain); i++)
        TRY(gguf_writer_write(writer, gguf_tensor_at(plain, i)->data, gguf_tensor_at(plain, i)->size));
    TRY(gguf_writer_commit(writer));
cleanup:
    gguf_writer_close(writer);
    gguf_close(plain);
    sample_close(&sample);
    return status;
}

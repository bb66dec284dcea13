/* Loads weights onto the device. The destination is divided into pieces: whole owners of a matrix, or one
 * vector. Pieces are grouped into loads that fit a staging buffer: all threads pack one load while the
 * previous one is copied. Mapped pages are released as soon as they are packed. */
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_weight_tiles.h"
#include "base/memory.h"
#include "base/team.h"
#include "quant/quant.h"

enum { BUFFERS = 2, PIECE_BYTES = 512 * 1024, BUFFER_BYTES = 32 << 20 };

struct piece {
    uint32_t buffer;              /* of the program */
    uint32_t first_owner, owners; /* 0 owners: it is a vector */
    cuda_address to;
    uint64_t bytes;
    bool is_last; /* of its tensor */
};

struct loader {
    struct executor *executor;
    struct piece *pieces;
    size_t piece_count, piece_capacity;
    uint64_t largest; /* bytes of a piece */
    struct team *team;
    uint8_t *staging[BUFFERS];
    size_t staging_bytes;
    cuda_event copied[BUFFERS];
    bool in_use[BUFFERS];

    /* The load that is packed now. */
    size_t first, count;
    uint8_t *target;
    cuda_address begin;
};

static enum salvo_status add_piece(struct loader *loader, struct piece piece)
{
    enum salvo_status status = SALVO_OK;
    TRY(GROW(&loader->pieces, loader->piece_count, &loader->piece_capacity));
    loader->pieces[loader->piece_count++] = piece;
    loader->largest = piece.bytes > loader->largest ? piece.bytes : loader->largest;
cleanup:
    return status;
}

/* In the order in which they lie on the device. */
static enum salvo_status cut_pieces(struct loader *loader)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = loader->executor->program;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct cuda_weight *weight = &loader->executor->weights[i];
        const struct cuda_matrix *matrix = &weight->matrix;
        const uint64_t owner_bytes = matrix->tile_rows ? cuda_owner_bytes(matrix) : 1;
        uint64_t each = PIECE_BYTES / owner_bytes;
        each = each ? each : 1;
        for (uint32_t owner = 0; owner < matrix->owners; owner += (uint32_t)each) {
            uint32_t left = matrix->owners - owner, count = left < each ? left : (uint32_t)each;
            TRY(add_piece(loader, (struct piece){i, owner, count, matrix->base + owner * owner_bytes,
                                      count * owner_bytes, count == left}));
        }
        if (loader->executor->weight_uses[i] & WEIGHT_VECTOR) {
            TRY(add_piece(
                loader, (struct piece){i, 0, 0, weight->vector,
                            program->buffers[i].rows * program->buffers[i].columns * sizeof(float), false}));
        }
    }
cleanup:
    return status;
}

static void pack_piece(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    (void)phase;
    (void)thread;
    const struct loader *loader = context;
    const struct piece *piece = &loader->pieces[loader->first + task];
    const struct program_buffer *buffer = &loader->executor->program->buffers[piece->buffer];
    uint8_t *out = loader->target + (piece->to - loader->begin);
    if (piece->owners) {
        cuda_pack_owners(&loader->executor->weights[piece->buffer].matrix, weight_rows(buffer),
            piece->first_owner, piece->owners, out);
    } else {
        dequantize(buffer->type, weight_rows(buffer), buffer->rows * buffer->columns, (float *)(void *)out);
    }
}

/* Packs the pieces from `first` on that fit one staging buffer and starts their copy. */
static enum salvo_status send_load(struct loader *loader, size_t first, uint32_t buffer)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = loader->executor;
    uint64_t end = 0;
    loader->first = first;
    loader->count = 0;
    loader->begin = loader->pieces[first].to;
    loader->target = loader->staging[buffer];
    for (size_t i = first; i < loader->piece_count; i++) {
        const struct piece *piece = &loader->pieces[i];
        if (piece->to + piece->bytes - loader->begin > loader->staging_bytes)
            break;
        end = piece->to + piece->bytes;
        loader->count++;
    }
    if (loader->in_use[buffer])
        TRY(CUDA_CALL(&executor->context, event_wait, (loader->copied[buffer])));
    const uint32_t tasks = (uint32_t)loader->count;
    team_run(loader->team,
        &(struct team_job){.context = loader, .tasks = &tasks, .phase_count = 1, .work = pack_piece});
    TRY(cuda_copy_in(executor, loader->begin, loader->target, (size_t)(end - loader->begin)));
    TRY(CUDA_CALL(&executor->context, event_record, (loader->copied[buffer], executor->queue)));
    loader->in_use[buffer] = true;
    for (size_t i = first; i < first + loader->count; i++) {
        const struct piece *piece = &loader->pieces[i];
        if (piece->is_last)
            gguf_release(executor->program->gguf, executor->program->buffers[piece->buffer].tensor);
    }
cleanup:
    return status;
}

static enum salvo_status open_loader(struct loader *loader)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = loader->executor;
    uint64_t size =
        executor->counters.weight_bytes < BUFFER_BYTES ? executor->counters.weight_bytes : BUFFER_BYTES;
    TRY(cut_pieces(loader));
    loader->staging_bytes = (size_t)(loader->largest > size ? loader->largest : size);
    const uint32_t threads = executor->options.threads;
    TRY(team_open(threads < TEAM_MAX_THREADS ? threads : TEAM_MAX_THREADS, false, 1, &loader->team));
    for (int i = 0; i < BUFFERS; i++) {
        TRY(cuda_host_new(executor, "loading", loader->staging_bytes, &loader->staging[i]));
        TRY(CUDA_CALL(&executor->context, event_new, (&loader->copied[i], CUDA_EVENT_UNTIMED)));
        executor->context.creations++;
    }
cleanup:
    return status;
}

static void close_loader(struct loader *loader)
{
    struct executor *executor = loader->executor;
    (void)executor->context.driver->stream_wait(executor->queue); /* copies read the staging buffers */
    for (int i = 0; i < BUFFERS; i++) {
        cuda_host_free(executor, loader->staging[i]);
        if (loader->copied[i])
            (void)executor->context.driver->event_free(loader->copied[i]);
    }
    team_close(loader->team);
    memory_free(loader->pieces);
}

enum salvo_status cuda_load_weights(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct backend_options *options = &executor->options;
    struct loader loader = {.executor = executor};
    uint32_t buffer = 0;
    TRY(open_loader(&loader));
    for (size_t first = 0; first < loader.piece_count; first += loader.count) {
        TRY(send_load(&loader, first, buffer));
        buffer = (buffer + 1) % BUFFERS;
        const struct piece *last = &loader.pieces[first + loader.count - 1];
        if (options->progress)
            options->progress(options->progress_user, last->to + last->bytes - executor->weight_memory,
                executor->counters.weight_bytes);
    }
    TRY(cuda_queue_wait(executor));
    TRY(gguf_check(executor->program->gguf));
cleanup:
    close_loader(&loader);
    return status;
}

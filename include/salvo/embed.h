/*
 * salvo/embed.h: texts as vectors.
 *
 * The hidden row of a token is the model's last row of `width` numbers, after the last norm, from which the
 * logits are computed. The embedding of a text is the mean of the hidden rows of all its tokens, or the
 * hidden row of its last token.
 *
 * A run of a batch (struct salvo_run) has its hidden rows written to `hidden`, [count][width] (one row for a
 * run that decodes), until salvo_engine_wait has returned; the next step then waits for this one. Such a run
 * may want nothing else. Runs that failed, ended or did nothing leave the memory unchanged.
 */
#ifndef SALVO_EMBED_H
#define SALVO_EMBED_H

#include <salvo/salvo.h>

#ifdef __cplusplus
extern "C" {
#endif

enum salvo_pooling {
    SALVO_POOLING_MODEL = 0, /* as the model's metadata asks; the mean where it does not */
    SALVO_POOLING_MEAN = 1,
    SALVO_POOLING_LAST = 3 /* numbered as in the GGUF format */
};

enum {
    SALVO_NORM_NONE = -1,    /* the embedding as it is */
    SALVO_NORM_EUCLIDEAN = 0 /* of length 1 */
};

struct salvo_embed_options {
    size_t size;
    uint32_t pooling; /* enum salvo_pooling */
    /* Divides the embedding by its norm: SALVO_NORM_NONE, SALVO_NORM_EUCLIDEAN, or p > 0 for the p-norm (1:
     * the sum of the absolute values). An embedding of zeros stays as it is. */
    int32_t norm;
};
#define SALVO_EMBED_OPTIONS_INIT                 \
    {                                            \
        sizeof(struct salvo_embed_options), 0, 0 \
    }

/* Numbers of an embedding. */
SALVO_API uint32_t salvo_engine_width(const struct salvo_engine *engine);

/*
 * Computes the embedding of a text, [width], in an empty session: what the session contains is removed first,
 * and it is empty afterwards. A text without tokens, or with an id outside the vocabulary, is
 * SALVO_ERROR_ARGUMENT; one longer than the context is SALVO_ERROR_CONTEXT; an embedding that is not finite
 * is SALVO_ERROR_NUMERIC. salvo_session_cancel stops the call.
 */
SALVO_API enum salvo_status salvo_session_embed(struct salvo_session *session, const int32_t *ids,
    size_t count, const struct salvo_embed_options *options, float *out);

/*
 * The same for many texts, which share steps: text i has the tokens ids[i][0 .. counts[i]), its embedding is
 * written to out + i * width. All sessions are of one engine. All texts are checked before anything is
 * computed; an error names the text, counted from 1. On the CPU an embedding has the same bits whatever texts
 * share its steps; on GPUs it differs within the tolerances of salvo_verify.
 */
SALVO_API enum salvo_status salvo_engine_embed(struct salvo_session *const *sessions, size_t session_count,
    const int32_t *const *ids, const size_t *counts, size_t text_count,
    const struct salvo_embed_options *options, float *out);

#ifdef __cplusplus
}
#endif

#endif

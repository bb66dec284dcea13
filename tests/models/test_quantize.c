/* Models written again in other types. */
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "gguf/gguf_writer.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *output_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/salvo-quantize-%d.gguf", (int)getpid());
    return path;
}

static void quantize_to(const char *from, const char *type, bool pure, uint32_t threads)
{
    struct salvo_model *model;
    ASSERT_OK(salvo_model_open(from, &model));
    ASSERT_OK(salvo_quantize(model, output_path(),
        &(struct salvo_quantize_options){
            .size = sizeof(struct salvo_quantize_options), .type = type, .pure = pure, .threads = threads}));
    salvo_model_close(model);
}

static char *read_all(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out_size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*out_size);
    assert_non_null(bytes);
    assert_int_equal(*out_size, fread(bytes, 1, *out_size, file));
    fclose(file);
    return bytes;
}

static void every_type_can_be_written_and_run(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K",
        "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "q4_k_m", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ4_NL",
        "IQ4_XS", "MXFP4"};
    const char *source = made_model("llama-256", "F32");
    int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct fixture plain =
        fixture_open(source, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    float *expected = logits_at_once(&plain, ids, 8);
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        quantize_to(source, types[i], i % 2, 3);
        struct fixture fixture = fixture_open(
            output_path(), (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
        assert_int_equal(0, strcasecmp(types[i], salvo_model_info(fixture.model)->file_type));
        float *got = logits_at_once(&fixture, ids, 8);
        double difference = 0, norm = 0;
        for (size_t j = 0; j < 8 * fixture.vocabulary; j++) {
            difference += ((double)got[j] - (double)expected[j]) * ((double)got[j] - (double)expected[j]);
            norm += (double)expected[j] * (double)expected[j];
        }
        double relative = sqrt(difference / norm);
        if (!(relative < 0.7)) /* two bits are coarse; swapped elements differ by more than 1 */
            fail_msg("%s: off by %g of the logits", types[i], relative);
        free(got);
        fixture_close(&fixture);
    }
    free(expected);
    fixture_close(&plain);
    unlink(output_path());
}

static void the_same_bytes_with_any_number_of_threads(void **state)
{
    (void)state;
    size_t size, size_again;
    quantize_to(made_model("llama-odd", "F16"), "Q4_K_M", false, 1);
    char *bytes = read_all(output_path(), &size);
    quantize_to(made_model("llama-odd", "F16"), "Q4_K_M", false, 8);
    char *again = read_all(output_path(), &size_again);
    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, again, size);
    char source[80];
    snprintf(source, sizeof source, "%s.source", output_path());
    assert_int_equal(0, rename(output_path(), source));
    quantize_to(source, "Q4_K_M", false, 2); /* to the types that it has: nothing changes */
    unlink(source);
    char *third = read_all(output_path(), &size_again);
    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, third, size);
    free(bytes);
    free(again);
    free(third);
    unlink(output_path());
}

/* A tensor whose rows are counted by its third and fourth dimensions, more than are converted at once: each
 * is. */
static void four_dimensions_are_converted(void **state)
{
    (void)state;
    enum { COLUMNS = 64, ROWS = 15 * 4500 };
    static const char name[] = "blk.0.ffn_down.weight";
    static const uint64_t shape[] = {COLUMNS, 1, 15, 4500};
    static float values[ROWS * COLUMNS], got[ROWS * COLUMNS];
    struct gguf_writer *writer;
    struct gguf *gguf;
    char source[80];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)(i % 127 - 63) / 16 + (float)(i / COLUMNS % 30);
    snprintf(source, sizeof source, "%s.deep", output_path());
    ASSERT_OK(gguf_writer_open(source, &writer));
    ASSERT_OK(gguf_writer_set_text(writer, "general.architecture", "llama"));
    ASSERT_OK(gguf_writer_add_tensor(writer, (struct salvo_text){name, strlen(name)}, TYPE_F32, 4, shape));
    ASSERT_OK(gguf_writer_write(writer, values, sizeof values));
    ASSERT_OK(gguf_writer_commit(writer));
    gguf_writer_close(writer);

    for (int pure = 0; pure < 2; pure++) {
        quantize_to(source, "Q8_0", pure, 2);
        ASSERT_OK(gguf_open(output_path(), &gguf));
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, 0);
        assert_int_equal(TYPE_Q8_0, tensor->type);
        assert_int_equal(4, tensor->dimensions);
        assert_memory_equal(shape, tensor->shape, sizeof shape);
        assert_int_equal(ROWS * COLUMNS / 32 * 34, tensor->size);
        dequantize(TYPE_Q8_0, tensor->data, ROWS * COLUMNS, got);
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            if (!(fabsf(got[i] - values[i]) <= 0.15f)) /* half a step of the largest, 34 / 127 */
                fail_msg("element %d: %g, not %g", i, (double)got[i], (double)values[i]);
        }
        gguf_close(gguf);
    }
    unlink(source);
    unlink(output_path());
}

/* Eight experts, as in Mixtral: the matrices of the experts are one tensor of three dimensions. */
static void a_mixture_of_experts_is_converted(void **state)
{
    (void)state;
    enum { COLUMNS = 256, ROWS = 8 * 8 };
    static const char *const names[] = {"blk.0.ffn_up_exps.weight", "blk.0.attn_k.weight"};
    static const uint64_t shapes[][3] = {{COLUMNS, 8, 8}, {COLUMNS, ROWS}};
    static float values[ROWS * COLUMNS];
    static uint8_t expected[ROWS * COLUMNS * 2]; /* Q8_0 needs 34 bytes for 32 elements */
    struct gguf_writer *writer;
    struct gguf *gguf;
    char source[80];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = sinf((float)i);
    snprintf(source, sizeof source, "%s.experts", output_path());
    ASSERT_OK(gguf_writer_open(source, &writer));
    ASSERT_OK(gguf_writer_set_text(writer, "general.architecture", "llama"));
    ASSERT_OK(gguf_writer_set_u32(writer, "llama.expert_count", 8));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(gguf_writer_add_tensor(
            writer, (struct salvo_text){names[i], strlen(names[i])}, TYPE_F32, i ? 2 : 3, shapes[i]));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(gguf_writer_write(writer, values, sizeof values));
    ASSERT_OK(gguf_writer_commit(writer));
    gguf_writer_close(writer);

    quantize_to(source, "Q4_K_M", false, 2);
    ASSERT_OK(gguf_open(output_path(), &gguf));
    static const enum tensor_type types[] = {TYPE_Q4_K, TYPE_Q8_0};
    for (int i = 0; i < 2; i++) {
        const struct gguf_tensor *tensor = gguf_find_tensor(gguf, names[i]);
        assert_non_null(tensor);
        assert_int_equal(types[i], tensor->type);
        assert_int_equal(i ? 2 : 3, tensor->dimensions);
        quantize(types[i], values, ROWS * COLUMNS, expected);
        assert_memory_equal(expected, tensor->data, tensor->size);
    }
    gguf_close(gguf);
    unlink(source);
    unlink(output_path());
}

static bool stop_at_once(void *user, const char *tensor, uint64_t done, uint64_t total)
{
    (void)user;
    (void)tensor;
    return done >= total;
}

static void what_fails_leaves_no_file(void **state)
{
    (void)state;
    struct salvo_model *model;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "F32"), &model));
    assert_int_equal(SALVO_ERROR_ARGUMENT,
        salvo_quantize(model, output_path(),
            &(struct salvo_quantize_options){.size = sizeof(struct salvo_quantize_options), .type = "Q4_Z"}));
    assert_non_null(strstr(salvo_error(), "Q4_K_M"));
    assert_int_equal(SALVO_ERROR_CANCELLED,
        salvo_quantize(model, output_path(),
            &(struct salvo_quantize_options){
                .size = sizeof(struct salvo_quantize_options), .type = "Q8_0", .progress = stop_at_once}));
    assert_int_equal(SALVO_ERROR_ARGUMENT, /* over itself */
        salvo_quantize(model, salvo_model_info(model)->path,
            &(struct salvo_quantize_options){.size = sizeof(struct salvo_quantize_options), .type = "Q8_0"}));
    assert_non_null(strstr(salvo_error(), "the model is read from this file"));
    assert_int_equal(SALVO_ERROR_IO,
        salvo_quantize(model, "/nowhere/at/all.gguf",
            &(struct salvo_quantize_options){.size = sizeof(struct salvo_quantize_options), .type = "Q8_0"}));
    salvo_model_close(model);

    /* One weight that is not finite, somewhere in the last tensor. */
    size_t size;
    char *bytes = read_all(made_model("llama-tiny", "F32"), &size);
    const float broken = INFINITY;
    memcpy(bytes + size - 64, &broken, sizeof broken);
    char path[80];
    snprintf(path, sizeof path, "%s.broken", output_path());
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(size, fwrite(bytes, 1, size, file));
    fclose(file);
    free(bytes);
    ASSERT_OK(salvo_model_open(path, &model));
    assert_int_equal(SALVO_ERROR_NUMERIC,
        salvo_quantize(model, output_path(),
            &(struct salvo_quantize_options){.size = sizeof(struct salvo_quantize_options), .type = "Q8_0"}));
    assert_non_null(strstr(salvo_error(), "tensor '"));
    salvo_model_close(model);
    unlink(path);
    assert_int_not_equal(0, access(output_path(), F_OK));
}

/* Cuts the source, whose path it gets, as soon as the work has begun. */
static bool cut_source(void *user, const char *tensor, uint64_t done, uint64_t total)
{
    (void)tensor;
    (void)done;
    (void)total;
    return truncate(user, 100) == 0;
}

static void a_source_that_is_cut_is_said_to_be(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "Q8_0"};
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        char path[80];
        snprintf(path, sizeof path, "%s.cut", output_path());
        quantize_to(made_model("llama-tiny", "F32"), types[i], false, 1);
        assert_int_equal(0, rename(output_path(), path));
        struct salvo_model *model;
        ASSERT_OK(salvo_model_open(path, &model));
        assert_int_equal(SALVO_ERROR_IO,
            salvo_quantize(model, output_path(),
                &(struct salvo_quantize_options){.size = sizeof(struct salvo_quantize_options),
                    .type = "Q8_0",
                    .progress = cut_source,
                    .user = path}));
        assert_non_null(strstr(salvo_error(), "was cut"));
        assert_int_not_equal(0, access(output_path(), F_OK));

        /* From now on that is what everything says. */
        struct salvo_engine *engine;
        int32_t *ids;
        size_t count;
        assert_int_equal(SALVO_ERROR_IO, salvo_engine_open(model, NULL, &engine));
        assert_non_null(strstr(salvo_error(), "was cut"));
        assert_int_equal(SALVO_ERROR_IO, salvo_tokenize(model, "a", 1, 0, &ids, &count));
        assert_non_null(strstr(salvo_error(), "was cut"));
        salvo_model_close(model);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: cmocka takes the signal from all that come later. */
        cmocka_unit_test(a_source_that_is_cut_is_said_to_be),
        cmocka_unit_test(every_type_can_be_written_and_run),
        cmocka_unit_test(the_same_bytes_with_any_number_of_threads),
        cmocka_unit_test(what_fails_leaves_no_file),
        cmocka_unit_test(four_dimensions_are_converted),
        cmocka_unit_test(a_mixture_of_experts_is_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The model maker: known shapes have their known sizes, every type fits, the same seed gives the same file.
 */
#include "cmocka_test.h"

#include "model_write.h"

#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct model_shape *find_shape(const char *name)
{
    const struct model_shape *shape = model_shapes;
    while (strcmp(shape->name, name) != 0)
        shape++;
    return shape;
}

static const struct model_mix *find_mix(const char *name)
{
    const struct model_mix *mix = model_mixes;
    while (strcmp(mix->name, name) != 0)
        mix++;
    return mix;
}

static void known_shapes_have_their_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t millions;
    } known[] = {{"smollm-135m", 134}, {"smollm-360m", 361}, {"llama-1b", 1235}, {"llama-8b", 8030},
        {"rwkv7-0.1b", 191}, {"rwkv7-0.4b", 450}, {"rwkv7-1.5b", 1527}, {"rwkv7-2.9b", 2948}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct model_plan plan;
        uint64_t parameters = 0;
        assert_int_equal(model_plan_make(find_shape(known[i].name), &plan), SALVO_OK);
        for (size_t j = 0; j < plan.count; j++) {
            const uint64_t *shape = plan.tensors[j].shape;
            parameters += shape[0] * shape[1] * shape[2] * shape[3];
        }
        model_plan_free(&plan);
        assert_int_equal(parameters / 1000000, known[i].millions);
    }
}

static void every_type_fits_every_shape(void **state)
{
    (void)state;
    for (const struct model_shape *shape = model_shapes; shape->name; shape++) {
        struct model_plan plan;
        assert_int_equal(model_plan_make(shape, &plan), SALVO_OK);
        for (const struct model_mix *mix = model_mixes; mix->name; mix++) {
            for (size_t i = 0; i < plan.count; i++) {
                const struct plan_tensor *tensor = &plan.tensors[i];
                enum tensor_type type = model_mix_type(mix, shape, tensor);
                assert_int_equal(tensor->shape[0] % tensor_type_info(type)->block_elements, 0);
            }
        }
        model_plan_free(&plan);
    }
}

static enum tensor_type type_of(const char *shape_name, const char *mix_name, const char *tensor_name)
{
    const struct model_shape *shape = find_shape(shape_name);
    struct model_plan plan;
    assert_int_equal(model_plan_make(shape, &plan), SALVO_OK);
    size_t i = 0;
    while (strcmp(plan.tensors[i].name, tensor_name) != 0)
        i++;
    enum tensor_type type = model_mix_type(find_mix(mix_name), shape, &plan.tensors[i]);
    model_plan_free(&plan);
    return type;
}

static void mixtures_are_the_usual_ones(void **state)
{
    (void)state;
    assert_int_equal(type_of("llama-1b", "Q4_0", "token_embd.weight"), TYPE_Q8_0);
    assert_int_equal(type_of("llama-1b", "Q4_0", "blk.0.ffn_down.weight"), TYPE_Q4_0);
    assert_int_equal(type_of("llama-1b", "Q4_0", "blk.0.attn_norm.weight"), TYPE_F32);
    assert_int_equal(type_of("llama-1b", "F16", "token_embd.weight"), TYPE_F16);
    assert_int_equal(type_of("llama-1b", "Q4_K_M", "token_embd.weight"), TYPE_Q6_K); /* tied */
    assert_int_equal(type_of("llama-8b", "Q4_K_M", "token_embd.weight"), TYPE_Q4_K);
    assert_int_equal(type_of("llama-8b", "Q4_K_M", "output.weight"), TYPE_Q6_K);
    /* 16 layers: 0, 1, then every third, then 14 and 15. */
    static const bool more[16] = {1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1};
    for (int i = 0; i < 16; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        assert_int_equal(type_of("llama-1b", "Q4_K_M", name), more[i] ? TYPE_Q6_K : TYPE_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
        assert_int_equal(type_of("llama-1b", "Q5_K_M", name), more[i] ? TYPE_Q6_K : TYPE_Q5_K);
    }
    assert_int_equal(type_of("llama-1b", "Q3_K_M", "blk.9.attn_output.weight"), TYPE_Q4_K);
    /* 576 is no multiple of 256. */
    assert_int_equal(type_of("smollm-135m", "Q4_K_M", "token_embd.weight"), TYPE_Q8_0);
    assert_int_equal(type_of("smollm-135m", "Q4_K_M", "blk.5.attn_q.weight"), TYPE_Q5_0);
    assert_int_equal(type_of("smollm-135m", "Q4_K_M", "blk.0.attn_v.weight"), TYPE_Q8_0);
    assert_int_equal(type_of("smollm-135m", "Q4_K_M", "blk.0.ffn_down.weight"), TYPE_Q6_K);
    assert_int_equal(type_of("llama-odd", "Q8_0", "blk.0.attn_q.weight"), TYPE_F16);
    assert_int_equal(type_of("rwkv7-0.1b", "Q4_K_M", "blk.0.time_mix_value.weight"), TYPE_Q4_K);
    assert_int_equal(type_of("rwkv7-0.1b", "Q4_K_M", "blk.0.time_mix_w1.weight"), TYPE_F32);
}

/* The bytes of the file; *out is to be freed. */
static size_t make(const char *shape, const char *mix, uint64_t seed, char **out)
{
    char path[] = "/tmp/salvo-model-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    assert_int_equal(model_write(find_shape(shape), find_mix(mix), path, seed), SALVO_OK);

    struct gguf *gguf;
    assert_int_equal(gguf_open(path, &gguf), SALVO_OK);
    assert_non_null(gguf_find(gguf, "tokenizer.ggml.model"));
    assert_non_null(gguf_find_tensor(gguf, "token_embd.weight"));
    gguf_close(gguf);

    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    fseek(stream, 0, SEEK_END);
    size_t size = (size_t)ftell(stream);
    rewind(stream);
    *out = malloc(size);
    assert_non_null(*out);
    assert_int_equal(fread(*out, 1, size, stream), size);
    fclose(stream);
    unlink(path);
    return size;
}

static void the_same_seed_gives_the_same_file(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"llama-odd", "F16"}, {"llama-tiny", "Q4_0"}, {"llama-256", "Q4_K_M"}, {"rwkv7-tiny", "Q8_0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *first, *again, *other;
        size_t size = make(cases[i][0], cases[i][1], 7, &first);
        assert_int_equal(make(cases[i][0], cases[i][1], 7, &again), size);
        assert_int_equal(make(cases[i][0], cases[i][1], 8, &other), size);
        assert_memory_equal(first, again, size);
        assert_memory_not_equal(first, other, size);
        free(first);
        free(again);
        free(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_shapes_have_their_number_of_parameters),
        cmocka_unit_test(every_type_fits_every_shape),
        cmocka_unit_test(mixtures_are_the_usual_ones),
        cmocka_unit_test(the_same_seed_gives_the_same_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "lowering_case.h"

#include "cmocka_test.h"

#include <stdio.h>
#include <string.h>

const uint32_t one_token[ROW_KIND_COUNT] = {1, 1, 1};
const uint32_t many_tokens[ROW_KIND_COUNT] = {[ROWS_TOKENS] = 5, [ROWS_RUNS] = 2, [ROWS_OUTPUTS] = 1};

void make_file(struct gguf_model *file)
{
    *file = (struct gguf_model){0};
    model_tensor(file, TYPE_Q8_0, WIDTH, VOCABULARY, "table");
    model_tensor(file, TYPE_Q4_0, WIDTH, WIDTH, "square");
    model_tensor(file, TYPE_F32, WIDTH, WIDTH, "floats");
    model_tensor(file, TYPE_F16, WIDTH, WIDTH, "halves");
    model_tensor(file, TYPE_F32, WIDTH, 0, "norm");
    model_tensor(file, TYPE_F32, WIDTH, HEAD, "narrow_matrix");
}

static void make_parts(struct parts *p, const struct gguf *gguf)
{
    static const double frequencies[HEAD / 2] = {1, 0.5, 0.25, 0.125};
    static const char *const names[BUFFERS] = {"a", "b", "c", "d", "e", "f"};
    struct builder *b = &p->builder;
    assert_int_equal(builder_open(b, gguf), SALVO_OK);
    p->table = builder_weight(b, VOCABULARY, WIDTH, "table");
    p->square = builder_weight(b, WIDTH, WIDTH, "square");
    p->floats = builder_weight(b, WIDTH, WIDTH, "floats");
    p->halves = builder_weight(b, WIDTH, WIDTH, "halves");
    p->norm = builder_weight(b, 1, WIDTH, "norm");
    p->narrow_matrix = builder_weight(b, HEAD, WIDTH, "narrow_matrix");
    p->x = builder_scratch(b, ROWS_TOKENS, WIDTH, "x");
    for (size_t i = 0; i < BUFFERS; i++)
        p->b[i] = builder_scratch(b, ROWS_TOKENS, WIDTH, names[i]);
    p->narrow = builder_scratch(b, ROWS_TOKENS, HEAD, "narrow");
    p->r = builder_scratch(b, ROWS_OUTPUTS, WIDTH, "r");
    p->o = builder_scratch(b, ROWS_OUTPUTS, WIDTH, "o");
    p->logits = builder_scratch(b, ROWS_OUTPUTS, VOCABULARY, "logits");
    p->keys = builder_cache(b, TYPE_F16, WIDTH, "keys");
    p->values = builder_cache(b, TYPE_F16, WIDTH, "values");
    p->other_keys = builder_cache(b, TYPE_F16, WIDTH, "other_keys");
    p->other_values = builder_cache(b, TYPE_F16, WIDTH, "other_values");
    p->shift = builder_recurrent(b, WIDTH, "shift");
    p->wkv = builder_recurrent(b, WIDTH * HEAD, "wkv");
    p->rope = builder_rope(b, HEAD, false, 1, frequencies);
    build_embed(b, p->x, p->table, 1);
}

void multiply(struct parts *p, int out, buffer_id weight, int in)
{
    build_matmul(&p->builder, p->b[out], weight, in < 0 ? p->x : p->b[in], NO_BUFFER, false);
}

void finely(struct parts *p, int out, int in)
{
    p->builder.round_finely = true;
    multiply(p, out, p->square, in);
    p->builder.round_finely = false;
}

void normalise(struct parts *p, int out, int in)
{
    build_rms_norm(&p->builder, p->b[out], in < 0 ? p->x : p->b[in], p->norm, 1e-5f);
}

void add_to_x(struct parts *p, int in)
{
    build_add(&p->builder, p->x, p->b[in]);
}

static const char *name_of(const struct program *program, buffer_id buffer)
{
    return program->buffers[buffer].name;
}

struct text {
    char bytes[2048];
    size_t used;
};

static void write_text(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(text->bytes + text->used, sizeof text->bytes - text->used, format, arguments);
    va_end(arguments);
    assert_in_range(count, 0, sizeof text->bytes - text->used - 1);
    text->used += (size_t)count;
}

static void write_group(
    struct text *text, const struct program *program, const struct group *group, bool single)
{
    static const char *const kinds[] = {"rows", "matmul", "attend", "project", "wkv7", "sample"};
    static const char *const roundings[] = {"f32", "f16", "q8"};
    write_text(text, "%s%s[", text->used ? " " : "", kinds[group->kind]);
    for (uint32_t i = 0; i < group->op_count; i++) {
        bool first =
            i == 0 || i == group->ops_before || (group->ops_after && i == group->op_count - group->ops_after);
        const struct op *op = &program->ops[group->first_op + i];
        write_text(text, "%s%s%s",
            i == 0  ? ""
            : first ? "|"
                    : ",",
            op_infos[op->kind].name, op->kind == OP_GLU && group->glu && i + 1 == group->op_count ? "!" : "");
    }
    for (uint32_t i = 0; group->kind == GROUP_ROWS && i < group->rounded_count; i++)
        write_text(text, ">%s:%s%s", name_of(program, group->rounded_inputs[i]), roundings[group->rounding],
            group->fine ? "+fine" : "");
    for (uint32_t i = 0; single && group->kind == GROUP_MATMUL && i < group->rounded_count; i++)
        write_text(text, "%s%s%s", i ? "," : ";", name_of(program, group->rounded_inputs[i]),
            group->fine_inputs >> i & 1 ? "+fine" : "");
    write_text(text, "]");
}

/* Every op is in one group, in order; private buffers have places of their own. */
static void check_plan(const struct program *program, const struct plan *plan)
{
    uint32_t next = 0;
    size_t private_end = 0;
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct group *group = &plan->groups[i];
        assert_int_equal(group->first_op, next);
        for (uint32_t op = 0; op < group->op_count; op++) {
            assert_int_equal(plan->group_of_op[next + op], i);
            assert_int_equal(program->ops[next + op].rows, group->rows);
        }
        if (group->kind == GROUP_MATMUL) {
            const bool capped = program->ops[next + group->op_count - 1].kind == OP_SOFTCAP;
            assert_int_equal(group->ops_before + group->matmuls + group->glu + capped, group->op_count);
        }
        next += group->op_count;
    }
    assert_int_equal(next, program->op_count);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (!plan->is_private[i])
            continue;
        assert_int_equal(program->buffers[i].kind, BUFFER_SCRATCH);
        assert_int_equal(plan->offsets[i] % 64, 0);
        assert_in_range(plan->offsets[i], private_end, SIZE_MAX);
        private_end = plan->offsets[i] + program->buffers[i].columns * sizeof(float);
    }
    assert_in_range(private_end, 0, plan->private_bytes);
    assert_in_range(plan->private_bytes, 0, (private_end + 63) / 64 * 64);
}

struct program *lower_case(make_ops *make, const struct gguf *gguf, const struct lowering_options *options,
    struct arena *tables, struct plan *plan)
{
    struct parts parts;
    struct program *program;
    make_parts(&parts, gguf);
    make(&parts);
    build_select_rows(&parts.builder, parts.o, parts.x);
    build_matmul(&parts.builder, parts.logits, parts.table, parts.o, NO_BUFFER, false);
    build_sample(&parts.builder, parts.logits);
    assert_int_equal(builder_finish(&parts.builder, &program), SALVO_OK);
    *plan = (struct plan){0};
    assert_int_equal(lower_program(program, options, tables, plan), SALVO_OK);
    check_plan(program, plan);
    return program;
}

void check_lowering(make_ops *make, const struct lowering_options *options, const char *expected)
{
    static struct gguf_model file;
    struct arena tables = {0};
    struct plan plan;
    struct text text = {{0}, 0};
    make_file(&file);
    struct program *program = lower_case(make, model_open(&file), options, &tables, &plan);
    for (uint32_t i = 0; i < plan.group_count; i++)
        write_group(&text, program, &plan.groups[i], plan.capacity[ROWS_TOKENS] == 1);
    assert_string_equal(text.bytes, expected);
    arena_free(&tables);
    program_close(program);
    model_close(&file);
}

void check_groups(make_ops *make, const uint32_t *capacity, uint32_t max_rounded, const char *expected)
{
    struct lowering_options options = {.max_rounded = max_rounded, .max_batch_inputs = 1};
    memcpy(options.capacity, capacity, sizeof options.capacity);
    check_lowering(make, &options, expected);
}

void check_batch_groups(make_ops *make, uint32_t max_inputs, const char *expected)
{
    struct lowering_options options = {.max_rounded = 1, .max_batch_inputs = max_inputs};
    memcpy(options.capacity, many_tokens, sizeof options.capacity);
    check_lowering(make, &options, expected);
}

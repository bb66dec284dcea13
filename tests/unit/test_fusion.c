/* Groups that a backend asks for, and the named parts of groups. lowering_case.h says how groups are written.
 */
#include "backend/common/fusion.h"
#include "cmocka_test.h"
#include "lowering_case.h"

static const struct lowering_options softcaps = {
    {1, 1, 1}, .max_rounded = MAX_ROUNDED, .max_batch_inputs = 1, .softcaps_in_matmuls = true};
static const struct lowering_options projects = {
    {1, 1, 1}, .max_rounded = MAX_ROUNDED, .max_batch_inputs = 1, .projects_attention = true};

#define END " matmul[select_rows|matmul;o+fine] sample[sample]"

/* ---- Softcaps ---- */

static void make_softcap(struct parts *p)
{
    multiply(p, 0, p->square, -1);
    build_softcap(&p->builder, p->b[0], 30);
    multiply(p, 1, p->floats, 0);
    add_to_x(p, 1);
}

static void make_softcap_of_another(struct parts *p)
{
    multiply(p, 0, p->square, -1);
    build_softcap(&p->builder, p->x, 30);
    multiply(p, 1, p->floats, 0);
    add_to_x(p, 1);
}

static void make_softcap_of_two(struct parts *p)
{
    multiply(p, 0, p->square, -1);
    multiply(p, 1, p->square, -1);
    build_softcap(&p->builder, p->b[1], 30);
    multiply(p, 2, p->floats, 1);
    add_to_x(p, 0);
    add_to_x(p, 2);
}

static void softcaps_join_their_matmul(void **state)
{
    (void)state;
    check_groups(make_softcap, one_token, MAX_ROUNDED,
        "rows[embed] matmul[matmul;x] rows[softcap] matmul[matmul] rows[add]" END);
    check_lowering(
        make_softcap, &softcaps, "rows[embed] matmul[matmul,softcap;x] matmul[matmul] rows[add]" END);
    check_lowering(make_softcap_of_another, &softcaps,
        "rows[embed] matmul[matmul;x] rows[softcap] matmul[matmul] rows[add]" END);
    check_lowering(make_softcap_of_two, &softcaps,
        "rows[embed] matmul[matmul,matmul;x] rows[softcap] matmul[matmul] rows[add,add]" END);
}

/* ---- Attention that projects ---- */

enum mistake { NO_MISTAKE, ACCUMULATES, VALUE_IS_READ_LATER, SWAPPED, OTHER_KEY, OTHER_INPUT };
static enum mistake mistake;

static void make_attention(struct parts *p)
{
    struct builder *b = &p->builder;
    const int key = mistake == SWAPPED ? 3 : mistake == OTHER_KEY ? 5 : 2, value = mistake == SWAPPED ? 2 : 3;
    if (mistake == ACCUMULATES || mistake == OTHER_KEY)
        build_embed(b, p->b[mistake == OTHER_KEY ? key : 3], p->table, 1);
    normalise(p, 0, -1);
    multiply(p, 1, p->square, 0);
    multiply(p, 2, p->square, 0);
    build_matmul(
        b, p->b[3], p->square, mistake == OTHER_INPUT ? p->x : p->b[0], NO_BUFFER, mistake == ACCUMULATES);
    build_rope(b, p->b[1], HEAD, p->rope);
    build_rope(b, p->b[key], HEAD, p->rope);
    build_kv_append(b, p->keys, p->values, p->b[key], p->b[value], HEAD);
    build_attend(b, p->b[4], p->b[1], p->keys, p->values, (struct attend_options){HEAD, 0, 1, 0});
    add_to_x(p, 4);
    if (mistake == VALUE_IS_READ_LATER)
        add_to_x(p, 3);
}

#define SEPARATE \
    "rows[embed] matmul[rms_norm|matmul,matmul,matmul;a] attend[rope,rope,kv_append|attend] rows[add"

static void attention_projects(void **state)
{
    (void)state;
    mistake = NO_MISTAKE;
    check_groups(make_attention, one_token, MAX_ROUNDED, SEPARATE "]" END);
    check_lowering(make_attention, &projects,
        "rows[embed] project[rms_norm,matmul,matmul,matmul,rope,rope,kv_append|attend] rows[add]" END);
    struct lowering_options batch = projects;
    batch.capacity[ROWS_TOKENS] = 4;
    check_lowering(make_attention, &batch,
        "rows[embed,rms_norm>a:q8] matmul[matmul,matmul,matmul] rows[rope,rope,kv_append] attend[attend] "
        "rows[add] rows[select_rows>o:q8+fine] matmul[matmul] sample[sample]");
}

static void other_matmuls_stay_apart(void **state)
{
    (void)state;
    mistake = VALUE_IS_READ_LATER;
    check_lowering(make_attention, &projects, SEPARATE ",add]" END);
    mistake = SWAPPED;
    check_lowering(make_attention, &projects, SEPARATE "]" END);
    mistake = OTHER_KEY;
    check_lowering(make_attention, &projects,
        "rows[embed,embed] matmul[rms_norm|matmul,matmul,matmul;a] attend[rope,rope,kv_append|attend] "
        "rows[add]" END);
    mistake = OTHER_INPUT;
    check_lowering(make_attention, &projects,
        "rows[embed] matmul[rms_norm|matmul,matmul,matmul;a,x] attend[rope,rope,kv_append|attend] "
        "rows[add]" END);
    mistake = ACCUMULATES;
    check_lowering(make_attention, &projects,
        "rows[embed,embed] matmul[rms_norm|matmul,matmul,matmul;a] attend[rope,rope,kv_append|attend] "
        "rows[add]" END);
}

static uint32_t asked;

static bool refuses(const struct executor *executor, const struct group *group)
{
    assert_null(executor);
    assert_int_equal(GROUP_PROJECT_ATTEND, group->kind);
    assert_int_equal(7, group->ops_before);
    asked++;
    return false;
}

static void backends_may_refuse(void **state)
{
    (void)state;
    struct lowering_options options = projects;
    options.takes = refuses;
    mistake = NO_MISTAKE;
    asked = 0;
    check_lowering(make_attention, &options, SEPARATE "]" END);
    assert_int_equal(1, asked);
}

/* ---- Parts ---- */

static bool second_lerp_mixes_another;

static void make_mixed(struct parts *p)
{
    struct builder *b = &p->builder;
    build_rms_norm(b, p->b[0], p->x, p->norm, 1e-5F);
    build_token_shift(b, p->b[1], p->b[0], p->shift);
    build_lerp(b, p->b[2], p->b[0], p->b[1], p->norm);
    build_lerp(b, p->b[3], p->b[0], second_lerp_mixes_another ? p->x : p->b[1], p->norm);
    multiply(p, 4, p->square, 2);
    multiply(p, 5, p->square, 3);
    add_to_x(p, 4);
    add_to_x(p, 5);
}

static void inputs_of_matmuls_have_parts(void **state)
{
    (void)state;
    static struct gguf_model file;
    const struct lowering_options options = {{1, 1, 1}, .max_rounded = MAX_ROUNDED, .max_batch_inputs = 1};
    struct arena tables = {0};
    struct plan plan;
    struct matmul_inputs inputs;
    make_file(&file);
    struct program *program = lower_case(make_mixed, model_open(&file), &options, &tables, &plan);
    const struct group *group = &plan.groups[1];
    const struct op *ops = &program->ops[group->first_op];
    assert_int_equal(4, group->ops_before);
    assert_true(group_matmul_inputs(program, group, &inputs));
    assert_ptr_equal(&ops[0], inputs.norm);
    assert_ptr_equal(&ops[1], inputs.shift);
    assert_int_equal(2, inputs.lerp_count);
    assert_int_equal(ops[0].inputs[0], inputs.x);
    assert_int_equal(ops[0].out, inputs.normed);
    assert_ptr_equal(&ops[3], matmul_inputs_lerp(&inputs, ops[5].inputs[1]));
    assert_null(matmul_inputs_lerp(&inputs, inputs.normed));
    assert_ptr_equal(&ops[4], group_op(program, group));

    /* The last group selects a row and has no norm. */
    group = &plan.groups[plan.group_count - 2];
    assert_true(group_matmul_inputs(program, group, &inputs));
    assert_null(inputs.norm);
    assert_int_equal(program->ops[group->first_op].out, inputs.normed);
    arena_free(&tables);
    program_close(program);
    model_close(&file);

    second_lerp_mixes_another = true;
    tables = (struct arena){0};
    make_file(&file);
    program = lower_case(make_mixed, model_open(&file), &options, &tables, &plan);
    assert_int_equal(4, plan.groups[1].ops_before);
    assert_false(group_matmul_inputs(program, &plan.groups[1], &inputs));
    arena_free(&tables);
    program_close(program);
    model_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softcaps_join_their_matmul),
        cmocka_unit_test(attention_projects),
        cmocka_unit_test(other_matmuls_stay_apart),
        cmocka_unit_test(backends_may_refuse),
        cmocka_unit_test(inputs_of_matmuls_have_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

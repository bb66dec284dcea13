/* Lowering: every condition under which neighbouring ops become one group, for a single token and for a
 * batch. lowering_case.h says how groups are written. */
#include "cmocka_test.h"
#include "lowering_case.h"

#include <string.h>

#define SINGLE_END " matmul[select_rows|matmul;o+fine] sample[sample]"
#define BATCH_END  " rows[select_rows>o:q8+fine] matmul[matmul] sample[sample]"

/* A cmocka test of the ops in braces: their groups for a single token, for a batch. */
#define CASE(name, single, batch, ...)                                        \
    static void make_##name(struct parts *p)                                  \
    {                                                                         \
        struct builder *b = &p->builder;                                      \
        (void)b;                                                              \
        __VA_ARGS__                                                           \
    }                                                                         \
    static void name(void **state)                                            \
    {                                                                         \
        (void)state;                                                          \
        check_groups(make_##name, one_token, MAX_ROUNDED, single SINGLE_END); \
        check_groups(make_##name, many_tokens, MAX_ROUNDED, batch BATCH_END); \
    }

/* Chains of row ops. */

CASE(nothing_between, "rows[embed]", "rows[embed]", )

CASE(row_ops_are_chained, "rows[embed,rms_norm,softcap,add]", "rows[embed,rms_norm,softcap,add]", {
    normalise(p, 0, -1);
    build_softcap(b, p->b[0], 30);
    add_to_x(p, 0);
})

CASE(other_rows_end_a_chain, "rows[embed] rows[select_rows] rows[rms_norm,add]",
    "rows[embed] rows[select_rows] rows[rms_norm,add]", {
        build_select_rows(b, p->r, p->x);
        normalise(p, 0, -1);
        add_to_x(p, 0);
    })

/* A batch's shift reads the row before, which another thread may compute. */
CASE(shift_waits_for_rows, "rows[embed,rms_norm,token_shift,lerp,add]",
    "rows[embed,rms_norm] rows[token_shift,lerp,add]", {
        normalise(p, 0, -1);
        build_token_shift(b, p->b[1], p->b[0], p->shift);
        build_lerp(b, p->b[2], p->b[0], p->b[1], p->norm);
        add_to_x(p, 2);
    })

CASE(rows_wait_for_the_shift_of_them, "rows[embed,rms_norm,token_shift,add,softcap,add]",
    "rows[embed,rms_norm] rows[token_shift,add] rows[softcap,add]", {
        normalise(p, 0, -1);
        build_token_shift(b, p->b[1], p->b[0], p->shift);
        add_to_x(p, 1); /* x is not the shift's input */
        build_softcap(b, p->b[0], 30);
        add_to_x(p, 0);
    })

/* Matmuls that run together. */

CASE(norm_runs_inside, "rows[embed] matmul[rms_norm|matmul,matmul,matmul;a] rows[add,add,add]",
    "rows[embed,rms_norm>a:q8] matmul[matmul,matmul,matmul] rows[add,add,add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, 0);
        multiply(p, 2, p->square, 0);
        multiply(p, 3, p->square, 0);
        add_to_x(p, 1);
        add_to_x(p, 2);
        add_to_x(p, 3);
    })

CASE(other_inputs_join_a_single_token, "rows[embed,rms_norm] matmul[matmul,matmul;x,a] rows[add,add,add]",
    "rows[embed,rms_norm>x:q8] matmul[matmul] rows[>a:q8] matmul[matmul] rows[add,add,add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, 0);
        add_to_x(p, 0);
        add_to_x(p, 1);
        add_to_x(p, 2);
    })

CASE(other_rows_do_not_join, "rows[embed] rows[select_rows] matmul[matmul;x] matmul[matmul;r+fine] rows[add]",
    "rows[embed] rows[select_rows] rows[>x:q8] matmul[matmul] rows[>r:q8+fine] matmul[matmul] rows[add]", {
        build_select_rows(b, p->r, p->x);
        multiply(p, 0, p->square, -1);
        build_matmul(b, p->logits, p->table, p->r, NO_BUFFER, false);
        add_to_x(p, 0);
    })

CASE(row_ops_stay_before_matmuls_of_other_rows,
    "rows[embed] rows[select_rows] rows[rms_norm] matmul[matmul;r+fine] rows[add]",
    "rows[embed] rows[select_rows] rows[rms_norm] rows[>r:q8+fine] matmul[matmul] rows[add]", {
        build_select_rows(b, p->r, p->x);
        normalise(p, 0, -1);
        build_matmul(b, p->logits, p->table, p->r, NO_BUFFER, false);
        add_to_x(p, 0);
    })

CASE(other_rounding_is_another_input, "rows[embed] matmul[matmul,matmul,matmul;x] rows[add,add,add]",
    "rows[embed>x:q8] matmul[matmul] rows[>x:f32] matmul[matmul] rows[>x:f16] matmul[matmul] "
    "rows[add,add,add]",
    {
        multiply(p, 0, p->square, -1);
        multiply(p, 1, p->floats, -1);
        multiply(p, 2, p->halves, -1);
        add_to_x(p, 0);
        add_to_x(p, 1);
        add_to_x(p, 2);
    })

CASE(fine_and_coarse_do_not_share_an_input,
    "rows[embed] matmul[matmul;x] matmul[matmul,matmul;x+fine] rows[add,add,add]",
    "rows[embed>x:q8] matmul[matmul] rows[>x:q8+fine] matmul[matmul,matmul] rows[add,add,add]", {
        multiply(p, 0, p->square, -1);
        finely(p, 1, -1);
        finely(p, 2, -1);
        add_to_x(p, 0);
        add_to_x(p, 1);
        add_to_x(p, 2);
    })

CASE(fine_and_coarse_inputs_run_together,
    "rows[embed,rms_norm] matmul[matmul,matmul;x,a+fine] rows[add,add,add]",
    "rows[embed,rms_norm>x:q8] matmul[matmul] rows[>a:q8+fine] matmul[matmul] rows[add,add,add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, -1);
        finely(p, 2, 0);
        add_to_x(p, 0);
        add_to_x(p, 1);
        add_to_x(p, 2);
    })

/* Floats are not rounded: fine says nothing about them. */
CASE(floats_beside_fine, "rows[embed] matmul[matmul,matmul;x+fine] rows[add,add]",
    "rows[embed>x:f32] matmul[matmul] rows[>x:q8+fine] matmul[matmul] rows[add,add]", {
        multiply(p, 0, p->floats, -1);
        finely(p, 1, -1);
        add_to_x(p, 0);
        add_to_x(p, 1);
    })

CASE(matmul_waits_for_its_input, "rows[embed] matmul[matmul;x] matmul[matmul;a] rows[add]",
    "rows[embed>x:q8] matmul[matmul] rows[>a:q8] matmul[matmul] rows[add]", {
        multiply(p, 0, p->square, -1);
        multiply(p, 1, p->square, 0);
        add_to_x(p, 1);
    })

CASE(two_sums_into_one_buffer, "rows[embed,rms_norm] matmul[matmul;x] matmul[matmul;a] rows[add,add]",
    "rows[embed,rms_norm>x:q8] matmul[matmul] rows[>a:q8] matmul[matmul] rows[add,add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, -1);
        build_matmul(b, p->b[1], p->square, p->b[0], NO_BUFFER, true);
        add_to_x(p, 0);
        add_to_x(p, 1);
    })

CASE(input_of_one_is_output_of_the_next,
    "rows[embed,rms_norm] matmul[matmul;a] matmul[matmul;x] rows[add,add]",
    "rows[embed,rms_norm>a:q8] matmul[matmul] rows[>x:q8] matmul[matmul] rows[add,add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, 0);
        multiply(p, 0, p->square, -1);
        add_to_x(p, 0);
        add_to_x(p, 1);
    })

/* The conflict is with the first of three, not with the neighbour. */
CASE(conflict_with_an_earlier_one, "rows[embed] matmul[matmul,matmul;x] matmul[matmul;a] rows[add,add]",
    "rows[embed>x:q8] matmul[matmul,matmul] rows[>a:q8] matmul[matmul] rows[add,add]", {
        multiply(p, 0, p->square, -1);
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, 0);
        add_to_x(p, 1);
        add_to_x(p, 2);
    })

/* The gate of a feed-forward. */

static void gate(struct parts *p, int first, int second)
{
    build_glu(&p->builder, p->b[3], p->b[first], p->b[second], ACTIVATION_SILU);
    add_to_x(p, 3);
}

CASE(glu_is_applied_on_the_way_out, "rows[embed] matmul[rms_norm|matmul,matmul,glu!;a] rows[add]",
    "rows[embed,rms_norm>a:q8] matmul[matmul,matmul,glu!] rows[add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, 0);
        multiply(p, 2, p->square, 0);
        gate(p, 1, 2);
    })

CASE(glu_of_swapped_matmuls, "rows[embed] matmul[matmul,matmul;x] rows[glu,add]",
    "rows[embed>x:q8] matmul[matmul,matmul] rows[glu,add]", {
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, -1);
        gate(p, 2, 1);
    })

CASE(glu_of_one_matmul_and_another_buffer, "rows[embed,rms_norm] matmul[matmul,matmul;x] rows[glu,add,add]",
    "rows[embed,rms_norm>x:q8] matmul[matmul,matmul] rows[glu,add,add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, -1);
        gate(p, 1, 0);
        add_to_x(p, 2);
    })

CASE(glu_of_three_matmuls, "rows[embed] matmul[matmul,matmul,matmul;x] rows[glu,add,add]",
    "rows[embed>x:q8] matmul[matmul,matmul,matmul] rows[glu,add,add]", {
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, -1);
        multiply(p, 0, p->square, -1);
        gate(p, 1, 2);
        add_to_x(p, 0);
    })

CASE(glu_not_right_behind, "rows[embed] matmul[matmul,matmul;x] rows[softcap,glu,add]",
    "rows[embed>x:q8] matmul[matmul,matmul] rows[softcap,glu,add]", {
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, -1);
        build_softcap(b, p->x, 30);
        gate(p, 1, 2);
    })

CASE(gate_is_read_again, "rows[embed] matmul[matmul,matmul;x] rows[glu,add,add]",
    "rows[embed>x:q8] matmul[matmul,matmul] rows[glu,add,add]", {
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, -1);
        gate(p, 1, 2);
        add_to_x(p, 1);
    })

CASE(up_is_read_again, "rows[embed] matmul[matmul,matmul;x] rows[glu,add,add]",
    "rows[embed>x:q8] matmul[matmul,matmul] rows[glu,add,add]", {
        multiply(p, 1, p->square, -1);
        multiply(p, 2, p->square, -1);
        gate(p, 1, 2);
        add_to_x(p, 2);
    })

CASE(gate_accumulates, "rows[embed,rms_norm] matmul[matmul,matmul;x] rows[glu,add]",
    "rows[embed,rms_norm>x:q8] matmul[matmul,matmul] rows[glu,add]", {
        normalise(p, 1, -1);
        build_matmul(b, p->b[1], p->square, p->x, NO_BUFFER, true);
        multiply(p, 2, p->square, -1);
        gate(p, 1, 2);
    })

CASE(up_accumulates, "rows[embed,rms_norm] matmul[matmul,matmul;x] rows[glu,add]",
    "rows[embed,rms_norm>x:q8] matmul[matmul,matmul] rows[glu,add]", {
        normalise(p, 2, -1);
        multiply(p, 1, p->square, -1);
        build_matmul(b, p->b[2], p->square, p->x, NO_BUFFER, true);
        gate(p, 1, 2);
    })

CASE(gate_is_finer_than_up, "rows[embed,rms_norm] matmul[matmul,matmul;x+fine,a] rows[glu,add,add]",
    "rows[embed,rms_norm>x:q8+fine] matmul[matmul] rows[>a:q8] matmul[matmul] rows[glu,add,add]", {
        normalise(p, 0, -1);
        finely(p, 1, -1);
        multiply(p, 2, p->square, 0);
        gate(p, 1, 2);
        add_to_x(p, 0);
    })

/* Row ops inside a single token's matmuls. */

CASE(chain_of_private_results, "rows[embed] matmul[rms_norm,rms_norm,mul|matmul;c] rows[add]",
    "rows[embed,rms_norm,rms_norm,mul>c:q8] matmul[matmul] rows[add]", {
        normalise(p, 0, -1);
        normalise(p, 1, 0);
        build_mul(b, p->b[2], p->b[0], p->b[1]);
        multiply(p, 3, p->square, 2);
        add_to_x(p, 3);
    })

CASE(result_that_is_read_later, "rows[embed,rms_norm] matmul[rms_norm|matmul;b] rows[add,add]",
    "rows[embed,rms_norm,rms_norm>b:q8] matmul[matmul] rows[add,add]", {
        normalise(p, 0, -1);
        normalise(p, 1, 0);
        multiply(p, 2, p->square, 1);
        add_to_x(p, 2);
        add_to_x(p, 0);
    })

CASE(result_that_is_replaced_before_it_is_read, "rows[embed] matmul[rms_norm|matmul;a] rows[softcap,add]",
    "rows[embed,rms_norm>a:q8] matmul[matmul] rows[softcap,add]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, 0);
        build_softcap(b, p->b[1], 30);
        add_to_x(p, 1);
    })

CASE(work_in_place_stays_outside, "rows[embed,rms_norm,softcap] matmul[matmul;a] rows[add]",
    "rows[embed,rms_norm,softcap>a:q8] matmul[matmul] rows[add]", {
        normalise(p, 0, -1);
        build_softcap(b, p->b[0], 30);
        multiply(p, 1, p->square, 0);
        add_to_x(p, 1);
    })

CASE(append_stays_outside, "rows[embed,rms_norm,kv_append] matmul[matmul;a] rows[add]",
    "rows[embed,rms_norm,kv_append>a:q8] matmul[matmul] rows[add]", {
        normalise(p, 0, -1);
        build_kv_append(b, p->keys, p->values, p->x, p->x, HEAD);
        multiply(p, 1, p->square, 0);
        add_to_x(p, 1);
    })

/* b is private to the second matmul, if it were not for the first one's output. */
CASE(buffer_that_others_write_too,
    "rows[embed] matmul[matmul;x] rows[add,rms_norm] matmul[matmul;b] rows[add]",
    "rows[embed>x:q8] matmul[matmul] rows[add,rms_norm>b:q8] matmul[matmul] rows[add]", {
        multiply(p, 1, p->square, -1);
        add_to_x(p, 1);
        normalise(p, 1, -1);
        multiply(p, 0, p->square, 1);
        add_to_x(p, 0);
    })

/* Making b shared keeps a, which b is made of, outside as well. */
CASE(sharing_spreads,
    "rows[embed] matmul[matmul;x] rows[add,rms_norm,rms_norm] matmul[matmul;b] rows[add] "
    "matmul[rms_norm|matmul;c] rows[add]",
    "rows[embed>x:q8] matmul[matmul] rows[add,rms_norm,rms_norm>b:q8] matmul[matmul] rows[add,rms_norm>c:q8] "
    "matmul[matmul] rows[add]",
    {
        multiply(p, 1, p->square, -1);
        add_to_x(p, 1);
        normalise(p, 0, -1);
        normalise(p, 1, 0);
        multiply(p, 3, p->square, 1);
        add_to_x(p, 3);
        normalise(p, 2, -1);
        multiply(p, 3, p->square, 2);
        add_to_x(p, 3);
    })

/* Every thread computes the norm for itself: no other thread may change x meanwhile. */
CASE(input_of_the_norm_is_output_of_the_matmul, "rows[embed,rms_norm] matmul[matmul;a]",
    "rows[embed,rms_norm>a:q8] matmul[matmul]", {
        normalise(p, 0, -1);
        build_matmul(b, p->x, p->square, p->b[0], NO_BUFFER, true);
    })

CASE(input_of_the_norm_is_output_of_the_glu, "rows[embed,rms_norm] matmul[matmul,matmul,glu!;a]",
    "rows[embed,rms_norm>a:q8] matmul[matmul,matmul,glu!]", {
        normalise(p, 0, -1);
        multiply(p, 1, p->square, 0);
        multiply(p, 2, p->square, 0);
        build_glu(b, p->x, p->b[1], p->b[2], ACTIVATION_SILU);
    })

/* Attention. */

static void append_and_attend(struct parts *p, int q, int k)
{
    struct builder *b = &p->builder;
    build_kv_append(b, p->keys, p->values, p->b[k], p->x, HEAD);
    build_attend(b, p->b[3], p->b[q], p->keys, p->values, (struct attend_options){HEAD, 0, 1, 0});
}

static void embed_and_rotate(struct parts *p, int first, int second)
{
    build_embed(&p->builder, p->b[0], p->table, 1);
    build_embed(&p->builder, p->b[1], p->table, 1);
    build_rope(&p->builder, p->b[first], HEAD, p->rope);
    build_rope(&p->builder, p->b[second], HEAD, p->rope);
}

CASE(ropes_and_append_run_inside, "rows[embed,embed,embed] attend[rope,rope,kv_append|attend] rows[add]",
    "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add]", {
        embed_and_rotate(p, 0, 1);
        append_and_attend(p, 0, 1);
        add_to_x(p, 3);
    })

CASE(ropes_in_the_other_order, "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add]",
    "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add]", {
        embed_and_rotate(p, 1, 0);
        append_and_attend(p, 0, 1);
        add_to_x(p, 3);
    })

CASE(rope_of_another_key, "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add]",
    "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add]", {
        embed_and_rotate(p, 0, 1);
        build_kv_append(b, p->keys, p->values, p->x, p->b[1], HEAD);
        build_attend(b, p->b[3], p->b[0], p->keys, p->values, (struct attend_options){HEAD, 0, 1, 0});
        add_to_x(p, 3);
    })

CASE(rope_and_append_alone, "rows[embed,embed,rope,kv_append] attend[attend] rows[add]",
    "rows[embed,embed,rope,kv_append] attend[attend] rows[add]", {
        build_embed(b, p->b[0], p->table, 1);
        build_rope(b, p->b[0], HEAD, p->rope);
        append_and_attend(p, 0, 0);
        add_to_x(p, 3);
    })

CASE(softcap_between, "rows[embed,embed,embed,rope,rope,softcap,kv_append] attend[attend] rows[add]",
    "rows[embed,embed,embed,rope,rope,softcap,kv_append] attend[attend] rows[add]", {
        embed_and_rotate(p, 0, 1);
        build_softcap(b, p->b[0], 30);
        append_and_attend(p, 0, 1);
        add_to_x(p, 3);
    })

CASE(query_is_read_again, "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add,add]",
    "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add,add]", {
        embed_and_rotate(p, 0, 1);
        append_and_attend(p, 0, 1);
        add_to_x(p, 3);
        add_to_x(p, 0);
    })

CASE(key_is_read_again, "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add,add]",
    "rows[embed,embed,embed,rope,rope,kv_append] attend[attend] rows[add,add]", {
        embed_and_rotate(p, 0, 1);
        append_and_attend(p, 0, 1);
        add_to_x(p, 3);
        add_to_x(p, 1);
    })

CASE(attention_to_other_keys,
    "rows[embed,embed,embed,kv_append,rope,rope,kv_append] attend[attend] rows[add]",
    "rows[embed,embed,embed,kv_append,rope,rope,kv_append] attend[attend] rows[add]", {
        build_embed(b, p->b[0], p->table, 1);
        build_embed(b, p->b[1], p->table, 1);
        build_kv_append(b, p->other_keys, p->other_values, p->b[0], p->b[1], HEAD);
        build_rope(b, p->b[0], HEAD, p->rope);
        build_rope(b, p->b[1], HEAD, p->rope);
        build_kv_append(b, p->keys, p->values, p->b[1], p->x, HEAD);
        build_attend(
            b, p->b[3], p->b[0], p->other_keys, p->other_values, (struct attend_options){HEAD, 0, 1, 0});
        add_to_x(p, 3);
    })

/* Only the chain right before: its three last ops are all there is. */
CASE(chain_of_three_ops, "rows[embed] matmul[matmul,matmul;x] attend[rope,rope,kv_append|attend] rows[add]",
    "rows[embed>x:q8] matmul[matmul,matmul] rows[rope,rope,kv_append] attend[attend] rows[add]", {
        multiply(p, 0, p->square, -1);
        multiply(p, 1, p->square, -1);
        build_rope(b, p->b[0], HEAD, p->rope);
        build_rope(b, p->b[1], HEAD, p->rope);
        append_and_attend(p, 0, 1);
        add_to_x(p, 3);
    })

/* The recurrence of RWKV-7. */

static void recur(struct parts *p)
{
    const buffer_id x = p->x;
    build_wkv7(&p->builder, p->b[5], (struct wkv7_inputs){x, x, x, x, p->b[0], x}, p->wkv, HEAD);
}

static void normalise_heads(struct parts *p, uint32_t group)
{
    build_layer_norm(&p->builder, p->b[4], p->b[5], p->norm, p->norm, group, 1e-5f);
    add_to_x(p, 4);
}

CASE(ops_within_heads_run_around_the_recurrence,
    "rows[embed] wkv7[l2_norm,lerp,mul,rwkv_key|wkv7|layer_norm,rwkv_bonus,mul] rows[add]",
    "rows[embed,l2_norm,lerp,mul,rwkv_key] wkv7[wkv7] rows[layer_norm,rwkv_bonus,mul,add]", {
        build_l2_norm(b, p->b[0], p->x, p->norm, HEAD, 1e-12f);
        build_lerp(b, p->b[1], p->x, p->x, p->norm);
        build_mul(b, p->b[0], p->b[0], p->b[1]);
        build_rwkv_key(b, p->b[0], p->b[0], p->x, p->norm);
        recur(p);
        build_layer_norm(b, p->b[4], p->b[5], p->norm, p->norm, HEAD, 1e-5f);
        build_rwkv_bonus(b, p->b[4], p->b[4], p->x, p->x, p->x, p->norm, HEAD);
        build_mul(b, p->b[4], p->b[4], p->x);
        add_to_x(p, 4);
    })

CASE(half_heads_stay_within_heads, "rows[embed] wkv7[l2_norm|wkv7|layer_norm] rows[add]",
    "rows[embed,l2_norm] wkv7[wkv7] rows[layer_norm,add]", {
        build_l2_norm(b, p->b[0], p->x, NO_BUFFER, HEAD / 2, 1e-12f);
        recur(p);
        normalise_heads(p, HEAD / 2);
    })

CASE(pairs_of_heads_do_not, "rows[embed,l2_norm] wkv7[wkv7] rows[layer_norm,add]",
    "rows[embed,l2_norm] wkv7[wkv7] rows[layer_norm,add]", {
        build_l2_norm(b, p->b[0], p->x, NO_BUFFER, HEAD * 2, 1e-12f);
        recur(p);
        normalise_heads(p, HEAD * 2);
    })

CASE(bonus_of_other_heads, "rows[embed,rms_norm] wkv7[wkv7] rows[rwkv_bonus,add]",
    "rows[embed,rms_norm] wkv7[wkv7] rows[rwkv_bonus,add]", {
        normalise(p, 0, -1);
        recur(p);
        build_rwkv_bonus(b, p->b[4], p->b[5], p->x, p->x, p->x, p->norm, HEAD * 2);
        add_to_x(p, 4);
    })

/* A product of other columns is none of the heads', even right beside the recurrence. */
CASE(other_columns_stay_outside, "rows[embed] matmul[matmul] rows[l2_norm,mul] wkv7[wkv7] rows[mul,add]",
    "rows[embed>x:f32] matmul[matmul] rows[l2_norm,mul] wkv7[wkv7] rows[mul,add]", {
        build_matmul(b, p->narrow, p->narrow_matrix, p->x, NO_BUFFER, false);
        build_l2_norm(b, p->b[0], p->x, NO_BUFFER, HEAD, 1e-12f);
        build_mul(b, p->narrow, p->narrow, p->narrow);
        recur(p);
        build_mul(b, p->narrow, p->narrow, p->narrow);
        add_to_x(p, 5);
    })

CASE(append_beside_the_recurrence, "rows[embed,l2_norm,kv_append] wkv7[wkv7] rows[kv_append,add]",
    "rows[embed,l2_norm,kv_append] wkv7[wkv7] rows[kv_append,add]", {
        build_l2_norm(b, p->b[0], p->x, NO_BUFFER, HEAD, 1e-12f);
        build_kv_append(b, p->keys, p->values, p->x, p->x, HEAD);
        recur(p);
        build_kv_append(b, p->other_keys, p->other_values, p->x, p->x, HEAD);
        add_to_x(p, 5);
    })

/* Only ops of the chain before it, not ops of an earlier group. */
CASE(recurrence_right_behind_another, "rows[embed] wkv7[l2_norm|wkv7|mul] matmul[matmul;x] rows[add,add]",
    "rows[embed,l2_norm] wkv7[wkv7] rows[mul>x:q8] matmul[matmul] rows[add,add]", {
        build_l2_norm(b, p->b[0], p->x, NO_BUFFER, HEAD, 1e-12f);
        recur(p);
        build_mul(b, p->b[5], p->b[5], p->x);
        multiply(p, 1, p->square, -1);
        add_to_x(p, 5);
        add_to_x(p, 1);
    })

CASE(ops_over_outputs_stay_outside,
    "rows[embed,l2_norm] rows[select_rows,mul] wkv7[wkv7] rows[mul] rows[add]",
    "rows[embed,l2_norm] rows[select_rows,mul] wkv7[wkv7] rows[mul] rows[add]", {
        build_l2_norm(b, p->b[0], p->x, NO_BUFFER, HEAD, 1e-12f);
        build_select_rows(b, p->r, p->x);
        build_mul(b, p->r, p->r, p->r);
        recur(p);
        build_mul(b, p->r, p->r, p->r);
        add_to_x(p, 5);
    })

/* How many inputs a single token's matmuls may have rounded. */

static void make_three_inputs(struct parts *p)
{
    normalise(p, 0, -1);
    build_softcap(&p->builder, p->b[0], 30); /* outside: a and b are at hand before the matmuls begin */
    normalise(p, 1, 0);
    build_softcap(&p->builder, p->b[1], 30);
    multiply(p, 2, p->square, -1);
    multiply(p, 3, p->floats, 1); /* not rounded */
    multiply(p, 4, p->square, 0);
    multiply(p, 5, p->square, -1); /* x is rounded already */
    build_matmul(&p->builder, p->narrow, p->narrow_matrix, p->b[1], NO_BUFFER, false);
    build_matmul(&p->builder, p->b[5], p->square, p->b[1], NO_BUFFER, true);
    for (int i = 2; i < BUFFERS; i++)
        add_to_x(p, i);
}

static void make_many_inputs(struct parts *p)
{
    buffer_id more[2];
    more[0] = builder_scratch(&p->builder, ROWS_TOKENS, WIDTH, "g");
    more[1] = builder_scratch(&p->builder, ROWS_TOKENS, WIDTH, "h");
    for (int i = 0; i < 3; i++) {
        normalise(p, i, i - 1);
        build_softcap(&p->builder, p->b[i], 30);
    }
    multiply(p, 3, p->square, -1);
    multiply(p, 4, p->square, 0);
    multiply(p, 5, p->square, 1);
    build_matmul(&p->builder, more[0], p->square, p->b[2], NO_BUFFER, false);
    build_matmul(&p->builder, more[1], p->square, p->b[1], NO_BUFFER, false);
    for (int i = 3; i < BUFFERS; i++)
        add_to_x(p, i);
    build_add(&p->builder, p->x, more[0]);
    build_add(&p->builder, p->x, more[1]);
}

static void rounded_inputs_are_limited(void **state)
{
    (void)state;
    check_groups(make_many_inputs, one_token, 4,
        "rows[embed,rms_norm,softcap,rms_norm,softcap,rms_norm,softcap] "
        "matmul[matmul,matmul,matmul,matmul,matmul;x,a,b,c] rows[add,add,add,add,add]" SINGLE_END);
    check_groups(make_many_inputs, one_token, 3,
        "rows[embed,rms_norm,softcap,rms_norm,softcap,rms_norm,softcap] matmul[matmul,matmul,matmul;x,a,b] "
        "matmul[matmul,matmul;c,b] rows[add,add,add,add,add]" SINGLE_END);
    check_groups(make_many_inputs, one_token, 1,
        "rows[embed,rms_norm,softcap,rms_norm,softcap,rms_norm,softcap] matmul[matmul;x] matmul[matmul;a] "
        "matmul[matmul;b] matmul[matmul;c] matmul[matmul;b] rows[add,add,add,add,add]" SINGLE_END);
}

/* The rows before the matmuls of a batch round all inputs. */
static void inputs_of_a_batch_are_limited(void **state)
{
    (void)state;
    check_batch_groups(make_many_inputs, 4,
        "rows[embed,rms_norm,softcap,rms_norm,softcap,rms_norm,softcap>x:q8>a:q8>b:q8>c:q8] "
        "matmul[matmul,matmul,matmul,matmul,matmul] rows[add,add,add,add,add]" BATCH_END);
    check_batch_groups(make_many_inputs, 3,
        "rows[embed,rms_norm,softcap,rms_norm,softcap,rms_norm,softcap>x:q8>a:q8>b:q8] "
        "matmul[matmul,matmul,matmul] rows[>c:q8>b:q8] matmul[matmul,matmul] "
        "rows[add,add,add,add,add]" BATCH_END);
}

/* Matmuls of a batch that differ in rounding, or of which one reads the result of another. */
static void inputs_of_a_batch_are_alike(void **state)
{
    (void)state;
    check_batch_groups(make_other_rounding_is_another_input, 4,
        "rows[embed>x:q8] matmul[matmul] rows[>x:f32] matmul[matmul] rows[>x:f16] matmul[matmul] "
        "rows[add,add,add]" BATCH_END);
    check_batch_groups(make_fine_and_coarse_inputs_run_together, 4,
        "rows[embed,rms_norm>x:q8] matmul[matmul] rows[>a:q8+fine] matmul[matmul] "
        "rows[add,add,add]" BATCH_END);
    check_batch_groups(make_matmul_waits_for_its_input, 4,
        "rows[embed>x:q8] matmul[matmul] rows[>a:q8] matmul[matmul] rows[add]" BATCH_END);
    check_batch_groups(make_conflict_with_an_earlier_one, 4,
        "rows[embed>x:q8] matmul[matmul,matmul] rows[>a:q8] matmul[matmul] rows[add,add]" BATCH_END);
}

/* Where the kernels of a batch treat fine matmuls as others, they run beside them; those of a single token
 * do not. */
static void fine_and_coarse_in_batches(void **state)
{
    (void)state;
    struct lowering_options options = {.max_rounded = 1, .max_batch_inputs = 4, .fine_batches = true};
    memcpy(options.capacity, many_tokens, sizeof options.capacity);
    check_lowering(make_fine_and_coarse_inputs_run_together, &options,
        "rows[embed,rms_norm>x:q8+fine>a:q8+fine] matmul[matmul,matmul] rows[add,add,add]" BATCH_END);
    check_lowering(make_fine_and_coarse_do_not_share_an_input, &options,
        "rows[embed>x:q8+fine] matmul[matmul,matmul,matmul] rows[add,add,add]" BATCH_END);
    memcpy(options.capacity, one_token, sizeof options.capacity);
    check_lowering(make_fine_and_coarse_do_not_share_an_input, &options,
        "rows[embed] matmul[matmul;x] matmul[matmul,matmul;x+fine] rows[add,add,add]" SINGLE_END);
}

/* An input is rounded once, however many matmuls use it. */
static void equal_inputs_are_rounded_once(void **state)
{
    (void)state;
    check_groups(make_three_inputs, one_token, 2,
        "rows[embed,rms_norm,softcap,rms_norm,softcap] matmul[matmul,matmul,matmul,matmul,matmul;x,a] "
        "matmul[matmul;b] rows[add,add,add,add]" SINGLE_END);
}

/* The lines of `info --program`. */
static void groups_are_described(void **state)
{
    (void)state;
    static struct gguf_model file;
    static const char *const expected[2][4] = {
        {"   0 rows   embed table", "   1 matmul rms_norm a (inside), matmul square, matmul square, glu d",
            "   2 rows   add x", "   3 matmul select_rows o (inside), matmul table"},
        {"   0 rows   embed table, rms_norm a, round a to q8",
            "   1 matmul matmul square, matmul square, glu d", "   2 rows   add x",
            "   3 rows   select_rows o, round o to q8"}};
    make_file(&file);
    for (int batch = 0; batch < 2; batch++) {
        struct arena tables = {0};
        struct plan plan;
        struct lowering_options options = {.max_rounded = MAX_ROUNDED, .max_batch_inputs = 1};
        memcpy(options.capacity, batch ? many_tokens : one_token, sizeof options.capacity);
        struct program *program =
            lower_case(make_glu_is_applied_on_the_way_out, model_open(&file), &options, &tables, &plan);
        for (uint32_t i = 0; i < 4; i++) {
            char text[128], cut[12];
            lower_describe(program, &plan, i, text, sizeof text);
            assert_string_equal(text, expected[batch][i]);
            memset(cut, 'z', sizeof cut);
            lower_describe(program, &plan, i, cut, sizeof cut - 1);
            assert_int_equal(strlen(cut), sizeof cut - 2);
            assert_int_equal(cut[sizeof cut - 1], 'z');
        }
        arena_free(&tables);
        program_close(program);
        model_close(&file);
    }
}

/* The private results of a group do not lie upon each other, and take no place in the arena. */
static void private_buffers_have_places(void **state)
{
    (void)state;
    static struct gguf_model file;
    struct arena tables = {0};
    struct plan plan;
    const struct lowering_options options = {{1, 1, 1}, .max_rounded = MAX_ROUNDED, .max_batch_inputs = 1};
    make_file(&file);
    struct program *program =
        lower_case(make_chain_of_private_results, model_open(&file), &options, &tables, &plan);
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++)
        count += plan.is_private[i];
    assert_int_equal(count, 4); /* a, b, c, and o of the last matmul */
    assert_int_equal(plan.private_bytes, 4 * WIDTH * sizeof(float));
    arena_free(&tables);
    program_close(program);
    model_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_between),
        cmocka_unit_test(row_ops_are_chained),
        cmocka_unit_test(other_rows_end_a_chain),
        cmocka_unit_test(shift_waits_for_rows),
        cmocka_unit_test(rows_wait_for_the_shift_of_them),
        cmocka_unit_test(norm_runs_inside),
        cmocka_unit_test(other_inputs_join_a_single_token),
        cmocka_unit_test(other_rows_do_not_join),
        cmocka_unit_test(row_ops_stay_before_matmuls_of_other_rows),
        cmocka_unit_test(other_rounding_is_another_input),
        cmocka_unit_test(fine_and_coarse_do_not_share_an_input),
        cmocka_unit_test(fine_and_coarse_inputs_run_together),
        cmocka_unit_test(floats_beside_fine),
        cmocka_unit_test(matmul_waits_for_its_input),
        cmocka_unit_test(two_sums_into_one_buffer),
        cmocka_unit_test(input_of_one_is_output_of_the_next),
        cmocka_unit_test(conflict_with_an_earlier_one),
        cmocka_unit_test(glu_is_applied_on_the_way_out),
        cmocka_unit_test(glu_of_swapped_matmuls),
        cmocka_unit_test(glu_of_one_matmul_and_another_buffer),
        cmocka_unit_test(glu_of_three_matmuls),
        cmocka_unit_test(glu_not_right_behind),
        cmocka_unit_test(gate_is_read_again),
        cmocka_unit_test(up_is_read_again),
        cmocka_unit_test(gate_accumulates),
        cmocka_unit_test(up_accumulates),
        cmocka_unit_test(gate_is_finer_than_up),
        cmocka_unit_test(chain_of_private_results),
        cmocka_unit_test(result_that_is_read_later),
        cmocka_unit_test(result_that_is_replaced_before_it_is_read),
        cmocka_unit_test(work_in_place_stays_outside),
        cmocka_unit_test(append_stays_outside),
        cmocka_unit_test(buffer_that_others_write_too),
        cmocka_unit_test(sharing_spreads),
        cmocka_unit_test(input_of_the_norm_is_output_of_the_matmul),
        cmocka_unit_test(input_of_the_norm_is_output_of_the_glu),
        cmocka_unit_test(ropes_and_append_run_inside),
        cmocka_unit_test(ropes_in_the_other_order),
        cmocka_unit_test(rope_of_another_key),
        cmocka_unit_test(rope_and_append_alone),
        cmocka_unit_test(softcap_between),
        cmocka_unit_test(query_is_read_again),
        cmocka_unit_test(key_is_read_again),
        cmocka_unit_test(attention_to_other_keys),
        cmocka_unit_test(chain_of_three_ops),
        cmocka_unit_test(ops_within_heads_run_around_the_recurrence),
        cmocka_unit_test(half_heads_stay_within_heads),
        cmocka_unit_test(pairs_of_heads_do_not),
        cmocka_unit_test(bonus_of_other_heads),
        cmocka_unit_test(other_columns_stay_outside),
        cmocka_unit_test(append_beside_the_recurrence),
        cmocka_unit_test(recurrence_right_behind_another),
        cmocka_unit_test(ops_over_outputs_stay_outside),
        cmocka_unit_test(rounded_inputs_are_limited),
        cmocka_unit_test(inputs_of_a_batch_are_limited),
        cmocka_unit_test(inputs_of_a_batch_are_alike),
        cmocka_unit_test(fine_and_coarse_in_batches),
        cmocka_unit_test(equal_inputs_are_rounded_once),
        cmocka_unit_test(groups_are_described),
        cmocka_unit_test(private_buffers_have_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

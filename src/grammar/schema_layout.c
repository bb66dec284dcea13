#include "grammar/schema_layout.h"

#include "base/memory.h"

#include <string.h>

static const struct expr *any_character(struct expr_pool *pool)
{
    struct char_range all = {0, UNICODE_LAST};
    return charset_expr(pool, &(struct charset){&all, 1, 1}, SPELL_JSON);
}

void layout_open(struct rule_list *rules, bool any, struct layout *out)
{
    struct expr_pool *pool = &rules->pool;
    const char *space = any ? "[ \\t\\r\\n]*" : " |\\n[ \\t]{0,40}|";
    *out = (struct layout){.rules = rules, .pool = pool, .any = any};
    uint32_t space_rule = rule_list_add(rules, regex_read(pool, space, strlen(space), SPELL_UTF8));
    out->space = expr_rule(pool, space_rule);
    out->outer_space = any ? out->space : expr_empty();
    out->character_here = any_character(pool);
    if (!rules->character && pool->status == SALVO_OK)
        rules->character = rule_list_add(rules, out->character_here) + 1;
    if (pool->status == SALVO_OK)
        out->character = expr_rule(pool, rules->character - 1);
}

struct salvo_text layout_written(struct layout *layout, struct salvo_text text)
{
    static const char hex[] = "0123456789abcdef";
    char *out = expr_pool_new(layout->pool, text.size * 6 + 1);
    size_t size = 0;
    for (size_t i = 0; out && i < text.size; i++) {
        const unsigned char byte = (unsigned char)text.data[i];
        const char *found = byte ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", byte) : NULL;
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            out[size++] = (char)byte;
            continue;
        }
        out[size++] = '\\';
        if (found) {
            out[size++] = found[1];
            continue;
        }
        out[size++] = 'u';
        out[size++] = '0';
        out[size++] = '0';
        out[size++] = hex[byte >> 4];
        out[size++] = hex[byte & 15];
    }
    return (struct salvo_text){out, out ? size : 0};
}

const struct expr *layout_spelled(struct layout *layout, struct salvo_text text, bool every_spelling)
{
    struct expr_list list = {0};
    if (!every_spelling) {
        const struct salvo_text written = layout_written(layout, text);
        return written.data ? expr_literal(layout->pool, written.data, written.size) : expr_none();
    }
    for (size_t at = 0, size; at < text.size; at += size) {
        uint32_t character;
        size = utf8_read(text.data + at, text.size - at, &character);
        if (size == 0)
            break;
        expr_list_add(layout->pool, &list, char_expr(layout->pool, character, SPELL_JSON));
    }
    const struct expr *expr = expr_sequence(layout->pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

const struct dfa *layout_any_text(struct layout *layout)
{
    if (!layout->any_text)
        layout->any_text =
            dfa_of(layout->pool, expr_repeat(layout->pool, layout->character_here, 0, REPEAT_UNLIMITED));
    return layout->any_text;
}

const struct expr *layout_quoted(struct layout *layout, const struct expr *inside)
{
    const struct expr *quote = expr_string(layout->pool, "\"");
    return EXPR_SEQUENCE_OF(layout->pool, quote, inside, quote);
}

const struct expr *layout_string(struct layout *layout, struct salvo_text text)
{
    return layout_quoted(layout, layout_spelled(layout, text, layout->any));
}

const struct expr *layout_pair(struct layout *layout, const struct expr *key, const struct expr *value)
{
    return EXPR_SEQUENCE_OF(
        layout->pool, key, layout->outer_space, expr_string(layout->pool, ":"), layout->space, value);
}

/* Punctuation, and the space around it. */
static const struct expr *comma_with(struct layout *layout, const struct expr *comma)
{
    return EXPR_SEQUENCE_OF(layout->pool, layout->outer_space, comma, layout->space);
}

static const struct expr *brackets_with(
    struct layout *layout, const struct expr *open, const struct expr *inside, const struct expr *close)
{
    return EXPR_SEQUENCE_OF(layout->pool, open, layout->space, inside, layout->space, close);
}

static const struct expr *item_mark(struct layout *layout, char mark, bool unique)
{
    return unique ? expr_unique(layout->pool, mark) : expr_literal(layout->pool, &mark, 1);
}

const struct expr *layout_item_comma(struct layout *layout, bool unique)
{
    return comma_with(layout, item_mark(layout, ',', unique));
}

const struct expr *layout_item_brackets(struct layout *layout, const struct expr *inside, bool unique)
{
    return brackets_with(layout, item_mark(layout, '[', unique), inside, item_mark(layout, ']', unique));
}

/* ---- Objects ---- */

enum { RULE_MEMBERS = 400 };

/* Expressions of the remaining members, one for each number of written members; `written` stops counting
 * at `cap`. */
struct object_writer {
    struct layout *layout;
    const struct layout_object *object;
    uint32_t cap;
    const struct expr *comma;
    const struct expr **known; /* expressions that are made */
};

static const struct expr *separated(
    struct object_writer *writer, uint32_t written, const struct expr *member, const struct expr *rest)
{
    return EXPR_SEQUENCE_OF(writer->layout->pool, written ? writer->comma : expr_empty(), member, rest);
}

static uint32_t one_more(const struct object_writer *writer, uint32_t written)
{
    return written < writer->cap ? written + 1 : written;
}

/* Whether the count stays at the cap: there is no upper limit. */
static bool may_repeat(const struct object_writer *writer, uint32_t written)
{
    return written == writer->cap && writer->object->max == REPEAT_UNLIMITED;
}

/* All members that are not named, after `written` ones. Counts from the cap down. */
static void write_others(struct object_writer *writer, const struct expr **out)
{
    const struct layout_object *object = writer->object;
    struct expr_pool *pool = writer->layout->pool;
    for (uint32_t written = writer->cap + 1; written-- > 0;) {
        const struct expr *end = written >= object->min ? expr_empty() : expr_none(), *more = expr_none();
        if (object->others->kind == EXPR_NONE) {
            out[written] = end;
        } else if (may_repeat(writer, written)) {
            out[written] =
                expr_repeat(pool, EXPR_SEQUENCE_OF(pool, writer->comma, object->others), 0, REPEAT_UNLIMITED);
        } else {
            if (written < object->max)
                more = separated(writer, written, object->others, out[one_more(writer, written)]);
            out[written] = end->kind == EXPR_NONE    ? more
                           : more->kind == EXPR_NONE ? end
                                                     : EXPR_EITHER_OF(pool, end, more);
        }
        out[written] = expr_shared(pool, out[written]);
    }
}

/* Members in their order, then the others. */
static const struct expr *write_in_order(struct object_writer *writer)
{
    const struct layout_object *object = writer->object;
    struct expr_pool *pool = writer->layout->pool;
    const struct expr **rest = writer->known, **now = rest + writer->cap + 1;
    write_others(writer, rest);
    for (size_t i = object->count; i-- > 0;) {
        const struct layout_member *member = &object->members[i];
        for (uint32_t written = 0; written <= writer->cap; written++) {
            const struct expr *with = expr_none();
            if (written < object->max && member->value->kind != EXPR_NONE)
                with = separated(writer, written, layout_pair(writer->layout, member->key, member->value),
                    rest[one_more(writer, written)]);
            const struct expr *without = member->required ? expr_none() : rest[written];
            now[written] = with->kind == EXPR_NONE      ? without
                           : without->kind == EXPR_NONE ? with
                                                        : EXPR_EITHER_OF(pool, with, without);
            /* Rules limit how deep the expression of an object with many members is. */
            now[written] = i % RULE_MEMBERS == RULE_MEMBERS - 1 && now[written]->kind != EXPR_NONE
                               ? expr_rule(pool, rule_list_add(writer->layout->rules, now[written]))
                               : expr_shared(pool, now[written]);
        }
        memcpy(rest, now, (writer->cap + 1) * sizeof *rest);
    }
    return rest[0];
}

/* Any member except the missing required ones, which follow in any order. `sets` has a bit for each
 * required member that is missing. */
static const struct expr *write_in_any_order(struct object_writer *writer, const struct expr *optional,
    const struct layout_member **required, uint32_t sets)
{
    const struct layout_object *object = writer->object;
    struct expr_pool *pool = writer->layout->pool;
    uint32_t counts = writer->cap + 1;
    for (uint32_t missing = 0; missing < sets && pool->status == SALVO_OK; missing++) {
        for (uint32_t written = counts; written-- > 0;) {
            struct expr_list list = {0};
            const struct expr **here = &writer->known[missing * counts + written];
            if (missing == 0 && written >= object->min)
                expr_list_add(pool, &list, expr_empty());
            uint32_t next = one_more(writer, written);
            if (optional->kind != EXPR_NONE && written < object->max && !may_repeat(writer, written))
                expr_list_add(pool, &list,
                    separated(writer, written, optional, writer->known[missing * counts + next]));
            for (uint32_t i = 0; written < object->max && (sets >> i) > 1; i++) {
                if (missing >> i & 1) {
                    expr_list_add(pool, &list,
                        separated(writer, written,
                            layout_pair(writer->layout, required[i]->key, required[i]->value),
                            writer->known[(missing ^ 1U << i) * counts + next]));
                }
            }
            *here = expr_either(pool, list.items, list.count);
            if (optional->kind != EXPR_NONE && may_repeat(writer, written)) {
                *here = EXPR_SEQUENCE_OF(pool,
                    expr_repeat(pool, EXPR_SEQUENCE_OF(pool, writer->comma, optional), 0, REPEAT_UNLIMITED),
                    *here);
            }
            *here = expr_shared(pool, *here);
            expr_list_free(&list);
        }
    }
    return writer->known[(sets - 1) * counts];
}

/* Any of the members, as a rule. */
static const struct expr *any_member(struct layout *layout, const struct layout_object *object)
{
    struct expr_list list = {0};
    for (size_t i = 0; i < object->count; i++) {
        if (object->members[i].value->kind != EXPR_NONE)
            expr_list_add(
                layout->pool, &list, layout_pair(layout, object->members[i].key, object->members[i].value));
    }
    if (object->others->kind != EXPR_NONE)
        expr_list_add(layout->pool, &list, object->others);
    const struct expr *expr = expr_either(layout->pool, list.items, list.count);
    if (expr->kind != EXPR_NONE)
        expr = expr_rule(layout->pool, rule_list_add(layout->rules, expr));
    expr_list_free(&list);
    return expr;
}

bool layout_object(struct layout *layout, const struct layout_object *object, const struct expr **out)
{
    struct expr_pool *pool = layout->pool;
    struct object_writer writer = {
        .layout = layout, .object = object, .comma = layout_item_comma(layout, false)};
    const struct layout_member *required[LAYOUT_MOST_REQUIRED];
    size_t required_count = 0;
    *out = expr_none();
    for (size_t i = 0; layout->any && i < object->count; i++) {
        if (!object->members[i].required)
            continue;
        if (required_count == LAYOUT_MOST_REQUIRED)
            return false;
        required[required_count++] = &object->members[i];
    }
    uint32_t high = object->max == REPEAT_UNLIMITED ? object->min : object->max;
    writer.cap = high > 1 ? high : 1;
    if (writer.cap > LAYOUT_MOST_COUNTED)
        return false;
    if (pool->status == SALVO_OK)
        pool->status =
            NEW(&writer.known, ((size_t)writer.cap + 1) * (layout->any ? (size_t)1 << required_count : 2));
    if (pool->status != SALVO_OK)
        return true;
    const struct expr *inside =
        layout->any ? write_in_any_order(&writer, any_member(layout, object), required, 1U << required_count)
                    : write_in_order(&writer);
    *out = brackets_with(layout, expr_string(pool, "{"), inside, expr_string(pool, "}"));
    memory_free(writer.known);
    return true;
}

/* ---- Arrays ---- */

const struct expr *layout_array(struct layout *layout, const struct layout_array *array)
{
    struct expr_pool *pool = layout->pool;
    const struct expr *separator = layout_item_comma(layout, array->unique), *inside = expr_none();
    if (array->max < array->min)
        return expr_none();
    /* `inside` begins after i items. */
    uint32_t count = (uint32_t)array->count;
    bool has_rest = array->rest->kind != EXPR_NONE && array->max > count;
    uint32_t least = array->min > count ? array->min - count : 0;
    uint32_t most = array->max == REPEAT_UNLIMITED ? REPEAT_UNLIMITED : has_rest ? array->max - count : 0;
    if (count > 0 && has_rest)
        inside = expr_repeat(pool, EXPR_SEQUENCE_OF(pool, separator, array->rest), least, most);
    else if (count > 0)
        inside = least == 0 ? expr_empty() : expr_none();
    else if (has_rest) {
        inside = EXPR_SEQUENCE_OF(pool, array->rest,
            expr_repeat(pool, EXPR_SEQUENCE_OF(pool, separator, array->rest), least > 0 ? least - 1 : 0,
                most == REPEAT_UNLIMITED ? most : most - 1));
    }
    if (count == 0 && least == 0)
        inside = inside->kind == EXPR_NONE ? expr_empty() : expr_optional(pool, inside);
    for (uint32_t i = count; i-- > 0;) {
        const struct expr *with = expr_none();
        if (i < array->max)
            with = EXPR_SEQUENCE_OF(pool, i ? separator : expr_empty(), array->first[i], inside);
        const struct expr *end = i >= array->min ? expr_empty() : expr_none();
        inside = with->kind == EXPR_NONE  ? end
                 : end->kind == EXPR_NONE ? with
                                          : EXPR_EITHER_OF(pool, with, end);
    }
    return layout_item_brackets(layout, inside, array->unique);
}

/*
 * Measures compiling of schemas and masks. Usage: bench_grammar VOCABULARY CASES. VOCABULARY is a GGUF file,
 * or a list of tokens as tiktoken reads it: base64 and a number in each line. A line of CASES is `S` and a
 * JSON Schema, or `T` and a document for the last schema. A document is walked token by token, always with
 * the longest token that fits, and each mask is timed. With a third argument, the slowest masks are printed.
 */
#include "base/buffer.h"
#include "base/memory.h"
#include "engine/model.h"
#include "grammar/matcher.h"
#include "grammar/readers.h"

#include <salvo/salvo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIMIT = 64 << 20 };

struct figures {
    double *values;
    size_t count, capacity;
};

struct slow_mask {
    double seconds;
    size_t line, offset;
};

static struct slow_mask slowest[20];

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum salvo_status add_figure(struct figures *figures, double value)
{
    enum salvo_status status = SALVO_OK;
    if (figures->count == figures->capacity) {
        figures->capacity = figures->capacity ? figures->capacity * 2 : 4096;
        TRY(RESIZE(&figures->values, figures->capacity));
    }
    figures->values[figures->count++] = value;
cleanup:
    return status;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void print_figures(const char *name, struct figures *figures)
{
    double sum = 0;
    if (figures->count == 0)
        return;
    qsort(figures->values, figures->count, sizeof *figures->values, compare_doubles);
    for (size_t i = 0; i < figures->count; i++)
        sum += figures->values[i];
    printf("%s: %zu, mean %.1f us, median %.1f, 95th %.1f, 99th %.1f, 99.9th %.1f, most %.1f\n", name,
        figures->count, 1e6 * sum / (double)figures->count, 1e6 * figures->values[figures->count / 2],
        1e6 * figures->values[figures->count * 95 / 100], 1e6 * figures->values[figures->count * 99 / 100],
        1e6 * figures->values[figures->count * 999 / 1000], 1e6 * figures->values[figures->count - 1]);
}

static void note_slow(double value, size_t line, size_t offset)
{
    size_t last = sizeof slowest / sizeof *slowest - 1, at = last;
    if (value <= slowest[last].seconds)
        return;
    for (; at > 0 && slowest[at - 1].seconds < value; at--)
        slowest[at] = slowest[at - 1];
    slowest[at] = (struct slow_mask){value, line, offset};
}

/* ---- Vocabularies ---- */

struct vocabulary_list {
    char *texts;
    size_t *offsets;
    uint32_t count;
};

static enum salvo_status listed_token(
    void *user, uint32_t id, enum token_use *out_use, struct salvo_text *out_bytes)
{
    const struct vocabulary_list *list = user;
    *out_use = id + 1 == list->count ? TOKEN_IS_END : TOKEN_IS_TEXT;
    *out_bytes =
        (struct salvo_text){list->texts + list->offsets[id], list->offsets[id + 1] - list->offsets[id]};
    return SALVO_OK;
}

static int base64_value(int c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

static enum salvo_status read_list(const struct buffer *file, struct token_trie **out)
{
    enum salvo_status status = SALVO_OK;
    struct vocabulary_list list = {0};
    size_t lines = 1, size = 0;
    for (size_t i = 0; i < file->size; i++)
        lines += file->data[i] == '\n';
    /* llama 3 has 256 control tokens behind the list; one end token stands for them. */
    TRY(NEW(&list.texts, file->size));
    TRY(NEW(&list.offsets, lines + 258));
    for (size_t at = 0; at < file->size;) {
        uint32_t bits = 0;
        int count = 0, value;
        for (; at < file->size && (value = base64_value((unsigned char)file->data[at])) >= 0; at++) {
            bits = bits << 6 | (uint32_t)value;
            if (++count % 4 == 0) {
                for (int shift = 16; shift >= 0; shift -= 8)
                    list.texts[size++] = (char)(bits >> shift);
            }
        }
        if (count % 4 == 2)
            list.texts[size++] = (char)(bits >> 4);
        else if (count % 4 == 3)
            for (int shift = 10; shift >= 2; shift -= 8)
                list.texts[size++] = (char)(bits >> shift);
        if (count)
            list.offsets[++list.count] = size;
        while (at < file->size && file->data[at++] != '\n')
            ;
    }
    for (int i = 0; i < 256; i++)
        list.offsets[++list.count] = size;
    TRY(token_trie_open(list.count, listed_token, &list, out));
cleanup:
    memory_free(list.texts);
    memory_free(list.offsets);
    return status;
}

static enum salvo_status read_file(const char *path, struct buffer *out)
{
    enum salvo_status status = SALVO_OK;
    FILE *stream = fopen(path, "rb");
    if (!stream)
        TRY(fail(SALVO_ERROR_IO, "%s cannot be read", path));
    for (size_t got = 1; got;) {
        TRY(buffer_reserve(out, 1 << 16));
        got = fread(out->data + out->size, 1, 1 << 16, stream);
        out->size += got;
    }
cleanup:
    if (stream)
        fclose(stream);
    return status;
}

/* ---- Cases ---- */

struct bench {
    const struct token_trie *trie;
    uint32_t *mask;
    size_t words, line, refused, unfit;
    struct figures compile, first, masks, steps;
};

static enum salvo_status compile(struct bench *bench, struct salvo_text text, struct salvo_grammar **out)
{
    struct rule_list rules = {0};
    struct network network = {0};
    double begin = seconds();
    enum salvo_status status = schema_read(text.data, text.size, false, &rules);
    if (status == SALVO_OK)
        status = network_build(rules.items, rules.count, rules.root, rules.character, &network);
    if (status == SALVO_OK)
        status = grammar_open(&network, bench->trie, LIMIT, out);
    rule_list_free(&rules);
    if (status == SALVO_OK)
        return add_figure(&bench->compile, seconds() - begin);
    bench->refused++;
    return SALVO_OK;
}

/* The longest token that is allowed and that the text begins with; UINT32_MAX: none. */
static uint32_t longest_token(const struct bench *bench, struct salvo_text text)
{
    const struct token_trie *trie = bench->trie;
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < trie->node_count;) {
        const struct trie_node *node = &trie->nodes[i];
        if (node->depth > text.size || node->byte != (unsigned char)text.data[node->depth - 1]) {
            i = node->after;
            continue;
        }
        for (uint32_t k = node->tokens; k < trie->nodes[i + 1].tokens; k++) {
            if (bench->mask[trie->ids[k] / 32] >> (trie->ids[k] % 32) & 1)
                found = trie->ids[k];
        }
        i++;
    }
    return found;
}

static enum salvo_status walk(struct bench *bench, struct salvo_grammar *grammar, struct salvo_text text)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar_matcher *matcher = NULL;
    size_t at = 0;
    TRY(matcher_open(grammar, &matcher));
    for (;;) {
        double begin = seconds();
        TRY(matcher_mask(matcher, bench->mask, bench->words));
        double time = seconds() - begin;
        TRY(add_figure(at ? &bench->masks : &bench->first, time));
        if (at)
            note_slow(time, bench->line, at);
        if (at == text.size)
            break;
        uint32_t token = longest_token(bench, (struct salvo_text){text.data + at, text.size - at});
        if (token == UINT32_MAX) {
            bench->unfit++;
            break;
        }
        begin = seconds();
        TRY(matcher_accept(matcher, token));
        TRY(add_figure(&bench->steps, seconds() - begin));
        at += token_trie_text(bench->trie, token).size;
    }
cleanup:
    matcher_close(matcher);
    return status;
}

static enum salvo_status run_cases(struct bench *bench, const struct buffer *cases)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = NULL;
    for (const char *at = cases->data, *end = at + cases->size; at < end;) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        struct salvo_text rest = {at + 1, (size_t)(line_end - at - (line_end > at))};
        bench->line++;
        if (*at == 'S') {
            grammar_close(grammar);
            grammar = NULL;
            TRY(compile(bench, rest, &grammar));
        } else if (*at == 'T' && grammar) {
            TRY(walk(bench, grammar, rest));
        }
        at = line_end + 1;
    }
cleanup:
    grammar_close(grammar);
    return status;
}

int main(int argc, char **argv)
{
    enum salvo_status status = SALVO_OK;
    struct buffer file = {0}, cases = {0};
    struct salvo_model *model = NULL;
    struct token_trie *own = NULL;
    struct bench bench = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: bench_grammar VOCABULARY CASES [slow]\n");
        return 2;
    }
    TRY(read_file(argv[2], &cases));
    if (strlen(argv[1]) > 5 && strcmp(argv[1] + strlen(argv[1]) - 5, ".gguf") == 0) {
        TRY(salvo_model_open(argv[1], &model));
        TRY(model_token_trie(model, &bench.trie));
    } else {
        TRY(read_file(argv[1], &file));
        TRY(read_list(&file, &own));
        bench.trie = own;
    }
    bench.words = ((size_t)bench.trie->token_count + 31) / 32;
    TRY(NEW(&bench.mask, bench.words));
    TRY(run_cases(&bench, &cases));
    printf("%u tokens, %zu schemas refused, %zu documents do not fit\n", bench.trie->token_count,
        bench.refused, bench.unfit);
    print_figures("compile", &bench.compile);
    print_figures("first masks", &bench.first);
    print_figures("masks", &bench.masks);
    print_figures("steps", &bench.steps);
    for (size_t i = 0; argc > 3 && i < sizeof slowest / sizeof *slowest && slowest[i].line; i++)
        printf("line %zu, byte %zu: %.1f us\n", slowest[i].line, slowest[i].offset, 1e6 * slowest[i].seconds);
cleanup:
    if (status != SALVO_OK)
        fprintf(stderr, "%s\n", salvo_error());
    buffer_free(&file);
    buffer_free(&cases);
    memory_free(bench.mask);
    memory_free(bench.compile.values);
    memory_free(bench.first.values);
    memory_free(bench.masks.values);
    memory_free(bench.steps.values);
    token_trie_close(own);
    salvo_model_close(model);
    return status != SALVO_OK;
}

#include "commands.h"
#include "grammar_flags.h"
#include "input.h"
#include "json_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *file;
    uint32_t count;
    struct optional_seed seed;
} options = {.count = 1};

static const struct option option_table[] = {
    {'f', "file", "FILE", OPTION_FILE, &options.file, "match: file with the text; default: standard input"},
    {'n', "count", "N", OPTION_COUNT, &options.count, "sample: number of texts (default: 1)"},
    {0, "seed", "N", OPTION_SEED, &options.seed,
        "sample: seed; the same seed gives the same texts (default: 0)"},
    {0},
};

enum { LONGEST_SAMPLE = 20000, SHORT_SAMPLE = 200 };

static uint32_t random_number(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}

/* The weight of a byte in the random choice: letters before control characters, and closing brackets and
 * quotes in a long text. */
static uint32_t weight(unsigned byte, size_t length)
{
    if (length > SHORT_SAMPLE) {
        return strchr("\"}])", (int)byte) && byte                          ? 100000
               : byte == ',' || byte == '\\' || byte == '[' || byte == '{' ? 1
                                                                           : 20;
    }
    if (byte == '"' || byte == '}' || byte == ']')
        return 200;
    return byte == '\\' || byte < 0x20 || byte >= 0x7F ? 1 : 10;
}

static bool choose_byte(const uint32_t allowed[8], size_t length, uint64_t *seed, char *out)
{
    uint64_t total = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        total += allowed[byte / 32] >> (byte % 32) & 1 ? weight(byte, length) : 0;
    if (total == 0)
        return false;
    uint64_t chosen = random_number(seed) % total;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t here = allowed[byte / 32] >> (byte % 32) & 1 ? weight(byte, length) : 0;
        if (chosen < here) {
            *out = (char)byte;
            return true;
        }
        chosen -= here;
    }
    return false;
}

/* Writes a random text that matches. */
static int write_sample(struct salvo_grammar *grammar, uint64_t *seed, struct json_writer *json)
{
    struct salvo_grammar_matcher *matcher = NULL;
    char *text = malloc(LONGEST_SAMPLE);
    size_t size = 0;
    uint32_t allowed[8];
    bool done = false;
    int result = text ? EXIT_DONE : failure("out of memory");
    if (result == EXIT_DONE && salvo_grammar_matcher_new(grammar, &matcher) != SALVO_OK)
        result = library_failure();
    while (result == EXIT_DONE && !done) {
        bool complete = salvo_grammar_matcher_complete(matcher);
        if (salvo_grammar_matcher_bytes(matcher, allowed) != SALVO_OK) {
            result = library_failure();
            break;
        }
        if ((complete && (size > SHORT_SAMPLE || random_number(seed) % 4 == 0)) ||
            (size < LONGEST_SAMPLE && !choose_byte(allowed, size, seed, text + size)))
            done = true;
        else if (size == LONGEST_SAMPLE)
            result = failure("no text shorter than %d bytes was found", LONGEST_SAMPLE);
        else if (salvo_grammar_matcher_append(matcher, text + size++, 1, NULL) != SALVO_OK)
            result = library_failure();
    }
    if (result == EXIT_DONE)
        json_text(json, (struct salvo_text){text, size});
    salvo_grammar_matcher_free(matcher);
    free(text);
    return result;
}

static int sample(struct salvo_grammar *grammar)
{
    struct json_writer json = json_output();
    uint64_t seed = options.seed.given ? options.seed.value : 0;
    int result = EXIT_DONE;
    json_begin(&json, '{');
    json_key(&json, "texts");
    json_begin(&json, '[');
    for (uint32_t i = 0; i < options.count && result == EXIT_DONE; i++)
        result = write_sample(grammar, &seed, &json);
    json_end(&json, ']');
    json_end(&json, '}');
    putchar('\n');
    return result;
}

/* Exit status 1 for a text that does not match. */
static int match(struct salvo_grammar *grammar, const char *text)
{
    struct json_writer json = json_output();
    struct salvo_grammar_matcher *matcher = NULL;
    struct input input;
    size_t taken = 0;
    int result = input_read(text, options.file, &input);
    if (result != EXIT_DONE)
        return result;
    enum salvo_status status = salvo_grammar_matcher_new(grammar, &matcher);
    if (status == SALVO_OK)
        status = salvo_grammar_matcher_append(matcher, input.data, input.size, &taken);
    if (status != SALVO_OK && (status != SALVO_ERROR_ARGUMENT || taken == input.size)) {
        result = library_failure();
    } else {
        bool matches = status == SALVO_OK && salvo_grammar_matcher_complete(matcher);
        json_begin(&json, '{');
        json_key(&json, "matches");
        json_bool(&json, matches);
        json_key(&json, "bytes");
        json_unsigned(&json, input.size);
        json_key(&json, "bytes_that_fit");
        json_unsigned(&json, taken);
        json_end(&json, '}');
        putchar('\n');
        result = matches ? EXIT_DONE : EXIT_FAILED;
    }
    salvo_grammar_matcher_free(matcher);
    input_free(&input);
    return result;
}

static int run(int count, char **arguments)
{
    struct salvo_grammar *grammar = NULL;
    const char *action = count ? arguments[0] : "";
    bool matches = strcmp(action, "match") == 0;
    if (!matches && strcmp(action, "check") != 0 && strcmp(action, "sample") != 0)
        return usage_error("grammar: 'check', 'sample' or 'match' is expected%s%s%s",
            *action ? ", not '" : "", action, *action ? "'" : "");
    if (count > (matches ? 2 : 1))
        return usage_error("grammar: unexpected argument '%s': a grammar is given with --grammar FILE",
            arguments[matches ? 2 : 1]);
    if (!has_grammar())
        return usage_error("grammar: --grammar FILE, --regex TEXT or --json-schema FILE is needed");
    int result = grammar_from_flags(NULL, matches, &grammar);
    if (result != EXIT_DONE)
        return result;
    if (matches)
        result = match(grammar, count > 1 ? arguments[1] : NULL);
    else if (strcmp(action, "sample") == 0)
        result = sample(grammar);
    else
        puts("{\"valid\":true}");
    salvo_grammar_free(grammar);
    return result;
}

const struct command grammar_command = {
    .name = "grammar",
    .arguments = "check|sample|match [TEXT]",
    .summary = "check a grammar, write texts that match it, or match a text",
    .details =
        "check compiles the grammar; sample writes random texts that match; match says whether TEXT, a file "
        "or\n"
        "standard input matches, and how many of its bytes fit. A document that is matched with "
        "--json-schema\n"
        "may have its members in any order, with any white space. The output is one JSON object. The exit\n"
        "status is 1 for a grammar with an error and for a text that does not match.",
    .options = option_table,
    .shared = {grammar_flag_table},
    .run = run,
};

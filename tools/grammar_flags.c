#include "grammar_flags.h"

#include "input.h"

#include <string.h>

struct grammar_flags grammar_flags;

const struct option grammar_flag_table[] = {
    {0, "grammar", "FILE", OPTION_FILE, &grammar_flags.grammar,
        "write only text that this GBNF grammar allows; FILE may be the grammar itself",
        .also = "--grammar-file"},
    {0, "regex", "TEXT", OPTION_TEXT, &grammar_flags.regex,
        "write only text that this regular expression matches as a whole"},
    {0, "json-schema", "FILE", OPTION_FILE, &grammar_flags.json_schema,
        "write only JSON that fits this schema; FILE may be the schema itself",
        .also = "-j -jf --json-schema-file"},
    {0},
};

bool has_grammar(void)
{
    return grammar_flags.grammar || grammar_flags.regex || grammar_flags.json_schema;
}

/* A grammar has rules, a schema begins with a brace or is true or false; a file's name does not. */
static bool is_text(enum salvo_grammar_kind kind, const char *value)
{
    if (kind != SALVO_GRAMMAR_JSON_SCHEMA)
        return kind == SALVO_GRAMMAR_REGEX || strstr(value, "::=");
    return value[strspn(value, " \t\r\n")] == '{' || strcmp(value, "true") == 0 ||
           strcmp(value, "false") == 0;
}

int grammar_from_flags(struct salvo_model *model, bool any_layout, struct salvo_grammar **out)
{
    const char *const values[] = {[SALVO_GRAMMAR_GBNF] = grammar_flags.grammar,
        [SALVO_GRAMMAR_REGEX] = grammar_flags.regex,
        [SALVO_GRAMMAR_JSON_SCHEMA] = grammar_flags.json_schema};
    static const enum salvo_grammar_kind kinds[] = {
        SALVO_GRAMMAR_GBNF, SALVO_GRAMMAR_REGEX, SALVO_GRAMMAR_JSON_SCHEMA};
    struct salvo_grammar_options options = SALVO_GRAMMAR_OPTIONS_INIT;
    struct input input;
    options.any_layout = any_layout;
    *out = NULL;
    if (!!values[0] + !!values[1] + !!values[2] > 1)
        return usage_error("--grammar, --regex and --json-schema cannot be combined");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *value = values[kinds[i]];
        if (!value)
            continue;
        bool text = is_text(kinds[i], value);
        int result = input_read(text ? value : NULL, text ? NULL : value, &input);
        if (result != EXIT_DONE)
            return result;
        if (salvo_grammar_compile(model, kinds[i], input.data, input.size, &options, out) != SALVO_OK)
            result = text ? library_failure() : failure("%s: %s", value, salvo_error());
        input_free(&input);
        return result;
    }
    return EXIT_DONE;
}

#include "commands.h"
#include "engine_flags.h"
#include "json_output.h"
#include "pull.h"
#include "terminal.h"

#include <stdio.h>

static struct {
    const char *sha256, *name;
    uint32_t timeout;
} options = {.timeout = PULL_TIMEOUT};

static const struct option option_table[] = {
    {0, "sha256", "SUM", OPTION_TEXT, &options.sha256, "SHA-256 that the file must have"},
    {0, "name", "NAME", OPTION_TEXT, &options.name,
        "name of the model in the models folder (default: the file's own)"},
    {0, "timeout", "SECONDS", OPTION_COUNT, &options.timeout,
        "silence of the server after which a request is repeated (default: 30)"},
    {0},
};

static void write_result(const struct pull_result *pulled)
{
    struct json_writer json = json_output();
    json_begin(&json, '{');
    json_key(&json, "name");
    json_string(&json, pulled->name);
    json_key(&json, "path");
    json_string(&json, pulled->path);
    json_key(&json, "source");
    json_string(&json, pulled->source);
    json_key(&json, "sha256");
    json_string(&json, pulled->sha256);
    json_key(&json, "size");
    json_unsigned(&json, pulled->size);
    json_key(&json, "files");
    json_unsigned(&json, pulled->files);
    json_key(&json, "was_there");
    json_bool(&json, pulled->was_there);
    json_end(&json, '}');
    putchar('\n');
}

static int run(int count, char **arguments)
{
    struct pull_result pulled;
    char size[32];
    if (count > 1)
        return usage_error("pull: expected one model");
    if (options.timeout > 86400)
        return usage_error("invalid --timeout %u: expected at most 86400", options.timeout);
    const struct pull_request request = {.source = count ? arguments[0] : NULL,
        .sha256 = options.sha256,
        .name = options.name,
        .timeout = options.timeout};
    int result = pull_model(&request, &pulled);
    if (result != EXIT_DONE)
        return result;
    if (output_flags.json)
        write_result(&pulled);
    else if (!output_flags.quiet)
        printf("%s (%s) %s\n", pulled.name, format_bytes(pulled.size, size),
            pulled.was_there ? "is there already" : "is in the models folder");
    return EXIT_DONE;
}

const struct command pull_command = {
    .name = "pull",
    .arguments = "[hf:ORG/REPO[:QUANT|/FILE.gguf] | URL | NAME]",
    .summary = "download a model into the models folder",
    .details =
        "Names: smollm2-135m (the default), smollm2-360m, qwen2.5-0.5b, qwen3-0.6b, gemma3-1b, smollm2-1.7b, "
        "qwen3-4b.\n"
        "hf:ORG/REPO without a quantisation, or with :latest, takes Q4_K_M, else Q8_0, or the only model.\n"
        "A model appears under its name when it is whole and its checksum is right; an interrupted pull "
        "continues\n"
        "where it stopped. HF_ENDPOINT names another hub, HF_TOKEN opens private and gated models; the token "
        "is sent\n"
        "to the hub alone and by HTTPS alone. Proxies and certificates are found as curl finds them.",
    .options = option_table,
    .shared = {output_flag_table},
    .run = run,
};

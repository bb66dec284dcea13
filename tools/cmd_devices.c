#include "commands.h"
#include "json.h"
#include "terminal.h"

#include <inttypes.h>

static struct {
    bool json;
} options;

static const struct option option_table[] = {
    {0, "json", NULL, OPTION_FLAG, &options.json, "one JSON object"},
    {0},
};

static void write_json(void)
{
    struct json json = {.stream = stdout};
    json_begin(&json, '{');
    json_key(&json, "devices");
    json_begin(&json, '[');
    for (size_t i = 0; i < salvo_device_count(); i++) {
        struct salvo_device device = salvo_device_at(i);
        json_begin(&json, '{');
        json_key(&json, "backend");
        json_string(&json, device.backend);
        json_key(&json, "number");
        json_unsigned(&json, device.number);
        json_key(&json, "name");
        json_string(&json, device.name);
        json_key(&json, "features");
        json_string(&json, device.features);
        json_key(&json, "cores");
        json_unsigned(&json, device.cores);
        json_key(&json, "memory");
        json_unsigned(&json, device.memory);
        json_key(&json, "software");
        json_bool(&json, device.software);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    json_key(&json, "unusable");
    json_begin(&json, '[');
    const char *backend, *why;
    for (size_t i = 0; (why = salvo_device_unusable(i, &backend)); i++) {
        json_begin(&json, '{');
        json_key(&json, "backend");
        json_string(&json, backend);
        json_key(&json, "why");
        json_string(&json, why);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    json_end(&json, '}');
    putchar('\n');
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    if (options.json) {
        write_json();
        return EXIT_DONE;
    }
    for (size_t i = 0; i < salvo_device_count(); i++) {
        struct salvo_device device = salvo_device_at(i);
        char memory[32], cores[32] = "";
        if (device.cores)
            snprintf(cores, sizeof cores, ", %" PRIu32 " cores", device.cores);
        printf("%-7s %" PRIu32 "  %s%s, %s%s%s%s\n", device.backend, device.number, device.name, cores,
            format_bytes(device.memory, memory), *device.features ? ", " : "", device.features,
            device.software ? ", software" : "");
    }
    const char *backend, *why;
    for (size_t i = 0; (why = salvo_device_unusable(i, &backend)); i++)
        printf("%-7s -  not used: %s\n", backend, why);
    return EXIT_DONE;
}

const struct command devices_command = {
    .name = "devices",
    .summary = "list what models can run on",
    .options = option_table,
    .run = run,
};

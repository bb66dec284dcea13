#include "commands.h"
#include "json_output.h"
#include "terminal.h"

#include <inttypes.h>
#include <string.h>

static struct {
    bool json;
} options;

static const struct option option_table[] = {
    {0, "json", NULL, OPTION_FLAG, &options.json, "print one JSON object"},
    {0},
};

static void write_json(void)
{
    struct json_writer json = json_output();
    json_begin(&json, '{');
    json_key(&json, "devices");
    json_begin(&json, '[');
    for (size_t i = 0; i < salvo_device_count(); i++) {
        struct salvo_device device = SALVO_DEVICE_INIT;
        if (salvo_device_at(i, &device) != SALVO_OK)
            continue;
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
    const char *owner, *why;
    for (size_t i = 0; (why = salvo_device_unusable(i, &owner)); i++) {
        json_begin(&json, '{');
        json_key(&json, "backend");
        json_string(&json, owner);
        json_key(&json, "why");
        json_string(&json, why);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    json_key(&json, "backends");
    json_begin(&json, '[');
    for (size_t i = 0; i < salvo_backend_count(); i++) {
        struct salvo_backend backend = SALVO_BACKEND_INIT;
        if (salvo_backend_at(i, &backend) != SALVO_OK)
            continue;
        json_begin(&json, '{');
        json_key(&json, "name");
        json_string(&json, backend.name);
        json_key(&json, "built");
        json_bool(&json, backend.built);
        json_key(&json, "devices");
        json_unsigned(&json, backend.devices);
        if (backend.why) {
            json_key(&json, "why");
            json_string(&json, backend.why);
        }
        json_end(&json, '}');
    }
    json_end(&json, ']');
    json_end(&json, '}');
    putchar('\n');
}

static bool has_unusable_device(const char *backend)
{
    const char *owner;
    for (size_t i = 0; salvo_device_unusable(i, &owner); i++) {
        if (strcmp(owner, backend) == 0)
            return true;
    }
    return false;
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
        struct salvo_device device = SALVO_DEVICE_INIT;
        if (salvo_device_at(i, &device) != SALVO_OK)
            continue;
        char memory[32], cores[32] = "";
        if (device.cores)
            snprintf(cores, sizeof cores, ", %" PRIu32 " cores", device.cores);
        printf("%-7s %" PRIu32 "  %s%s, %s%s%s%s\n", device.backend, device.number, device.name, cores,
            format_bytes(device.memory, memory), *device.features ? ", " : "", device.features,
            device.software ? ", software" : "");
    }
    const char *owner, *why;
    for (size_t i = 0; (why = salvo_device_unusable(i, &owner)); i++)
        printf("%-7s -  not used: %s\n", owner, why);
    for (size_t i = 0; i < salvo_backend_count(); i++) {
        struct salvo_backend backend = SALVO_BACKEND_INIT;
        if (salvo_backend_at(i, &backend) != SALVO_OK)
            continue;
        if (backend.why && !has_unusable_device(backend.name))
            printf("no %s %s: %s\n", backend.name, backend.built ? "device" : "in this build", backend.why);
    }
    return EXIT_DONE;
}

const struct command devices_command = {
    .name = "devices",
    .summary = "list the devices that models can run on",
    .options = option_table,
    .run = run,
};

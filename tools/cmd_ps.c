#include "commands.h"
#include "json_output.h"
#include "running.h"
#include "terminal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    bool json;
} options;

static const struct option option_table[] = {
    {0, "json", NULL, OPTION_FLAG, &options.json, "print one JSON object"},
    {0},
};

static int is_note(const struct dirent *entry)
{
    const char *ending = strrchr(entry->d_name, '.');
    return ending && ending > entry->d_name && strcmp(ending, ".json") == 0;
}

static void write_server(struct json_writer *json, const struct running_server *server)
{
    json_begin(json, '{');
    json_key(json, "pid");
    json_signed(json, server->pid);
    json_key(json, "address");
    json_string(json, server->address);
    json_key(json, "models");
    json_string(json, server->models);
    json_key(json, "started");
    json_signed(json, server->started);
    json_end(json, '}');
}

static void print_server(const struct running_server *server)
{
    char day[32] = "-";
    const time_t started = (time_t)server->started;
    struct tm time;
    if (localtime_r(&started, &time))
        strftime(day, sizeof day, "%Y-%m-%d %H:%M", &time);
    printf("%-8lld %s  ", (long long)server->pid, day);
    print_safely(stdout, server->address, strlen(server->address));
    fputs("  ", stdout);
    print_safely(stdout, server->models, strlen(server->models));
    putchar('\n');
}

static int run(int count, char **arguments)
{
    char folder[PATH_MAX], path[PATH_MAX + 260];
    struct dirent **entries = NULL;
    struct running_server server;
    int servers = 0;
    (void)count;
    (void)arguments;
    if (!running_folder(folder))
        return failure("XDG_RUNTIME_DIR is not set: servers leave no notes that `salvo ps` could read");
    const int notes = scandir(folder, &entries, is_note, alphasort);
    struct json_writer json = json_output();
    if (options.json) {
        json_begin(&json, '{');
        json_key(&json, "servers");
        json_begin(&json, '[');
    }
    for (int i = 0; i < notes; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        if (!running_read(path, &server))
            continue;
        servers++;
        if (options.json)
            write_server(&json, &server);
        else
            print_server(&server);
    }
    free(entries);
    if (options.json) {
        json_end(&json, ']');
        json_end(&json, '}');
        putchar('\n');
    } else if (!servers) {
        printf("no server is running\n");
    }
    return EXIT_DONE;
}

const struct command ps_command = {
    .name = "ps",
    .summary = "list the running servers of this user: process, start, address, models",
    .details = "Each server leaves a file in $XDG_RUNTIME_DIR/salvo while it runs.",
    .options = option_table,
    .run = run,
};

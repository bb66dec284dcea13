#include "profile_table.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names without the number of their layer and without ".weight": "blk.3.attn_q.weight" is "attn_q". */
static void shorten(const char *text, char *out, size_t size)
{
    size_t used = 0;
    while (*text && used + 1 < size) {
        if (strncmp(text, "blk.", 4) == 0 && isdigit((unsigned char)text[4])) {
            text += 4 + strspn(text + 4, "0123456789");
            text += *text == '.';
        } else if (strncmp(text, ".weight", 7) == 0) {
            text += 7;
        } else {
            out[used++] = *text++;
        }
    }
    out[used] = 0;
}

static struct profile_line *line_for(struct profile_table *table, const char *kind, const char *operations)
{
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->lines[i].kind, kind) == 0 && strcmp(table->lines[i].operations, operations) == 0)
            return &table->lines[i];
    }
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 32;
        struct profile_line *lines = realloc(table->lines, capacity * sizeof *lines);
        if (!lines)
            return NULL;
        table->lines = lines;
        table->capacity = capacity;
    }
    struct profile_line *line = &table->lines[table->count++];
    *line = (struct profile_line){0};
    snprintf(line->kind, sizeof line->kind, "%s", kind);
    snprintf(line->operations, sizeof line->operations, "%s", operations);
    return line;
}

void profile_table_add(void *user, const struct salvo_profile_phase *phase)
{
    struct profile_table *table = user;
    char operations[sizeof table->lines->operations];
    shorten(phase->operations, operations, sizeof operations);
    struct profile_line *line = line_for(table, phase->kind, operations);
    if (!line) {
        table->failed = true;
        return;
    }
    line->count++;
    line->seconds += phase->seconds;
    line->bytes += phase->bytes;
}

void profile_table_free(struct profile_table *table)
{
    free(table->lines);
    *table = (struct profile_table){0};
}

static double part(double of, double whole)
{
    return whole > 0 ? of / whole : 0;
}

/* The time to read these bytes at full memory bandwidth, as a share of the measured time. */
static double floor_share(const struct profile_line *line, double bytes_per_second)
{
    return part(part((double)line->bytes, bytes_per_second), line->seconds);
}

static void print_line(const struct profile_line *line, double total, double bytes_per_second)
{
    printf("%-7s %5" PRIu32 " %9.2f %9.1f %5.1f%% %9.2f %8.0f", line->kind, line->count,
        part(line->seconds * 1e6, line->count), line->seconds * 1e6, 100 * part(line->seconds, total),
        (double)line->bytes * 1e-6, part((double)line->bytes, line->seconds) * 1e-9);
    if (bytes_per_second > 0)
        printf(" %5.1f%%", 100 * floor_share(line, bytes_per_second));
    printf("  %s\n", line->operations);
}

void profile_table_write(const struct profile_table *table, struct json_writer *json)
{
    json_begin(json, '{');
    json_key(json, "depth");
    json_unsigned(json, table->depth);
    json_key(json, "tokens");
    json_unsigned(json, table->tokens);
    json_key(json, "bytes_per_second");
    json_float(json, table->bytes_per_second, false);
    json_key(json, "phases");
    json_begin(json, '[');
    for (size_t i = 0; i < table->count; i++) {
        const struct profile_line *line = &table->lines[i];
        json_begin(json, '{');
        json_key(json, "kind");
        json_string(json, line->kind);
        json_key(json, "operations");
        json_string(json, line->operations);
        json_key(json, "count");
        json_unsigned(json, line->count);
        json_key(json, "us");
        json_float(json, line->seconds * 1e6, false);
        json_key(json, "bytes");
        json_unsigned(json, line->bytes);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_end(json, '}');
}

void profile_table_print(const struct profile_table *table)
{
    struct profile_line all = {.kind = "all", .operations = "everything"};
    for (size_t i = 0; i < table->count; i++) {
        all.count += table->lines[i].count;
        all.seconds += table->lines[i].seconds;
        all.bytes += table->lines[i].bytes;
    }
    printf("%" PRIu32 " token%s after %" PRIu32 "\n\n%-7s %5s %9s %9s %6s %9s %8s%s  %s\n", table->tokens,
        table->tokens == 1 ? "" : "s", table->depth, "phase", "times", "us each", "us", "share", "MB", "GB/s",
        table->bytes_per_second > 0 ? "  floor" : "", "what");
    for (size_t i = 0; i < table->count; i++)
        print_line(&table->lines[i], all.seconds, table->bytes_per_second);
    print_line(&all, all.seconds, table->bytes_per_second);
    printf("\n%.1f tok/s\n\n", part(table->tokens, all.seconds));
}

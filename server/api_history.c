#include "api_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The member by which a result names its call. */
enum key_kind { KEY_ID, KEY_NAME };

struct api_history_entry {
    struct api_history_entry *before;
    size_t number; /* in the order of the request */
    enum key_kind kind;
    struct salvo_text key; /* empty: none */
    bool is_result;
    const char *field;
};

static bool add_entry(struct api_history *history, const struct api_history_entry *entry, const char *field,
    struct api_error *error)
{
    struct api_history_entry *kept = api_document_take(history->document, sizeof *kept);
    char *name = api_document_take(history->document, strlen(field) + 1);
    if (!kept || !name)
        return api_out_of_memory(error);
    *kept = *entry;
    kept->before = history->last;
    kept->number = history->count++;
    kept->field = memcpy(name, field, strlen(field) + 1);
    history->last = kept;
    return true;
}

static bool read_key(const struct api_value *value, const char *field, const char *what,
    struct salvo_text *out, struct api_error *error)
{
    *out = (struct salvo_text){"", 0};
    if (value && value->kind != JSON_STRING)
        return api_fail(error, 400, field, "'%s': expected a string as %s", field, what);
    if (value)
        *out = value->text;
    return true;
}

/* Arguments are an object, or a text with one; some servers write "" where there are none. */
static bool check_arguments(const struct api_value *arguments, const char *field, struct api_error *error)
{
    struct api_document document = {0};
    if (arguments &&
        (arguments->kind == JSON_OBJECT_BEGIN || (arguments->kind == JSON_STRING && !arguments->text.size)))
        return true;
    const bool ok = arguments && arguments->kind == JSON_STRING &&
                    api_document_parse(arguments->text.data, arguments->text.size, &document, error) &&
                    document.root->kind == JSON_OBJECT_BEGIN;
    api_document_free(&document);
    if (ok || error->status == 503)
        return ok;
    return api_fail(error, 400, field, "'%s': expected the arguments of each call as a JSON object", field);
}

bool api_history_call(struct api_history *history, const char *field, const struct api_value *id,
    const struct api_value *name, const struct api_value *arguments, struct api_error *error)
{
    struct api_history_entry entry = {.kind = KEY_ID};
    if (!name || name->kind != JSON_STRING || !name->text.size)
        return api_fail(error, 400, field, "'%s': expected calls with a function's name", field);
    if (!check_arguments(arguments, field, error) ||
        !read_key(id, field, "the id of a call", &entry.key, error))
        return false;
    history->has_calls = true;
    history->has_calls_without_id |= entry.key.size == 0;
    if (!add_entry(history, &entry, field, error))
        return false;
    entry.kind = KEY_NAME;
    entry.key = name->text;
    return !history->ids_are_optional || add_entry(history, &entry, field, error);
}

bool api_history_result(struct api_history *history, const char *field, const struct api_value *id,
    const struct api_value *name, struct api_error *error)
{
    struct api_history_entry entry = {.kind = KEY_ID, .is_result = true};
    if (!read_key(id, field, "the id of a call", &entry.key, error))
        return false;
    struct salvo_text tool = {0};
    if (!read_key(name, field, "the name of a tool", &tool, error))
        return false;
    if (history->ids_are_optional && !entry.key.size) {
        entry.kind = KEY_NAME;
        entry.key = tool;
    }
    if (!history->has_calls)
        return api_fail(error, 400, field, "'%s': the result of a tool without an earlier call", field);
    if (history->ids_are_optional && !entry.key.size)
        return true;
    if (!entry.key.size && !history->has_calls_without_id)
        return api_fail(
            error, 400, field, "'%s': expected the id of a call with the result of a tool", field);
    return add_entry(history, &entry, field, error);
}

static int compare_keys(const struct api_history_entry *a, const struct api_history_entry *b)
{
    const size_t size = a->key.size < b->key.size ? a->key.size : b->key.size;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    const int order = size ? memcmp(a->key.data, b->key.data, size) : 0;
    return order ? order : (a->key.size > b->key.size) - (a->key.size < b->key.size);
}

static int compare_entries(const void *first, const void *second)
{
    const struct api_history_entry *a = *(const struct api_history_entry *const *)first;
    const struct api_history_entry *b = *(const struct api_history_entry *const *)second;
    const int order = compare_keys(a, b);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

/* The first wrong result of the request, or else the first call without one. */
struct fault {
    const struct api_history_entry *entry;
    const char *text; /* behind the key; NULL: the entry is a call without a result */
};

static void note_fault(struct fault *fault, const struct api_history_entry *entry, const char *text)
{
    const bool is_alike = fault->entry && fault->entry->is_result == entry->is_result;
    if (!fault->entry || (is_alike ? entry->number < fault->entry->number : entry->is_result))
        *fault = (struct fault){entry, text};
}

/* Entries of one key, in the order of the request. */
static void check_group(const struct api_history *history, struct api_history_entry **entries, size_t count,
    const char *open, struct fault *fault)
{
    const struct api_history_entry *last_call = NULL;
    size_t calls = 0, results = 0;
    /* Some clients hand over ids of results alone. */
    if (history->ids_are_optional && entries[0]->kind == KEY_ID && history->has_calls_without_id)
        return;
    for (size_t i = 0; i < count; i++) {
        if (!entries[i]->is_result) {
            last_call = entries[i];
            calls++;
            continue;
        }
        results++;
        if (!calls)
            note_fault(fault, entries[i], "which no earlier message has");
        else if (results > calls && !history->ids_are_optional)
            note_fault(fault, entries[i], "which has a result already");
    }
    if (calls > results && !history->ids_are_optional && (!open || strcmp(last_call->field, open) != 0))
        note_fault(fault, last_call, NULL);
}

bool api_history_end(struct api_history *history, const char *open, struct api_error *error)
{
    struct api_history_entry **entries =
        api_document_take(history->document, (history->count + 1) * sizeof(struct api_history_entry *));
    struct api_history_entry *next = history->last;
    struct fault fault = {0};
    if (!entries)
        return api_out_of_memory(error);
    for (size_t i = history->count; i-- > 0; next = next->before)
        entries[i] = next;
    if (history->count)
        qsort(entries, history->count, sizeof *entries, compare_entries);
    for (size_t begin = 0, end = 0; begin < history->count; begin = end) {
        while (end < history->count && compare_keys(entries[begin], entries[end]) == 0)
            end++;
        check_group(history, entries + begin, end - begin, open, &fault);
    }
    if (!fault.entry)
        return true;
    const struct api_history_entry *entry = fault.entry;
    if (!fault.text && !entry->key.size)
        return api_fail(error, 400, entry->field, "'%s': a call has no result", entry->field);
    if (!fault.text)
        return api_fail(
            error, 400, entry->field, "'%s': the call '%.64s' has no result", entry->field, entry->key.data);
    return api_fail(error, 400, entry->field, "'%s': the result of the call '%.64s', %s", entry->field,
        entry->key.data, fault.text);
}

static bool check_message(
    struct api_history *history, const struct api_value *message, const char *field, struct api_error *error)
{
    const struct api_value *calls = api_member(message, "tool_calls"), *role = api_member(message, "role");
    if (strcmp(role->text.data, "tool") == 0 &&
        !api_history_result(history, field, api_member(message, "tool_call_id"), NULL, error))
        return false;
    if (!calls)
        return true;
    if (calls->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, field, "'%s.tool_calls': expected an array of calls", field);
    if (calls->count && strcmp(role->text.data, "assistant") != 0)
        return api_fail(error, 400, field, "'%s.tool_calls': only the assistant calls tools", field);
    for (const struct api_value *call = calls->first; call; call = call->next) {
        const struct api_value *function = api_member(call, "function"), *type = api_member(call, "type");
        if (type && (type->kind != JSON_STRING || strcmp(type->text.data, "function") != 0))
            return api_fail(error, 400, field, "'%s': expected calls of the type \"function\"", field);
        if (!api_history_call(history, field, api_member(call, "id"), api_member(function, "name"),
                api_member(function, "arguments"), error))
            return false;
    }
    return true;
}

bool api_check_history(struct api_document *document, const struct api_value *messages,
    bool may_end_with_calls, struct api_error *error)
{
    struct api_history history = {.document = document};
    char field[48] = "";
    size_t index = 0;
    for (const struct api_value *message = messages->first; message; message = message->next, index++) {
        snprintf(field, sizeof field, "messages[%zu]", index);
        if (!check_message(&history, message, field, error))
            return false;
    }
    return api_history_end(&history, may_end_with_calls ? field : NULL, error);
}

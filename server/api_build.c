#include "api_build.h"

#include "api_tools.h"

#include <string.h>

struct api_list api_list_new(enum json_kind kind)
{
    return (struct api_list){.value = {.kind = kind}};
}

struct api_builder api_builder_new(struct api_document *document)
{
    return (struct api_builder){.document = document,
        .messages = api_list_new(JSON_ARRAY_BEGIN),
        .parts = api_list_new(JSON_ARRAY_BEGIN),
        .calls = api_list_new(JSON_ARRAY_BEGIN),
        .tools = api_list_new(JSON_ARRAY_BEGIN),
        .history = {.document = document}};
}

void api_list_add(
    struct api_builder *builder, struct api_list *list, const char *key, const struct api_value *value)
{
    struct api_value *copy = api_document_take(builder->document, sizeof *copy);
    if (!copy) {
        builder->failed = true;
        return;
    }
    *copy = *value;
    copy->key = (struct salvo_text){key, strlen(key)};
    copy->next = NULL;
    if (list->last)
        list->last->next = copy;
    else
        list->value.first = copy;
    list->last = copy;
    list->value.count++;
}

void api_list_add_text(
    struct api_builder *builder, struct api_list *list, const char *key, struct salvo_text text)
{
    api_list_add(builder, list, key, &(struct api_value){.kind = JSON_STRING, .text = text});
}

void api_list_add_bool(struct api_builder *builder, struct api_list *list, const char *key, bool value)
{
    api_list_add(builder, list, key, &(struct api_value){.kind = value ? JSON_TRUE : JSON_FALSE});
}

static void end_message(struct api_builder *builder)
{
    struct api_list message = api_list_new(JSON_OBJECT_BEGIN);
    if (!builder->role)
        return;
    api_list_add_text(builder, &message, "role", (struct salvo_text){builder->role, strlen(builder->role)});
    if (builder->parts.value.count == 1) {
        const struct api_value *text = builder->parts.value.first->first->next; /* after its type */
        api_list_add(builder, &message, "content", text);
    } else if (builder->parts.value.count || !builder->calls.value.count) {
        api_list_add(builder, &message, "content", &builder->parts.value);
    }
    if (builder->calls.value.count)
        api_list_add(builder, &message, "tool_calls", &builder->calls.value);
    if (builder->reasoning.size)
        api_list_add_text(builder, &message, "reasoning_content", builder->reasoning);
    api_list_add(builder, &builder->messages, "", &message.value);
    builder->role = NULL;
    builder->parts = api_list_new(JSON_ARRAY_BEGIN);
    builder->calls = api_list_new(JSON_ARRAY_BEGIN);
    builder->reasoning = (struct salvo_text){0};
}

static void begin_message(struct api_builder *builder, const char *role)
{
    if (builder->role && strcmp(builder->role, role) != 0)
        end_message(builder);
    builder->role = role;
}

void api_build_text(struct api_builder *builder, const char *role, struct salvo_text text)
{
    struct api_list part = api_list_new(JSON_OBJECT_BEGIN);
    begin_message(builder, role);
    api_list_add_text(builder, &part, "type", (struct salvo_text){"text", 4});
    api_list_add_text(builder, &part, "text", text);
    if (!builder->failed)
        api_list_add(builder, &builder->parts, "", &part.value);
}

void api_build_reasoning(struct api_builder *builder, struct salvo_text text)
{
    begin_message(builder, "assistant");
    builder->reasoning = text;
}

static const struct salvo_text function_type = {"function", 8};

bool api_build_call(struct api_builder *builder, const char *field, const struct api_value *id,
    const struct api_value *name, const struct api_value *arguments, struct api_error *error)
{
    struct api_list call = api_list_new(JSON_OBJECT_BEGIN), function = api_list_new(JSON_OBJECT_BEGIN);
    if (!api_history_call(&builder->history, field, id, name, arguments, error))
        return false;
    begin_message(builder, "assistant");
    api_list_add(builder, &function, "name", name);
    api_list_add(builder, &function, "arguments", arguments);
    if (id)
        api_list_add(builder, &call, "id", id);
    api_list_add_text(builder, &call, "type", function_type);
    api_list_add(builder, &call, "function", &function.value);
    api_list_add(builder, &builder->calls, "", &call.value);
    return true;
}

bool api_build_result(struct api_builder *builder, const char *field, const struct api_value *id,
    const struct api_value *name, struct salvo_text text, struct api_error *error)
{
    struct api_list message = api_list_new(JSON_OBJECT_BEGIN);
    if (!api_history_result(&builder->history, field, id, name, error))
        return false;
    end_message(builder);
    api_list_add_text(builder, &message, "role", (struct salvo_text){"tool", 4});
    if (id)
        api_list_add(builder, &message, "tool_call_id", id);
    if (name)
        api_list_add(builder, &message, "name", name);
    api_list_add_text(builder, &message, "content", text);
    api_list_add(builder, &builder->messages, "", &message.value);
    return true;
}

void api_build_tool(struct api_builder *builder, const struct api_value *tool, const char *parameters)
{
    const char *const from[] = {"name", "description", parameters, "strict"};
    static const char *const to[] = {"name", "description", "parameters", "strict"};
    struct api_list made = api_list_new(JSON_OBJECT_BEGIN), function = api_list_new(JSON_OBJECT_BEGIN);
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        const struct api_value *member = api_member(tool, from[i]);
        if (member)
            api_list_add(builder, &function, to[i], member);
    }
    api_list_add_text(builder, &made, "type", function_type);
    api_list_add(builder, &made, "function", &function.value);
    api_list_add(builder, &builder->tools, "", &made.value);
}

bool api_build_tools(struct api_builder *builder, const struct api_tool_choice *choice,
    struct api_request *request, struct api_error *error)
{
    struct api_list root = api_list_new(JSON_OBJECT_BEGIN), named = api_list_new(JSON_OBJECT_BEGIN),
                    function = api_list_new(JSON_OBJECT_BEGIN);
    api_list_add(builder, &root, "tools", &builder->tools.value);
    api_list_add_bool(builder, &root, "parallel_tool_calls", !choice->one_call);
    if (choice->name) {
        api_list_add(builder, &function, "name", choice->name);
        api_list_add(builder, &named, "function", &function.value);
        api_list_add(builder, &root, "tool_choice", &named.value);
    } else if (choice->none || choice->required) {
        const char *word = choice->none ? "none" : "required";
        api_list_add_text(builder, &root, "tool_choice", (struct salvo_text){word, strlen(word)});
    }
    struct api_value *kept = api_document_take(builder->document, sizeof *kept);
    if (!kept || builder->failed)
        return api_out_of_memory(error);
    *kept = root.value; /* the request refers to the list */
    return api_read_tools(kept, request, error);
}

bool api_build_messages(struct api_builder *builder, struct api_request *request, struct api_error *error)
{
    struct api_list root = api_list_new(JSON_OBJECT_BEGIN);
    if (!builder->failed)
        end_message(builder);
    api_list_add(builder, &root, "messages", &builder->messages.value);
    if (builder->failed)
        return api_out_of_memory(error);
    return api_history_end(&builder->history, NULL, error) && api_read_messages(&root.value, request, error);
}

#include "api_build.h"

#include <string.h>

struct api_list api_list_new(enum json_kind kind)
{
    return (struct api_list){.value = {.kind = kind}};
}

struct api_builder api_builder_new(struct api_document *document)
{
    return (struct api_builder){.document = document,
        .messages = api_list_new(JSON_ARRAY_BEGIN),
        .parts = api_list_new(JSON_ARRAY_BEGIN)};
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
    } else {
        api_list_add(builder, &message, "content", &builder->parts.value);
    }
    if (builder->reasoning.size)
        api_list_add_text(builder, &message, "reasoning_content", builder->reasoning);
    api_list_add(builder, &builder->messages, "", &message.value);
    builder->role = NULL;
    builder->parts = api_list_new(JSON_ARRAY_BEGIN);
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

bool api_build_messages(struct api_builder *builder, struct api_request *request, struct api_error *error)
{
    struct api_list root = api_list_new(JSON_OBJECT_BEGIN);
    if (!builder->failed)
        end_message(builder);
    api_list_add(builder, &root, "messages", &builder->messages.value);
    if (builder->failed)
        return api_out_of_memory(error);
    return api_read_messages(&root.value, request, error);
}

#include "conversation.h"

#include "command.h"
#include "escapes.h"
#include "generate_flags.h"

#include <stdlib.h>
#include <string.h>

int conversation_open(struct salvo_model *model, struct conversation *out)
{
    *out = (struct conversation){0};
    return salvo_template_open(model, NULL, 0, &out->template) == SALVO_OK ? EXIT_DONE : library_failure();
}

void conversation_close(struct conversation *conversation)
{
    conversation_cut(conversation, 0);
    free(conversation->messages);
    free(conversation->memory);
    salvo_template_close(conversation->template);
    *conversation = (struct conversation){0};
}

void conversation_cut(struct conversation *conversation, size_t count)
{
    while (conversation->count > count)
        free(conversation->memory[--conversation->count]);
}

/* Copies a text and a NUL to *place and advances it. Returns the copy. */
static const char *append_text(char **place, const char *text, size_t size)
{
    char *begin = *place;
    if (size)
        memcpy(begin, text, size);
    begin[size] = 0;
    *place += size + 1;
    return begin;
}

/* Copies a message; its texts are in one allocation, which is returned. NULL when out of memory. */
static char *copy_message(const struct salvo_message *message, struct salvo_message *out)
{
    const size_t role = strlen(message->role), json = message->json ? strlen(message->json) : 0;
    char *memory = malloc(role + message->content.size + json + 3), *place = memory;
    if (!memory)
        return NULL;
    out->role = append_text(&place, message->role, role);
    out->content.data = append_text(&place, message->content.data, message->content.size);
    out->content.size = message->content.size;
    out->json = message->json ? append_text(&place, message->json, json) : NULL;
    return memory;
}

/* Room for one more message. */
static bool grow(struct conversation *conversation)
{
    if (conversation->count < conversation->capacity)
        return true;
    const size_t capacity = conversation->capacity * 2 + 8;
    struct salvo_message *messages =
        realloc(conversation->messages, capacity * sizeof *conversation->messages);
    if (!messages)
        return false;
    conversation->messages = messages;
    char **memory = realloc(conversation->memory, capacity * sizeof *conversation->memory);
    if (!memory)
        return false;
    conversation->memory = memory;
    conversation->capacity = capacity;
    return true;
}

static int insert(struct conversation *conversation, size_t index, const struct salvo_message *message)
{
    struct salvo_message copy;
    char *memory = grow(conversation) ? copy_message(message, &copy) : NULL;
    if (!memory)
        return failure("out of memory");
    const size_t moved = conversation->count - index;
    memmove(&conversation->messages[index + 1], &conversation->messages[index], moved * sizeof copy);
    memmove(&conversation->memory[index + 1], &conversation->memory[index], moved * sizeof memory);
    conversation->messages[index] = copy;
    conversation->memory[index] = memory;
    conversation->count++;
    return EXIT_DONE;
}

static void erase(struct conversation *conversation, size_t first, size_t count)
{
    struct salvo_message *messages = &conversation->messages[first];
    char **memory = &conversation->memory[first];
    for (size_t i = 0; i < count; i++)
        free(memory[i]);
    conversation->count -= count;
    const size_t moved = conversation->count - first;
    memmove(messages, messages + count, moved * sizeof *messages);
    memmove(memory, memory + count, moved * sizeof *memory);
}

int conversation_add(struct conversation *conversation, const char *role, const char *text, size_t size)
{
    const struct salvo_message message = {.role = role, .content = {text, size}};
    return insert(conversation, conversation->count, &message);
}

bool conversation_has_system(const struct conversation *conversation)
{
    return conversation->count && strcmp(conversation->messages[0].role, "system") == 0;
}

/* Whether the template accepts the system message, tried in the smallest conversation. */
static bool is_accepted(const struct conversation *conversation, const struct salvo_message *system)
{
    const struct salvo_message messages[] = {*system, {.role = "user", .content = {"Hello", 5}}};
    const struct salvo_conversation smallest = {.size = sizeof(struct salvo_conversation),
        .message_size = sizeof(struct salvo_message),
        .messages = messages,
        .message_count = 2};
    struct salvo_prompt *prompt;
    enum salvo_status status = salvo_template_render(conversation->template, &smallest, &prompt);
    salvo_free(prompt);
    return status == SALVO_OK;
}

int conversation_set_system(struct conversation *conversation, const char *text)
{
    const struct salvo_message system = {.role = "system", .content = {text, strlen(text)}};
    if (*text && !is_accepted(conversation, &system))
        return failure("the chat template of the model refuses the system message: %s", salvo_error());
    bool replaces = conversation_has_system(conversation);
    int result = *text ? insert(conversation, 0, &system) : EXIT_DONE;
    if (result == EXIT_DONE && replaces)
        erase(conversation, *text ? 1 : 0, 1);
    return result;
}

int conversation_set_system_from_flags(struct conversation *conversation)
{
    if (!generate_flags.system)
        return EXIT_DONE;
    char *text = strdup(generate_flags.system);
    if (!text)
        return failure("out of memory");
    if (!generate_flags.no_escape)
        text[unescape(text, strlen(text))] = 0;
    int result = conversation_set_system(conversation, text);
    free(text);
    return result;
}

int conversation_replace(struct conversation *conversation, const struct salvo_messages *messages)
{
    struct conversation fresh = {0};
    for (size_t i = 0; i < messages->count; i++) {
        int result = insert(&fresh, i, &messages->items[i]);
        if (result != EXIT_DONE) {
            conversation_close(&fresh);
            return result;
        }
    }
    fresh.template = conversation->template;
    conversation->template = NULL;
    conversation_close(conversation);
    *conversation = fresh;
    return EXIT_DONE;
}

static bool begins_turn(const struct conversation *conversation, size_t index)
{
    return strcmp(conversation->messages[index].role, "user") == 0 ||
           index == (size_t)conversation_has_system(conversation);
}

size_t conversation_turns(const struct conversation *conversation)
{
    size_t turns = 0;
    for (size_t i = conversation_has_system(conversation); i < conversation->count; i++)
        turns += begins_turn(conversation, i);
    return turns;
}

/* Messages after the system message that belong to the oldest `turns`. */
static size_t messages_of(const struct conversation *conversation, size_t turns)
{
    const size_t first = conversation_has_system(conversation);
    size_t end = first;
    for (; end < conversation->count; end++) {
        if (begins_turn(conversation, end) && turns-- == 0)
            break;
    }
    return end - first;
}

void conversation_drop_oldest(struct conversation *conversation, size_t turns)
{
    size_t count = messages_of(conversation, turns);
    erase(conversation, conversation_has_system(conversation), count);
}

size_t conversation_last_question(const struct conversation *conversation)
{
    for (size_t i = conversation->count; i > 0; i--) {
        if (strcmp(conversation->messages[i - 1].role, "user") == 0)
            return i - 1;
    }
    return conversation->count;
}

int conversation_tokens(
    const struct conversation *conversation, size_t dropped, int32_t **out_ids, size_t *out_count)
{
    const size_t first = conversation_has_system(conversation), left_out = messages_of(conversation, dropped);
    struct salvo_message *messages = calloc(conversation->count + 1, sizeof *messages);
    *out_ids = NULL;
    *out_count = 0;
    if (!messages)
        return failure("out of memory");
    for (size_t i = 0; i < conversation->count - left_out; i++)
        messages[i] = conversation->messages[i < first ? i : i + left_out];
    const struct salvo_conversation said = {.size = sizeof(struct salvo_conversation),
        .message_size = sizeof(struct salvo_message),
        .messages = messages,
        .message_count = conversation->count - left_out};
    enum salvo_status status = salvo_template_tokens(conversation->template, &said, out_ids, out_count);
    free(messages);
    if (status != SALVO_OK)
        return library_failure();
    return *out_count ? EXIT_DONE
                      : failure("the chat template of the model gives no tokens for this conversation");
}

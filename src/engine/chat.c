#include "engine/chat.h"

#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/model.h"
#include "engine/token_overlap.h"

#include <inttypes.h>
#include <string.h>

enum salvo_status salvo_chat_open(
    struct salvo_model *model, const struct salvo_chat_options *given, struct salvo_chat **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_chat_options options;
    struct salvo_chat *chat = NULL;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(model);
    TRY(options_read("salvo_chat_options", given, sizeof options, &options));
    if (options.on_full > SALVO_ON_FULL_SLIDE)
        TRY(fail(SALVO_ERROR_ARGUMENT, "on_full is %" PRIu32 "; 0 and 1 are known", options.on_full));
    if ((options.json.size && !options.json.data) ||
        (options.chat_template.size && !options.chat_template.data))
        TRY(fail(SALVO_ERROR_ARGUMENT, "a text in the options of a chat is NULL"));
    TRY(NEW(&chat, 1));
    chat->model = model;
    chat->on_full = (enum salvo_on_full)options.on_full;
    chat->json_size = options.json.size;
    TRY(NEW(&chat->json, options.json.size));
    if (chat->json)
        memcpy(chat->json, options.json.data, options.json.size);
    TRY(salvo_template_open(model, options.chat_template.size ? options.chat_template.data : NULL,
        options.chat_template.size, &chat->chat_template));
    *out = chat;
    chat = NULL;
cleanup:
    salvo_chat_close(chat);
    return status;
}

void salvo_chat_close(struct salvo_chat *chat)
{
    if (!chat)
        return;
    message_list_free(&chat->messages);
    memory_free(chat->held.ids);
    memory_free(chat->json);
    salvo_template_close(chat->chat_template);
    memory_free(chat);
}

/* ---- Messages ---- */

struct salvo_messages salvo_chat_messages(const struct salvo_chat *chat)
{
    if (!chat)
        return (struct salvo_messages){.item_size = sizeof(struct salvo_message)};
    return (struct salvo_messages){chat->messages.items, chat->messages.count, sizeof(struct salvo_message)};
}

enum salvo_status salvo_chat_add(
    struct salvo_chat *chat, const struct salvo_message *messages, size_t count, size_t message_size)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_message *copy = NULL;
    const struct salvo_message *known;
    REQUIRE(chat);
    const size_t before = chat->messages.count;
    TRY(messages_read(messages, count, message_size, &copy, &known));
    for (size_t i = 0; i < count; i++)
        TRY(message_list_insert(&chat->messages, chat->messages.count, &known[i]));
cleanup:
    if (status != SALVO_OK)
        salvo_chat_cut(chat, before);
    memory_free(copy);
    return status;
}

void salvo_chat_cut(struct salvo_chat *chat, size_t count)
{
    if (!chat || count >= chat->messages.count)
        return;
    message_list_erase(&chat->messages, count, chat->messages.count - count);
    chat->has_leftovers = true;
}

size_t salvo_chat_question(const struct salvo_chat *chat)
{
    return chat ? message_list_question(&chat->messages) : 0;
}

/* Whether the template accepts the system message, tried in the smallest conversation. */
static enum salvo_status check_system(const struct salvo_chat *chat, const struct salvo_message *system)
{
    struct salvo_message items[] = {*system, {.role = "user", .content = {"Hello", 5}}};
    const struct message_list smallest = {.items = items, .count = 2};
    struct token_list ids;
    enum salvo_status status = chat_render(chat, &smallest, 0, true, &ids);
    memory_free(ids.ids);
    return status == SALVO_OK ? status
                              : fail_within(status, "the chat template refuses the system message: ");
}

enum salvo_status salvo_chat_set_system(struct salvo_chat *chat, const char *text, size_t size)
{
    enum salvo_status status = SALVO_OK;
    REQUIRE(chat);
    if (size)
        REQUIRE(text);
    const struct salvo_message system = {.role = "system", .content = {text, size}};
    const bool replaces = message_list_has_system(&chat->messages);
    if (size) {
        TRY(check_system(chat, &system));
        TRY(message_list_insert(&chat->messages, 0, &system));
    }
    if (replaces)
        message_list_erase(&chat->messages, size ? 1 : 0, 1);
    chat->has_leftovers = true;
cleanup:
    return status;
}

/* ---- Prompts ---- */

const struct salvo_stops *salvo_chat_stops(const struct salvo_chat *chat)
{
    return chat ? salvo_template_stops(chat->chat_template) : NULL;
}

enum salvo_status chat_render(const struct salvo_chat *chat, const struct message_list *messages,
    size_t dropped, bool generation_prompt, struct token_list *out)
{
    enum salvo_status status = SALVO_OK;
    const size_t first = message_list_has_system(messages),
                 left_out = message_list_turn_messages(messages, dropped), count = messages->count - left_out;
    struct salvo_message *items = NULL;
    *out = (struct token_list){0};
    TRY(NEW(&items, count));
    for (size_t i = 0; i < count; i++)
        items[i] = messages->items[i < first ? i : i + left_out];
    const struct salvo_conversation said = {
        .size = sizeof said,
        .message_size = sizeof *items,
        .no_generation_prompt = !generation_prompt,
        .messages = items,
        .message_count = count,
        .json = {chat->json, chat->json_size},
    };
    TRY(salvo_template_tokens(chat->chat_template, &said, &out->ids, &out->count));
    if (out->count == 0)
        TRY(fail(SALVO_ERROR_FORMAT, "the chat template gives no tokens for this conversation"));
cleanup:
    memory_free(items);
    return status;
}

/* The prompt without the oldest `dropped` turns: held tokens, new ones, `generated`. */
static enum salvo_status join_prompt(const struct salvo_chat *chat, const struct message_list *messages,
    size_t dropped, struct token_list generated, struct token_list *out)
{
    enum salvo_status status = SALVO_OK;
    const struct tokenizer *tokenizer;
    struct token_overlap overlap;
    struct token_list rendered = {0};
    *out = (struct token_list){0};
    TRY(model_tokenizer(chat->model, &tokenizer));
    TRY(chat_render(chat, messages, dropped, true, &rendered));
    TRY(token_overlap_find(
        tokenizer, chat->held.ids, chat->held.count, rendered.ids, rendered.count, &overlap));
    const size_t fresh = rendered.count - overlap.next;
    TRY(NEW(&out->ids, overlap.kept + fresh + generated.count));
    if (overlap.kept)
        memcpy(out->ids, chat->held.ids, overlap.kept * sizeof *out->ids);
    memcpy(out->ids + overlap.kept, rendered.ids + overlap.next, fresh * sizeof *out->ids);
    if (generated.count)
        memcpy(out->ids + overlap.kept + fresh, generated.ids, generated.count * sizeof *out->ids);
    out->count = overlap.kept + fresh + generated.count;
cleanup:
    memory_free(rendered.ids);
    return status;
}

enum salvo_status chat_slide(const struct salvo_chat *chat, struct message_list *messages, uint32_t context,
    struct token_list generated, struct token_list *out, bool *out_fits)
{
    enum salvo_status status = SALVO_OK;
    const size_t turns = message_list_turns(messages);
    struct token_list prompt = {0};
    size_t dropped = 0;
    *out_fits = false;
    /* With less free space nearly every turn would compute the whole prompt again. */
    while (dropped + 1 < turns && (dropped == 0 || prompt.count > context - context / 4)) {
        memory_free(prompt.ids);
        prompt.ids = NULL;
        TRY(join_prompt(chat, messages, ++dropped, generated, &prompt));
    }
    if (dropped && prompt.count < context) {
        message_list_erase(
            messages, message_list_has_system(messages), message_list_turn_messages(messages, dropped));
        *out_fits = true;
        *out = prompt;
        prompt.ids = NULL;
    }
cleanup:
    memory_free(prompt.ids);
    return status;
}

enum salvo_status chat_make_prompt(const struct salvo_chat *chat, struct message_list *messages,
    uint32_t context, struct token_list generated, struct token_list *out)
{
    enum salvo_status status = SALVO_OK;
    struct token_list prompt, shorter;
    *out = (struct token_list){0};
    TRY(join_prompt(chat, messages, 0, generated, &prompt));
    bool fits = context == 0 || prompt.count < context;
    if (!fits && chat->on_full == SALVO_ON_FULL_SLIDE) {
        TRY(chat_slide(chat, messages, context, generated, &shorter, &fits));
        if (fits) {
            memory_free(prompt.ids);
            prompt = shorter;
        }
    }
    if (!fits) {
        const bool alone = chat->on_full == SALVO_ON_FULL_SLIDE || message_list_turns(messages) == 1;
        TRY(fail(SALVO_ERROR_CONTEXT,
            alone ? "the message does not fit: it makes a prompt of %zu tokens, the context has %" PRIu32
                  : "the context is full: with this message the prompt has %zu tokens, the context %" PRIu32,
            prompt.count, context));
    }
    *out = prompt;
    prompt.ids = NULL;
cleanup:
    memory_free(prompt.ids);
    return status;
}

void chat_hold(struct salvo_chat *chat, const int32_t *ids, size_t count)
{
    struct token_list fresh = {0};
    if (NEW(&fresh.ids, count) == SALVO_OK && count) {
        memcpy(fresh.ids, ids, count * sizeof *ids);
        fresh.count = count;
    }
    memory_free(chat->held.ids);
    chat->held = fresh;
}

enum salvo_status salvo_chat_prompt(
    struct salvo_chat *chat, uint32_t context, int32_t **out_ids, size_t *out_count)
{
    enum salvo_status status = SALVO_OK;
    struct token_list prompt;
    REQUIRE(out_ids);
    REQUIRE(out_count);
    *out_ids = NULL;
    *out_count = 0;
    REQUIRE(chat);
    TRY(chat_make_prompt(chat, &chat->messages, context, (struct token_list){0}, &prompt));
    chat_hold(chat, prompt.ids, prompt.count);
    chat->has_leftovers = false;
    *out_ids = prompt.ids;
    *out_count = prompt.count;
cleanup:
    return status;
}

enum salvo_status salvo_chat_take(
    struct salvo_chat *chat, const int32_t *ids, size_t count, const char *text, size_t size)
{
    enum salvo_status status = SALVO_OK;
    REQUIRE(chat);
    if (count)
        REQUIRE(ids);
    if (size)
        REQUIRE(text);
    const struct salvo_message answer = {.role = "assistant", .content = {text, size}};
    const struct tokenizer *tokenizer;
    TRY(model_tokenizer(chat->model, &tokenizer));
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= tokenizer_vocabulary(tokenizer))
            TRY(fail(SALVO_ERROR_ARGUMENT, "token id %" PRId32 " is not in the vocabulary", ids[i]));
    }
    if (count)
        TRY(RESIZE(&chat->held.ids, chat->held.count + count));
    TRY(message_list_insert(&chat->messages, chat->messages.count, &answer));
    if (count)
        memcpy(chat->held.ids + chat->held.count, ids, count * sizeof *ids);
    chat->held.count += count;
cleanup:
    return status;
}

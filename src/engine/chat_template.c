/* The public functions on chat templates: src/text renders, this file supplies special tokens of the
 * vocabulary, tokenizes the result and finds stop strings. */
#include "engine/chat_template.h"

#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/model.h"
#include "text/template.h"

#include <stdio.h>
#include <string.h>

enum { MOST_WORDS = 7 };

struct salvo_template {
    struct salvo_model *model; /* or NULL */
    const struct tokenizer *tokenizer;
    struct template *template;
    struct template_word words[MOST_WORDS];
    struct buffer word_texts[MOST_WORDS];
    size_t word_count;
    bool *guarded;     /* per token of the vocabulary: content must not become this token */
    char *stop_string; /* NULL: none */
    int32_t stop_id;   /* -1: none */
    const char *stop_strings[1];
    struct salvo_stops stops;
};

/* ---- Special tokens of the vocabulary ---- */

static enum salvo_status add_word(struct salvo_template *chat, const char *name, int32_t id)
{
    enum salvo_status status = SALVO_OK;
    if (id < 0 || (size_t)id >= tokenizer_vocabulary(chat->tokenizer))
        return SALVO_OK;
    struct buffer *text = &chat->word_texts[chat->word_count];
    TRY(tokenizer_piece(chat->tokenizer, id, true, text));
    chat->words[chat->word_count++] = (struct template_word){name, {text->data, text->size}};

cleanup:
    return status;
}

static enum salvo_status read_words(struct salvo_template *chat)
{
    static const char *const others[][2] = {
        {"unk_token", "tokenizer.ggml.unknown_token_id"},
        {"sep_token", "tokenizer.ggml.seperator_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"},
        {"cls_token", "tokenizer.ggml.cls_token_id"},
        {"mask_token", "tokenizer.ggml.mask_token_id"},
    };
    enum salvo_status status = SALVO_OK;
    TRY(add_word(chat, "bos_token", tokenizer_bos(chat->tokenizer)));
    TRY(add_word(chat, "eos_token", tokenizer_eos(chat->tokenizer)));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct salvo_value value;
        bool found = salvo_model_find(chat->model, others[i][1], &value) && value.type == SALVO_U32;
        if (found && value.u <= INT32_MAX)
            TRY(add_word(chat, others[i][0], (int32_t)value.u));
    }

cleanup:
    return status;
}

/* ---- Tokens that content must not become ---- */

/* Whether one of the literals, each terminated by NUL, ends or begins with a part of a token. */
static bool is_at_edge(const struct buffer *literals, const char *part, size_t size, bool ends)
{
    const char *at = literals->data, *end = literals->data + literals->size;
    while (size && at && at < end && (at = memmem(at, (size_t)(end - at), part, size)) != NULL) {
        if (ends ? at + size < end && at[size] == 0 : at == literals->data || at[-1] == 0)
            return true;
        at++;
    }
    return false;
}

/* Whether the template may write a token that contains a role. */
static bool holds_role(const struct buffer *token, const struct buffer *literals)
{
    for (size_t i = 0; template_roles[i]; i++) {
        const size_t size = strlen(template_roles[i]);
        const char *role = token->size ? memmem(token->data, token->size, template_roles[i], size) : NULL;
        const size_t before = role ? (size_t)(role - token->data) : 0;
        if (role && is_at_edge(literals, token->data, before, true) &&
            is_at_edge(literals, role + size, token->size - before - size, false))
            return true;
    }
    return false;
}

/*
 * Vocabularies match user-defined tokens in any text, and some files have "<|im_start|>" and the like among
 * them. If the template writes such a token, it structures conversations: content that became the token could
 * forge further messages.
 */
static enum salvo_status guard_tokens(struct salvo_template *chat)
{
    enum salvo_status status = SALVO_OK;
    struct buffer literals = {0}, token = {0};
    TRY(NEW(&chat->guarded, tokenizer_vocabulary(chat->tokenizer)));
    TRY(template_literals(chat->template, &literals));
    for (size_t i = 0; i < chat->word_count; i++) {
        TRY(buffer_append(&literals, chat->word_texts[i].data, chat->word_texts[i].size));
        TRY(buffer_append(&literals, "", 1));
    }
    TRY(tokenizer_guard(chat->tokenizer, literals.data, literals.size, chat->guarded));
    for (size_t id = 0; id < tokenizer_vocabulary(chat->tokenizer); id++) {
        if (!tokenizer_is_user_defined(chat->tokenizer, (int32_t)id))
            continue;
        token.size = 0;
        TRY(tokenizer_piece(chat->tokenizer, (int32_t)id, true, &token));
        chat->guarded[id] |= holds_role(&token, &literals);
    }

cleanup:
    buffer_free(&literals);
    buffer_free(&token);
    return status;
}

/* ---- Rendering ---- */

/*
 * Content may be a list of parts. A template that does not support lists gets the texts of the parts instead.
 */
static enum salvo_status render(
    const struct salvo_template *chat, const struct salvo_conversation *conversation, struct marked_text *out)
{
    struct template_input input = {
        .conversation = conversation, .words = chat->words, .word_count = chat->word_count};
    enum salvo_status status = template_render(chat->template, &input, out);
    if (status == SALVO_OK || status == SALVO_ERROR_MEMORY || !conversation->json.size)
        return status;
    input.joins_parts = true;
    return template_render(chat->template, &input, out);
}

static size_t count_pieces(const struct marked_text *marked)
{
    size_t count = 0;
    for (size_t i = 0; i < marked->text.size; i++)
        count += i == 0 || marked->marks.data[i] != marked->marks.data[i - 1];
    return count;
}

/* One allocation, freed by one salvo_free. */
static enum salvo_status make_prompt(const struct marked_text *marked, struct salvo_prompt **out)
{
    enum salvo_status status = SALVO_OK;
    size_t count = count_pieces(marked), size = marked->text.size;
    struct salvo_prompt *prompt;
    unsigned char *memory = NULL;
    TRY(memory_new(&memory, 1, sizeof *prompt + count * sizeof *prompt->pieces + size + 1));
    prompt = (void *)memory;
    struct salvo_piece *pieces = (void *)(memory + sizeof *prompt);
    char *text = (char *)(pieces + count);
    if (size)
        memcpy(text, marked->text.data, size);
    *prompt = (struct salvo_prompt){text, size, pieces, count, sizeof *pieces};
    for (size_t begin = 0, end; begin < size; begin = end) {
        char mark = marked->marks.data[begin];
        for (end = begin + 1; end < size && marked->marks.data[end] == mark; end++)
            continue;
        *pieces++ = (struct salvo_piece){text + begin, end - begin, mark != 0};
    }
    *out = prompt;

cleanup:
    return status;
}

/* The caller's conversation with messages of this version's struct; *out_copy is freed with memory_free. */
static enum salvo_status read_conversation(
    const struct salvo_conversation *given, struct salvo_conversation *out, struct salvo_message **out_copy)
{
    enum salvo_status status = SALVO_OK;
    *out_copy = NULL;
    TRY(options_read("salvo_conversation", given, sizeof *out, out));
    TRY(messages_read(out->messages, out->message_count, out->message_size, out_copy, &out->messages));
    if (out->json.size && !out->json.data)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the conversation's json of %zu bytes is NULL", out->json.size));
cleanup:
    return status;
}

enum salvo_status salvo_template_render(
    const struct salvo_template *chat, const struct salvo_conversation *given, struct salvo_prompt **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_conversation conversation;
    struct salvo_message *copy = NULL;
    struct marked_text marked = {0};
    REQUIRE(out);
    *out = NULL;
    REQUIRE(chat);
    TRY(read_conversation(given, &conversation, &copy));
    TRY(render(chat, &conversation, &marked));
    TRY(make_prompt(&marked, out));

cleanup:
    memory_free(copy);
    marked_text_free(&marked);
    return status;
}

static enum salvo_status tokenize(
    const struct salvo_template *chat, const struct marked_text *marked, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    int32_t bos = tokenizer_bos(chat->tokenizer);
    const struct guarded_text text = {
        marked->text.data, marked->marks.data, marked->text.size, chat->guarded};
    TRY(tokenizer_encode_guarded(chat->tokenizer, &text,
        TOKENIZE_SPECIAL | (tokenizer_adds_bos(chat->tokenizer) ? TOKENIZE_BOS : 0), list));
    bool twice = tokenizer_adds_bos(chat->tokenizer) && list->count > 1 && list->ids[1] == bos;
    if (twice)
        memmove(list->ids, list->ids + 1, --list->count * sizeof *list->ids);

cleanup:
    return status;
}

enum salvo_status salvo_template_tokens(const struct salvo_template *chat,
    const struct salvo_conversation *given, int32_t **out_ids, size_t *out_count)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_conversation conversation;
    struct salvo_message *copy = NULL;
    struct marked_text marked = {0};
    struct token_list list = {0};
    REQUIRE(out_ids);
    REQUIRE(out_count);
    *out_ids = NULL;
    *out_count = 0;
    REQUIRE(chat);
    if (!chat->model)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a template without a model has no tokens"));
    TRY(read_conversation(given, &conversation, &copy));
    TRY(render(chat, &conversation, &marked));
    TRY(tokenize(chat, &marked, &list));
    TRY(gguf_check(model_gguf(chat->model)));
    *out_ids = list.ids;
    *out_count = list.count;
    list.ids = NULL;

cleanup:
    memory_free(copy);
    marked_text_free(&marked);
    token_list_free(&list);
    return status;
}

/* ---- The end of an answer ---- */

/*
 * Renders an answer and a message after it: the text between them ends the answer. The stop is its first
 * control token, or the text if it has none.
 */
static enum salvo_status find_stops(struct salvo_template *chat)
{
    static const char first[] = "first0", answer[] = "answer0", second[] = "second0";
    static const struct salvo_message messages[] = {
        {"user", {first, sizeof first - 1}, NULL},
        {"assistant", {answer, sizeof answer - 1}, NULL},
        {"user", {second, sizeof second - 1}, NULL},
    };
    enum salvo_status status = SALVO_OK;
    struct marked_text marked = {0};
    struct token_list list = {0};
    const struct salvo_conversation conversation = {.messages = messages, .message_count = 3};
    status = render(chat, &conversation, &marked);
    if (status != SALVO_OK) { /* the template rejects this conversation: no stop is known */
        status = status == SALVO_ERROR_MEMORY ? status : SALVO_OK;
        goto cleanup;
    }
    if (!marked.text.size)
        goto cleanup;
    const char *end = marked.text.data + marked.text.size;
    const char *begin = memmem(marked.text.data, marked.text.size, answer, sizeof answer - 1);
    const char *next = begin ? memmem(begin, (size_t)(end - begin), second, sizeof second - 1) : NULL;
    if (!next)
        goto cleanup;
    begin += sizeof answer - 1;
    const struct guarded_text between = {
        begin, marked.marks.data + (begin - marked.text.data), (size_t)(next - begin), chat->guarded};
    TRY(tokenizer_encode_guarded(chat->tokenizer, &between, TOKENIZE_SPECIAL, &list));
    /* Where answers have channels, <|end|> is the end of a message, of which an answer has several. */
    const bool has_channels =
        memmem(marked.text.data, marked.text.size, "<|channel|>final<|message|>answer0", 34) != NULL;
    for (size_t i = 0; i < list.count && chat->stop_id < 0; i++) {
        if (tokenizer_is_control(chat->tokenizer, list.ids[i]) &&
            (!has_channels || tokenizer_is_end(chat->tokenizer, list.ids[i])))
            chat->stop_id = list.ids[i];
    }
    while (next > begin && (next[-1] == ' ' || next[-1] == '\n'))
        next--;
    if (chat->stop_id < 0 && next > begin) {
        TRY(NEW(&chat->stop_string, (size_t)(next - begin) + 1));
        memcpy(chat->stop_string, begin, (size_t)(next - begin));
        chat->stop_strings[0] = chat->stop_string;
    }

cleanup:
    marked_text_free(&marked);
    token_list_free(&list);
    return status;
}

const struct salvo_stops *salvo_template_stops(const struct salvo_template *chat)
{
    return chat ? &chat->stops : NULL;
}

size_t chat_template_before_end(const struct salvo_template *chat, struct salvo_text text)
{
    struct token_list list = {0};
    size_t size = text.size;
    if (chat->tokenizer && text.size &&
        tokenizer_encode(chat->tokenizer, text.data, text.size, TOKENIZE_SPECIAL, &list) == SALVO_OK) {
        for (size_t i = 0; i < list.count; i++) {
            struct buffer name = {0};
            if (tokenizer_is_end(chat->tokenizer, list.ids[i]) &&
                tokenizer_piece(chat->tokenizer, list.ids[i], true, &name) == SALVO_OK && name.size) {
                const char *found = memmem(text.data, size, name.data, name.size);
                size = found ? (size_t)(found - text.data) : size;
            }
            buffer_free(&name);
        }
    }
    token_list_free(&list);
    return size;
}

/* ---- Open and close ---- */

/* The model's template; the built-in one if the file has none, or only the name of one known to other
 * engines. */
static struct salvo_text model_template(const struct salvo_model *model)
{
    static const char rwkv_world[] = "rwkv-world";
    struct salvo_value value;
    bool own = salvo_model_find(model, "tokenizer.chat_template", &value) && value.type == SALVO_STRING;
    if (own && value.text.size == strlen(rwkv_world))
        own = memcmp(value.text.data, rwkv_world, value.text.size) != 0;
    return own ? value.text : (struct salvo_text){template_plain, strlen(template_plain)};
}

enum salvo_status salvo_template_open(
    struct salvo_model *model, const char *text, size_t size, struct salvo_template **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_template *chat = NULL;
    REQUIRE(out);
    *out = NULL;
    if (!model && !text)
        TRY(fail(SALVO_ERROR_ARGUMENT, "neither a model nor a template was given"));
    TRY(NEW(&chat, 1));
    chat->model = model;
    chat->stop_id = -1;
    struct salvo_text source = text ? (struct salvo_text){text, size} : model_template(model);
    TRY(template_open(source.data, source.size, &chat->template));
    if (model) {
        TRY(model_tokenizer(model, &chat->tokenizer));
        TRY(read_words(chat));
        TRY(guard_tokens(chat));
        TRY(find_stops(chat));
        TRY(gguf_check(model_gguf(model)));
    }
    chat->stops = (struct salvo_stops){
        .size = sizeof chat->stops,
        .strings = chat->stop_strings,
        .string_count = chat->stop_string != NULL,
        .ids = &chat->stop_id,
        .id_count = chat->stop_id >= 0,
    };
    *out = chat;

cleanup:
    if (status != SALVO_OK)
        salvo_template_close(chat);
    return status;
}

void salvo_template_close(struct salvo_template *chat)
{
    if (!chat)
        return;
    for (size_t i = 0; i < MOST_WORDS; i++)
        buffer_free(&chat->word_texts[i]);
    template_close(chat->template);
    memory_free(chat->guarded);
    memory_free(chat->stop_string);
    memory_free(chat);
}

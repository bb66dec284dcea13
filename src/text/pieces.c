#include "text/pieces.h"

#include "text/unicode.h"

#include <string.h>

/* ---- Byte-level BPE ---------------------------------------------------------------------------------- */

/*
 * The alphabet: printable Latin-1 characters stand for themselves, the other 68 bytes, in order, for U+0100
 * and on. -1 for a character that is none of these.
 */
static int byte_of_letter(uint32_t code)
{
    if ((code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xff && code != 0xad))
        return (int)code;
    if (code >= 0x100 && code <= 0x120)
        return (int)(code - 0x100); /* 0x00 to 0x20 */
    if (code >= 0x121 && code <= 0x142)
        return (int)(code - 0x121 + 0x7f); /* 0x7f to 0xa0 */
    return code == 0x143 ? 0xad : -1;
}

enum salvo_status byte_level_decode(struct salvo_text text, struct buffer *out, bool *valid)
{
    const char *at = text.data, *end = text.data + text.size;
    enum salvo_status status = SALVO_OK;
    out->size = 0;
    *valid = true;
    TRY(buffer_reserve(out, text.size));
    while (at != end && *valid) {
        struct character letter = unicode_at(at, end);
        int byte = byte_of_letter(letter.code);
        at += letter.size;
        *valid = byte >= 0;
        out->data[out->size++] = (char)byte;
    }

cleanup:
    return status;
}

/* ---- SentencePiece ----------------------------------------------------------------------------------- */

static int hexadecimal_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

int byte_token_value(struct salvo_text text)
{
    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    int high = hexadecimal_digit(text.data[3]), low = hexadecimal_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

size_t space_mark_size(const char *at, const char *end)
{
    static const char mark[] = "\xe2\x96\x81";
    size_t size = sizeof mark - 1;
    return (size_t)(end - at) >= size && memcmp(at, mark, size) == 0 ? size : 0;
}

static enum salvo_status space_mark_decode(struct salvo_text text, struct buffer *out)
{
    enum salvo_status status = SALVO_OK;
    out->size = 0;
    TRY(buffer_reserve(out, text.size));
    for (size_t i = 0; i < text.size;) {
        size_t mark = space_mark_size(text.data + i, text.data + text.size);
        out->data[out->size++] = mark ? ' ' : text.data[i];
        i += mark ? mark : 1;
    }

cleanup:
    return status;
}

/* ---- RWKV -------------------------------------------------------------------------------------------- */

/*
 * \t \n \r \xHH and a backslash before anything else, which stands for itself, as in Python's repr.
 */
static enum salvo_status escapes_decode(struct salvo_text text, struct buffer *out)
{
    enum salvo_status status = SALVO_OK;
    const char *at = text.data, *end = text.data + text.size;
    out->size = 0;
    TRY(buffer_reserve(out, text.size));
    while (at != end) {
        char byte = *at++;
        if (byte == '\\' && at != end) {
            byte = *at++;
            int high = end - at >= 2 ? hexadecimal_digit(at[0]) : -1,
                low = high < 0 ? -1 : hexadecimal_digit(at[1]);
            if (byte == 'x' && low >= 0) {
                byte = (char)(high << 4 | low);
                at += 2;
            } else if (byte == 't') {
                byte = '\t';
            } else if (byte == 'n') {
                byte = '\n';
            } else if (byte == 'r') {
                byte = '\r';
            }
        }
        out->data[out->size++] = byte;
    }

cleanup:
    return status;
}

/* ---- All --------------------------------------------------------------------------------------------- */

/* plain says whether encoding can produce the text. */
static enum salvo_status decode_text(
    enum vocabulary_model model, const struct token *token, struct buffer *out, bool *plain)
{
    enum salvo_status status = SALVO_OK;
    int byte = byte_token_value(token->text);
    *plain = true;
    switch (model) {
    case VOCABULARY_BPE:
        TRY(byte_level_decode(token->text, out, plain));
        break;
    case VOCABULARY_SPM:
        TRY(space_mark_decode(token->text, out));
        *plain = !memchr(token->text.data, ' ', token->text.size); /* blanks in the text become marks */
        if (token->type == TOKEN_BYTE && byte >= 0) {
            out->data[0] = (char)byte;
            out->size = 1;
        }
        break;
    case VOCABULARY_RWKV:
        TRY(escapes_decode(token->text, out));
        *plain = token->type != TOKEN_UNUSED; /* padding up to a round number */
        break;
    }

cleanup:
    return status;
}

enum salvo_status pieces_decode(struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    struct buffer decoded = {0};
    for (size_t i = 0; i < vocabulary->count; i++) {
        struct token *token = &vocabulary->tokens[i];
        if (token_is_control(token) || token->text.size == 0)
            continue;
        TRY(decode_text(vocabulary->model, token, &decoded, &token->plain));
        if (token->type == TOKEN_BYTE)
            token->plain = false;
        bool same =
            decoded.size == token->text.size && memcmp(decoded.data, token->text.data, decoded.size) == 0;
        bool verbatim = token->type == TOKEN_USER_DEFINED && vocabulary->model == VOCABULARY_BPE;
        if (verbatim)
            token->plain = same;
        if (same || verbatim || (vocabulary->model == VOCABULARY_BPE && !token->plain))
            continue;
        char *copy;
        TRY(arena_copy_bytes(&vocabulary->arena, decoded.data, decoded.size, &copy));
        token->piece = (struct salvo_text){copy, decoded.size};
    }

cleanup:
    buffer_free(&decoded);
    return status;
}

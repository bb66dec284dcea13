#include "grammar/json_text.h"

#include <string.h>

static bool is_hex(unsigned byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

static enum json_text_state after_body(unsigned byte)
{
    if (byte == '\\')
        return TEXT_ESCAPE;
    if (byte < 0x80)
        return byte >= 0x20 && byte != '"' ? TEXT_BODY : TEXT_DEAD;
    if (byte < 0xC2 || byte > 0xF4)
        return TEXT_DEAD;
    if (byte < 0xE0)
        return TEXT_MORE_1;
    switch (byte) {
    case 0xE0:
        return TEXT_AFTER_E0;
    case 0xED:
        return TEXT_AFTER_ED;
    case 0xF0:
        return TEXT_AFTER_F0;
    case 0xF4:
        return TEXT_AFTER_F4;
    default:
        return byte < 0xF0 ? TEXT_MORE_2 : TEXT_MORE_3;
    }
}

static enum json_text_state within(unsigned byte, unsigned first, unsigned last, enum json_text_state next)
{
    return byte >= first && byte <= last ? next : TEXT_DEAD;
}

static enum json_text_state digit(unsigned byte, enum json_text_state next)
{
    return is_hex(byte) ? next : TEXT_DEAD;
}

enum json_text_state json_text_next(enum json_text_state state, unsigned byte)
{
    switch (state) {
    case TEXT_BODY:
        return after_body(byte);
    case TEXT_ESCAPE:
        return byte == 'u'                                              ? TEXT_HEX_4
               : byte && byte < 0x80 && strchr("\"\\/bfnrt", (int)byte) ? TEXT_BODY
                                                                        : TEXT_DEAD;
    case TEXT_HEX_4:
        return byte == 'd' || byte == 'D' ? TEXT_HEX_D : digit(byte, TEXT_HEX_3);
    case TEXT_HEX_3:
        return digit(byte, TEXT_HEX_2);
    case TEXT_HEX_2:
        return digit(byte, TEXT_HEX_1);
    case TEXT_HEX_1:
        return digit(byte, TEXT_BODY);
    case TEXT_HEX_D:
        if (byte >= '0' && byte <= '7')
            return TEXT_HEX_2;
        return byte && byte < 0x80 && strchr("89abAB", (int)byte) ? TEXT_HIGH_2 : TEXT_DEAD;
    case TEXT_HIGH_2:
        return digit(byte, TEXT_HIGH_1);
    case TEXT_HIGH_1:
        return digit(byte, TEXT_LOW);
    case TEXT_LOW:
        return byte == '\\' ? TEXT_LOW_U : TEXT_DEAD;
    case TEXT_LOW_U:
        return byte == 'u' ? TEXT_LOW_4 : TEXT_DEAD;
    case TEXT_LOW_4:
        return byte == 'd' || byte == 'D' ? TEXT_LOW_D : TEXT_DEAD;
    case TEXT_LOW_D:
        return byte && byte < 0x80 && strchr("cdefCDEF", (int)byte) ? TEXT_HEX_2 : TEXT_DEAD;
    case TEXT_MORE_1:
        return within(byte, 0x80, 0xBF, TEXT_BODY);
    case TEXT_MORE_2:
        return within(byte, 0x80, 0xBF, TEXT_MORE_1);
    case TEXT_MORE_3:
        return within(byte, 0x80, 0xBF, TEXT_MORE_2);
    case TEXT_AFTER_E0:
        return within(byte, 0xA0, 0xBF, TEXT_MORE_1);
    case TEXT_AFTER_ED:
        return within(byte, 0x80, 0x9F, TEXT_MORE_1);
    case TEXT_AFTER_F0:
        return within(byte, 0x90, 0xBF, TEXT_MORE_2);
    case TEXT_AFTER_F4:
        return within(byte, 0x80, 0x8F, TEXT_MORE_2);
    case TEXT_DEAD:
    case TEXT_STATES:
        break;
    }
    return TEXT_DEAD;
}

bool json_text_kind_begins(unsigned byte)
{
    static const unsigned char first[] =
        "\x20\x22\x23\x2F\x30\x38\x3A\x41\x43\x44\x45\x47\x5C\x5D\x61\x62\x63"
        "\x64\x65\x66\x67\x6E\x6F\x72\x73\x74\x75\x76\x80\x90\xA0\xC0\xC2\xE0"
        "\xE1\xED\xEE\xF0\xF1\xF4\xF5";
    return byte == 0 || memchr(first, (int)byte, sizeof first - 1) != NULL;
}

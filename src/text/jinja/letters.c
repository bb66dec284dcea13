#include "text/jinja/letters.h"

#include <utf8proc.h>

/* ---- Classes ----------------------------------------------------------------------------------------- */

static utf8proc_category_t category_of(uint32_t character)
{
    return utf8proc_category((utf8proc_int32_t)CHAR_CODE(character));
}

bool char_is_space(uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    if (code < 0x80)
        return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool char_is_line_end(uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

size_t string_line_end(struct string string, size_t at, size_t *next)
{
    size_t end = at;
    while (end < string.size && !char_is_line_end(string.chars[end]))
        end++;
    *next = end + (end < string.size);
    if (*next < string.size && CHAR_CODE(string.chars[end]) == '\r' && CHAR_CODE(string.chars[*next]) == '\n')
        ++*next;
    return end;
}

bool char_is_printable(uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    if (code >= 0x20 && code < 0x7f)
        return true;
    switch (category_of(character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool char_is_alpha(uint32_t character)
{
    utf8proc_category_t category = category_of(character);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool char_is_decimal(uint32_t character)
{
    return category_of(character) == UTF8PROC_CATEGORY_ND;
}

bool char_is_word(uint32_t character)
{
    utf8proc_category_t category = category_of(character);
    return CHAR_CODE(character) == '_' || char_is_alpha(character) ||
           (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

static uint32_t simple_case(uint32_t code, enum letter_case wanted)
{
    utf8proc_int32_t signed_code = (utf8proc_int32_t)code;
    switch (wanted) {
    case CASE_UPPER:
        return (uint32_t)utf8proc_toupper(signed_code);
    case CASE_LOWER:
        return (uint32_t)utf8proc_tolower(signed_code);
    case CASE_TITLE:
        return (uint32_t)utf8proc_totitle(signed_code);
    }
    return code;
}

bool char_is_title(uint32_t character)
{
    return category_of(character) == UTF8PROC_CATEGORY_LT;
}

bool char_is_upper(uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    utf8proc_category_t category = category_of(character);
    return category == UTF8PROC_CATEGORY_LU ||
           (category != UTF8PROC_CATEGORY_LT && simple_case(code, CASE_LOWER) != code);
}

bool char_is_lower(uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    utf8proc_category_t category = category_of(character);
    return category == UTF8PROC_CATEGORY_LL || code == 0xaa || code == 0xba ||
           (category != UTF8PROC_CATEGORY_LU && category != UTF8PROC_CATEGORY_LT &&
               simple_case(code, CASE_UPPER) != code);
}

/* ---- Case -------------------------------------------------------------------------------------------- */

/* Letters whose upper case is several characters, in order. From Unicode's SpecialCasing. */
static const struct {
    uint16_t code, upper[3];
} several[] = {{0xdf, {0x53, 0x53}}, {0x149, {0x2bc, 0x4e}}, {0x1f0, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}}, {0x3b0, {0x3a5, 0x308, 0x301}}, {0x587, {0x535, 0x552}},
    {0x1e96, {0x48, 0x331}}, {0x1e97, {0x54, 0x308}}, {0x1e98, {0x57, 0x30a}}, {0x1e99, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}}, {0x1f50, {0x3a5, 0x313}}, {0x1f52, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}}, {0x1f56, {0x3a5, 0x313, 0x342}}, {0x1f80, {0x1f08, 0x399}},
    {0x1f81, {0x1f09, 0x399}}, {0x1f82, {0x1f0a, 0x399}}, {0x1f83, {0x1f0b, 0x399}},
    {0x1f84, {0x1f0c, 0x399}}, {0x1f85, {0x1f0d, 0x399}}, {0x1f86, {0x1f0e, 0x399}},
    {0x1f87, {0x1f0f, 0x399}}, {0x1f88, {0x1f08, 0x399}}, {0x1f89, {0x1f09, 0x399}},
    {0x1f8a, {0x1f0a, 0x399}}, {0x1f8b, {0x1f0b, 0x399}}, {0x1f8c, {0x1f0c, 0x399}},
    {0x1f8d, {0x1f0d, 0x399}}, {0x1f8e, {0x1f0e, 0x399}}, {0x1f8f, {0x1f0f, 0x399}},
    {0x1f90, {0x1f28, 0x399}}, {0x1f91, {0x1f29, 0x399}}, {0x1f92, {0x1f2a, 0x399}},
    {0x1f93, {0x1f2b, 0x399}}, {0x1f94, {0x1f2c, 0x399}}, {0x1f95, {0x1f2d, 0x399}},
    {0x1f96, {0x1f2e, 0x399}}, {0x1f97, {0x1f2f, 0x399}}, {0x1f98, {0x1f28, 0x399}},
    {0x1f99, {0x1f29, 0x399}}, {0x1f9a, {0x1f2a, 0x399}}, {0x1f9b, {0x1f2b, 0x399}},
    {0x1f9c, {0x1f2c, 0x399}}, {0x1f9d, {0x1f2d, 0x399}}, {0x1f9e, {0x1f2e, 0x399}},
    {0x1f9f, {0x1f2f, 0x399}}, {0x1fa0, {0x1f68, 0x399}}, {0x1fa1, {0x1f69, 0x399}},
    {0x1fa2, {0x1f6a, 0x399}}, {0x1fa3, {0x1f6b, 0x399}}, {0x1fa4, {0x1f6c, 0x399}},
    {0x1fa5, {0x1f6d, 0x399}}, {0x1fa6, {0x1f6e, 0x399}}, {0x1fa7, {0x1f6f, 0x399}},
    {0x1fa8, {0x1f68, 0x399}}, {0x1fa9, {0x1f69, 0x399}}, {0x1faa, {0x1f6a, 0x399}},
    {0x1fab, {0x1f6b, 0x399}}, {0x1fac, {0x1f6c, 0x399}}, {0x1fad, {0x1f6d, 0x399}},
    {0x1fae, {0x1f6e, 0x399}}, {0x1faf, {0x1f6f, 0x399}}, {0x1fb2, {0x1fba, 0x399}}, {0x1fb3, {0x391, 0x399}},
    {0x1fb4, {0x386, 0x399}}, {0x1fb6, {0x391, 0x342}}, {0x1fb7, {0x391, 0x342, 0x399}},
    {0x1fbc, {0x391, 0x399}}, {0x1fc2, {0x1fca, 0x399}}, {0x1fc3, {0x397, 0x399}}, {0x1fc4, {0x389, 0x399}},
    {0x1fc6, {0x397, 0x342}}, {0x1fc7, {0x397, 0x342, 0x399}}, {0x1fcc, {0x397, 0x399}},
    {0x1fd2, {0x399, 0x308, 0x300}}, {0x1fd3, {0x399, 0x308, 0x301}}, {0x1fd6, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}}, {0x1fe2, {0x3a5, 0x308, 0x300}}, {0x1fe3, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}}, {0x1fe6, {0x3a5, 0x342}}, {0x1fe7, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}}, {0x1ff3, {0x3a9, 0x399}}, {0x1ff4, {0x38f, 0x399}}, {0x1ff6, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}}, {0x1ffc, {0x3a9, 0x399}}, {0xfb00, {0x46, 0x46}}, {0xfb01, {0x46, 0x49}},
    {0xfb02, {0x46, 0x4c}}, {0xfb03, {0x46, 0x46, 0x49}}, {0xfb04, {0x46, 0x46, 0x4c}},
    {0xfb05, {0x53, 0x54}}, {0xfb06, {0x53, 0x54}}, {0xfb13, {0x544, 0x546}}, {0xfb14, {0x544, 0x535}},
    {0xfb15, {0x544, 0x53b}}, {0xfb16, {0x54e, 0x546}}, {0xfb17, {0x544, 0x53d}}};

static const uint16_t *find_several(uint32_t code)
{
    size_t low = 0, high = sizeof several / sizeof *several;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (several[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof several / sizeof *several && several[low].code == code ? several[low].upper : NULL;
}

enum salvo_status text_letter(struct text *text, uint32_t character, enum letter_case wanted)
{
    enum salvo_status status = SALVO_OK;
    uint32_t code = CHAR_CODE(character), mark = character & CHAR_DATA;
    if (code < 0x80) {
        bool changes = wanted == CASE_LOWER ? code >= 'A' && code <= 'Z' : code >= 'a' && code <= 'z';
        return text_char(text, (changes ? code ^ 0x20 : code) | mark);
    }
    if (wanted == CASE_LOWER && code == 0x130) {
        TRY(text_char(text, 'i' | mark));
        return text_char(text, 0x307 | mark);
    }
    const uint16_t *upper = wanted == CASE_LOWER ? NULL : find_several(code);
    if (!upper || (wanted == CASE_TITLE && simple_case(code, CASE_TITLE) != code && code != 0xdf))
        return text_char(text, simple_case(code, wanted) | mark);
    for (size_t i = 0; i < 3 && upper[i]; i++) {
        uint32_t part = wanted == CASE_TITLE && i ? simple_case(upper[i], CASE_LOWER) : upper[i];
        TRY(text_char(text, part | mark));
    }

cleanup:
    return status;
}

static bool is_cased(uint32_t character)
{
    return char_is_upper(character) || char_is_lower(character) || char_is_title(character);
}

/* A capital sigma after a letter and before none becomes a final sigma. */
static bool is_final_sigma(struct string string, size_t at)
{
    return CHAR_CODE(string.chars[at]) == 0x3a3 && at > 0 && is_cased(string.chars[at - 1]) &&
           (at + 1 == string.size || !is_cased(string.chars[at + 1]));
}

static enum salvo_status lower_at(struct text *text, struct string string, size_t at)
{
    if (is_final_sigma(string, at))
        return text_char(text, 0x3c2 | (string.chars[at] & CHAR_DATA));
    return text_letter(text, string.chars[at], CASE_LOWER);
}

enum salvo_status text_in_case(struct text *text, struct string string, enum letter_case wanted)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < string.size; i++) {
        if (wanted == CASE_LOWER)
            TRY(lower_at(text, string, i));
        else
            TRY(text_letter(text, string.chars[i], wanted));
    }

cleanup:
    return status;
}

enum salvo_status text_in_titles(struct text *text, struct string string)
{
    enum salvo_status status = SALVO_OK;
    bool inside = false;
    for (size_t i = 0; i < string.size; i++) {
        if (inside)
            TRY(lower_at(text, string, i));
        else
            TRY(text_letter(text, string.chars[i], CASE_TITLE));
        inside = is_cased(string.chars[i]);
    }

cleanup:
    return status;
}

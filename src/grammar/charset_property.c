/*
 * Classes of Unicode: general categories, by their short and long names, and the few other properties that
 * follow from them.
 */
#include "grammar/charset.h"

#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

#define ONE(category) (UINT32_C(1) << UTF8PROC_CATEGORY_##category)
#define CASED         (ONE(LU) | ONE(LL) | ONE(LT))
#define LETTERS       (CASED | ONE(LM) | ONE(LO))
#define MARKS         (ONE(MN) | ONE(MC) | ONE(ME))
#define NUMBERS       (ONE(ND) | ONE(NL) | ONE(NO))
#define PUNCTUATION   (ONE(PC) | ONE(PD) | ONE(PS) | ONE(PE) | ONE(PI) | ONE(PF) | ONE(PO))
#define SYMBOLS       (ONE(SM) | ONE(SC) | ONE(SK) | ONE(SO))
#define SEPARATORS    (ONE(ZS) | ONE(ZL) | ONE(ZP))
#define ASSIGNED      (LETTERS | MARKS | NUMBERS | PUNCTUATION | SYMBOLS | SEPARATORS | ASSIGNED_OTHERS)
/* Surrogates are no characters; nothing spells them. */
#define ASSIGNED_OTHERS (ONE(CC) | ONE(CF) | ONE(CO) | ONE(CS))

static const struct {
    const char *names[3];
    uint32_t categories;
} properties[] = {
    {{"L", "Letter"}, LETTERS},
    {{"LC", "Cased_Letter"}, CASED},
    {{"Lu", "Uppercase_Letter"}, ONE(LU)},
    {{"Ll", "Lowercase_Letter"}, ONE(LL)},
    {{"Lt", "Titlecase_Letter"}, ONE(LT)},
    {{"Lm", "Modifier_Letter"}, ONE(LM)},
    {{"Lo", "Other_Letter"}, ONE(LO)},
    {{"M", "Mark", "Combining_Mark"}, MARKS},
    {{"Mn", "Nonspacing_Mark"}, ONE(MN)},
    {{"Mc", "Spacing_Mark"}, ONE(MC)},
    {{"Me", "Enclosing_Mark"}, ONE(ME)},
    {{"N", "Number"}, NUMBERS},
    {{"Nd", "Decimal_Number", "digit"}, ONE(ND)},
    {{"Nl", "Letter_Number"}, ONE(NL)},
    {{"No", "Other_Number"}, ONE(NO)},
    {{"P", "Punctuation", "punct"}, PUNCTUATION},
    {{"Pc", "Connector_Punctuation"}, ONE(PC)},
    {{"Pd", "Dash_Punctuation"}, ONE(PD)},
    {{"Ps", "Open_Punctuation"}, ONE(PS)},
    {{"Pe", "Close_Punctuation"}, ONE(PE)},
    {{"Pi", "Initial_Punctuation"}, ONE(PI)},
    {{"Pf", "Final_Punctuation"}, ONE(PF)},
    {{"Po", "Other_Punctuation"}, ONE(PO)},
    {{"S", "Symbol"}, SYMBOLS},
    {{"Sm", "Math_Symbol"}, ONE(SM)},
    {{"Sc", "Currency_Symbol"}, ONE(SC)},
    {{"Sk", "Modifier_Symbol"}, ONE(SK)},
    {{"So", "Other_Symbol"}, ONE(SO)},
    {{"Z", "Separator"}, SEPARATORS},
    {{"Zs", "Space_Separator"}, ONE(ZS)},
    {{"Zl", "Line_Separator"}, ONE(ZL)},
    {{"Zp", "Paragraph_Separator"}, ONE(ZP)},
    {{"C", "Other"}, ASSIGNED_OTHERS | ONE(CN)},
    {{"Cc", "Control", "cntrl"}, ONE(CC)},
    {{"Cf", "Format"}, ONE(CF)},
    {{"Co", "Private_Use"}, ONE(CO)},
    {{"Cs", "Surrogate"}, ONE(CS)},
    {{"Cn", "Unassigned"}, ONE(CN)},
    {{"Any"}, ASSIGNED | ONE(CN)},
    {{"Assigned"}, ASSIGNED},
};

/* All characters in order, in runs of one category. The table is made once, because that takes milliseconds.
 */
enum { MOST_RUNS = 1 << 14 };

static struct {
    uint32_t first[MOST_RUNS + 1]; /* first[count] is behind the last character */
    uint8_t category[MOST_RUNS];
    uint32_t count;
} runs;

static pthread_once_t runs_once = PTHREAD_ONCE_INIT;

static void find_runs(void)
{
    for (uint32_t c = 0; c <= UNICODE_LAST; c++) {
        const uint8_t category = (uint8_t)utf8proc_category((utf8proc_int32_t)c);
        if (runs.count > 0 && runs.category[runs.count - 1] == category)
            continue;
        if (runs.count == MOST_RUNS) { /* no version of Unicode comes near it */
            runs.count = 0;
            return;
        }
        runs.first[runs.count] = c;
        runs.category[runs.count++] = category;
    }
    runs.first[runs.count] = UNICODE_LAST + 1;
}

static bool is_name(struct salvo_text text, const char *name)
{
    return name && strlen(name) == text.size && memcmp(text.data, name, text.size) == 0;
}

static uint32_t categories_of(struct salvo_text name)
{
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        for (size_t k = 0; k < 3; k++) {
            if (is_name(name, properties[i].names[k]))
                return properties[i].categories;
        }
    }
    return 0;
}

bool charset_add_property(struct expr_pool *pool, struct charset *set, struct salvo_text name)
{
    static const char *const prefixes[] = {"General_Category=", "gc="};
    if (is_name(name, "ASCII")) {
        charset_add(pool, set, 0, 0x7F);
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        const size_t size = strlen(prefixes[i]);
        if (name.size > size && memcmp(name.data, prefixes[i], size) == 0)
            name = (struct salvo_text){name.data + size, name.size - size};
    }
    const uint32_t categories = categories_of(name);
    pthread_once(&runs_once, find_runs);
    for (uint32_t i = 0; i < runs.count; i++) {
        if (categories >> runs.category[i] & 1)
            charset_add(pool, set, runs.first[i], runs.first[i + 1] - 1);
    }
    return categories != 0 && runs.count > 0;
}

/* The whole patterns: GPT-2's, Llama 3's and the many that vary it. */
#include "text/split_stages.h"

/* Neither white space, letter nor number. */
enum { CLASS_REST = CLASS_PUNCTUATION | CLASS_SYMBOL | CLASS_MARK | CLASS_OTHER };

size_t white_space_piece(const char *at, const char *end, bool lines)
{
    const char *last = at, *after_line = NULL, *stop = at;
    for (;;) {
        struct character next = unicode_at(stop, end);
        if (next.class != CLASS_SPACE)
            break;
        last = stop;
        stop += next.size;
        if (is_line_end(next.code))
            after_line = stop;
    }
    if (lines && after_line)
        return (size_t)(after_line - at);
    if (stop != end && last != at)
        return (size_t)(last - at);
    return (size_t)(stop - at);
}

/* 's 't 're 've 'm 'll 'd right here: its size, or 0. */
static size_t contraction(const char *at, const char *end, bool any_case)
{
    unsigned char fold = any_case ? 0x20 : 0;
    if (end - at < 2 || *at != '\'')
        return 0;
    char first = (char)(at[1] | fold);
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    if (end - at < 3)
        return 0;
    char second = (char)(at[2] | fold);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
        return 3;
    return 0;
}

size_t stage_gpt2(const char *at, const char *end)
{
    size_t size = contraction(at, end, false);
    if (size)
        return size;
    struct character body = unicode_at(at, end);
    const char *begin = at;
    if (body.code == ' ') {
        begin++;
        body = unicode_at(begin, end);
    }
    const char *stop = begin + body.size;
    if (body.class == CLASS_LETTER)
        return (size_t)(skip_classes(stop, end, CLASS_LETTER) - at);
    if (body.class == CLASS_NUMBER)
        return (size_t)(skip_classes(stop, end, CLASS_NUMBER) - at);
    if (body.class & CLASS_REST)
        return (size_t)(skip_classes(stop, end, CLASS_REST) - at);
    return white_space_piece(at, end, false);
}

/* Parameters of the patterns that derive from Llama 3's. */
struct word_rules {
    unsigned max_digits; /* 0: any number */
    bool contractions;   /* they are pieces of their own */
    bool marks_in_words; /* combining marks count as letters */
    bool by_case;        /* a word ends where a small letter is followed by a capital */
    bool word_takes_contraction;
    bool rest_takes_lines, rest_takes_slashes; /* a run of punctuation continues with these */
};

static bool is_small_ascii(struct character character)
{
    return character.code >= 'a' && character.code <= 'z';
}

static bool is_capital_ascii(struct character character)
{
    return character.code >= 'A' && character.code <= 'Z';
}

/*
 * The end of capitals and then small letters: [^a-z]*[^A-Z]+|[^a-z]+[^A-Z]* over letters, of which only ASCII
 * ones have a case and all others count as both. The original patterns use \p{Lu} and \p{Ll} and include
 * combining marks; this one follows llama.cpp, so that ids agree with it.
 */
static const char *cased_word_end(const char *at, const char *end)
{
    const char *stop = at, *after_caseless = NULL;
    struct character next;
    for (;;) {
        next = unicode_at(stop, end);
        if (next.class != CLASS_LETTER || is_small_ascii(next))
            break;
        stop += next.size;
        if (!is_capital_ascii(next))
            after_caseless = stop;
    }
    if (next.class == CLASS_LETTER) {
        do {
            stop += next.size;
            next = unicode_at(stop, end);
        } while (next.class == CLASS_LETTER && !is_capital_ascii(next));
        return stop;
    }
    /*
     * The first alternative needs a last letter that is not a capital: the word is cut after the last such
     * one.
     */
    return after_caseless ? after_caseless : stop;
}

static inline const char *word_end(const char *at, const char *end, struct word_rules rules)
{
    if (!rules.by_case)
        return skip_classes(at, end, rules.marks_in_words ? CLASS_LETTER | CLASS_MARK : CLASS_LETTER);
    const char *stop = cased_word_end(at, end);
    return rules.word_takes_contraction ? stop + contraction(stop, end, true) : stop;
}

static inline size_t word_piece(const char *at, const char *end, struct word_rules rules)
{
    unsigned word_classes = rules.marks_in_words ? CLASS_LETTER | CLASS_MARK : CLASS_LETTER;
    unsigned rest_classes = CLASS_REST & ~word_classes;
    if (rules.contractions) {
        size_t size = contraction(at, end, true);
        if (size)
            return size;
    }

    /* [^\r\n\p{L}\p{N}]?\p{L}+ */
    struct character first = unicode_at(at, end);
    if (first.class & word_classes)
        return (size_t)(word_end(at, end, rules) - at);
    if (first.class == CLASS_NUMBER)
        return number_size(at, end, rules.max_digits);
    const char *after_first = at + first.size;
    struct character second = unicode_at(after_first, end);
    if ((second.class & word_classes) && !is_line_end(first.code))
        return (size_t)(word_end(after_first, end, rules) - at);

    /*  ?[^\s\p{L}\p{N}]+[\r\n]* */
    if ((first.class & rest_classes) || (first.code == ' ' && (second.class & rest_classes))) {
        const char *stop = skip_classes(after_first, end, rest_classes);
        while (stop != end && ((rules.rest_takes_lines && is_line_end((unsigned char)*stop)) ||
                                  (rules.rest_takes_slashes && *stop == '/')))
            stop++;
        return (size_t)(stop - at);
    }
    return white_space_piece(at, end, true);
}

size_t stage_llama3(const char *at, const char *end)
{
    return word_piece(
        at, end, (struct word_rules){.max_digits = 3, .contractions = true, .rest_takes_lines = true});
}

size_t stage_qwen2(const char *at, const char *end)
{
    return word_piece(
        at, end, (struct word_rules){.max_digits = 1, .contractions = true, .rest_takes_lines = true});
}

size_t stage_qwen35(const char *at, const char *end)
{
    return word_piece(at, end,
        (struct word_rules){
            .max_digits = 1, .contractions = true, .marks_in_words = true, .rest_takes_lines = true});
}

size_t stage_long_numbers(const char *at, const char *end)
{
    return word_piece(at, end, (struct word_rules){.contractions = true, .rest_takes_lines = true});
}

size_t stage_no_contractions(const char *at, const char *end)
{
    return word_piece(at, end, (struct word_rules){.max_digits = 1, .rest_takes_lines = true});
}

size_t stage_seed_coder(const char *at, const char *end)
{
    return word_piece(at, end, (struct word_rules){.max_digits = 1, .contractions = true});
}

size_t stage_tekken(const char *at, const char *end)
{
    return word_piece(at, end,
        (struct word_rules){
            .max_digits = 1, .by_case = true, .rest_takes_lines = true, .rest_takes_slashes = true});
}

size_t stage_gpt4o(const char *at, const char *end)
{
    return word_piece(at, end,
        (struct word_rules){.max_digits = 3,
            .by_case = true,
            .word_takes_contraction = true,
            .rest_takes_lines = true,
            .rest_takes_slashes = true});
}

/*
 * [!-/:-@[-`{-~][A-Za-z]+
 * |[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
 * | ?[\p{P}\p{S}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * Control characters and the like match nothing.
 */
static size_t match_deepseek_v3(const char *at, const char *end)
{
    const unsigned word_classes = CLASS_LETTER | CLASS_MARK, sign_classes = CLASS_PUNCTUATION | CLASS_SYMBOL;
    struct character first = unicode_at(at, end);
    const char *after_first = at + first.size;
    struct character second = unicode_at(after_first, end);

    if (first.code < 0x80 && (first.class & sign_classes) && second.code < 0x80 &&
        second.class == CLASS_LETTER) {
        const char *stop = after_first;
        while (
            stop != end && (unsigned char)*stop < 0x80 && ascii_class[(unsigned char)*stop] == CLASS_LETTER)
            stop++;
        return (size_t)(stop - at);
    }
    if (first.class & word_classes)
        return (size_t)(skip_classes(at, end, word_classes) - at);
    if (!(first.class & sign_classes) && !is_line_end(first.code) && (second.class & word_classes))
        return (size_t)(skip_classes(after_first, end, word_classes) - at);
    if ((first.class & sign_classes) || (first.code == ' ' && (second.class & sign_classes))) {
        const char *stop = skip_classes(after_first, end, sign_classes);
        while (stop != end && is_line_end((unsigned char)*stop))
            stop++;
        return (size_t)(stop - at);
    }
    return first.class == CLASS_SPACE ? white_space_piece(at, end, true) : 0;
}

size_t stage_deepseek_v3(const char *at, const char *end)
{
    return match_or_gap(match_deepseek_v3, at, end);
}

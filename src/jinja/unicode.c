/* Python's view of characters, from utf8proc's tables. Upper and title case may be several
 * characters; the table is that of Unicode's SpecialCasing.txt. */
#include "jinja/text.h"

#include <utf8proc.h>

bool is_space(uint32_t c) {
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

bool is_alpha(uint32_t c) {
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

/* Superscripts and digits in circles: what Unicode gives the type Digit. */
bool is_digit(uint32_t c) {
    if (is_decimal(c)) return true;
    static const uint16_t ranges[][2] = {
        { 0xB2, 0xB3 },     { 0xB9, 0xB9 },     { 0x1369, 0x1371 }, { 0x19DA, 0x19DA },
        { 0x2070, 0x2070 }, { 0x2074, 0x2079 }, { 0x2080, 0x2089 }, { 0x2460, 0x2468 },
        { 0x2474, 0x247C }, { 0x2488, 0x2490 }, { 0x24EA, 0x24EA }, { 0x24F5, 0x24FD },
        { 0x24FF, 0x24FF }, { 0x2776, 0x277E }, { 0x2780, 0x2788 }, { 0x278A, 0x2792 },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return c >= 0x1F100 && c <= 0x1F10A;
}

bool is_numeric(uint32_t c) {
    utf8proc_category_t k = category(c);
    return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) || is_digit(c);
}

bool is_printable(uint32_t c) {
    if (c < 0x7F) return c >= 0x20;
    utf8proc_category_t k = category(c);
    return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}

bool is_word(uint32_t c) {
    if (c < 0x80)
        return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
               (c >= 'a' && c <= 'z');
    return is_alpha(c) || is_numeric(c);
}

bool is_upper(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    return utf8proc_isupper((utf8proc_int32_t)c);
}
bool is_lower(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z';
    return utf8proc_islower((utf8proc_int32_t)c);
}
bool is_title(uint32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

/* One character, then its upper and its title case. */
static const uint16_t several[][7] = {
#include "jinja/unicode_cases.h"
};

static bool put_several(struct sink *sink, uint32_t code, enum letter_case to, bool foreign) {
    size_t low = 0, high = sizeof several / sizeof *several;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (several[middle][0] < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == sizeof several / sizeof *several || several[low][0] != code) return false;
    const uint16_t *out = several[low] + (to == CASE_UPPER ? 1 : 4);
    for (int i = 0; i < 3 && out[i]; i++)
        sink_char(sink, out[i], foreign);
    return true;
}

void sink_case(struct sink *sink, uint32_t code, enum letter_case to, bool foreign) {
    if (code < 0x80) {
        bool letter = to == CASE_LOWER ? code >= 'A' && code <= 'Z' : code >= 'a' && code <= 'z';
        char c = (char)(letter ? code ^ 0x20 : code);
        sink_put(sink, &c, 1, foreign);
        return;
    }
    if (to == CASE_LOWER && code == 0x130) { /* the one whose small form is two characters */
        sink_char(sink, 'i', foreign);
        sink_char(sink, 0x307, foreign);
        return;
    }
    if (to != CASE_LOWER && put_several(sink, code, to, foreign)) return;
    utf8proc_int32_t c = (utf8proc_int32_t)code;
    c = to == CASE_UPPER   ? utf8proc_toupper(c)
        : to == CASE_LOWER ? utf8proc_tolower(c)
                           : utf8proc_totitle(c);
    sink_char(sink, (uint32_t)c, foreign);
}

/* What stands between a letter and what decides about it: Unicode's Case_Ignorable, nearly. */
static bool is_ignorable(uint32_t c) {
    if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xB7 || c == 0x2019)
        return true;
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

static bool is_cased(uint32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

/* A sigma at `at` ends a word: a letter before it, none after. */
static bool is_final_sigma(const struct text *t, size_t at) {
    size_t size = 0, i = at;
    uint32_t c = 0;
    do {
        if (!i) return false;
        do
            i--;
        while (((unsigned char)t->bytes[i] & 0xC0) == 0x80);
        c = char_at(t, i, &size);
    } while (is_ignorable(c));
    if (!is_cased(c)) return false;
    for (i = at + 2; i < t->n; i += size) {
        c = char_at(t, i, &size);
        if (!is_ignorable(c)) return !is_cased(c);
    }
    return true;
}

void sink_cased(struct sink *sink, const struct text *t, size_t from, size_t to,
                enum letter_case letters) {
    for (size_t i = from, size = 0; i < to; i += size) {
        uint32_t code = char_at(t, i, &size);
        bool foreign = t->marks ? t->marks[i] : t->foreign;
        if (letters == CASE_LOWER && code == 0x3A3 && is_final_sigma(t, i))
            sink_char(sink, 0x3C2, foreign);
        else
            sink_case(sink, code, letters, foreign);
    }
}

static bool strips(const struct text *chars, uint32_t code) {
    if (!chars) return is_space(code);
    for (size_t i = 0, size = 0; i < chars->n; i += size)
        if (char_at(chars, i, &size) == code) return true;
    return false;
}

size_t strip_left(const struct text *t, const struct text *chars) {
    size_t i = 0, size = 0;
    for (; i < t->n; i += size)
        if (!strips(chars, char_at(t, i, &size))) break;
    return i;
}

size_t strip_right(const struct text *t, const struct text *chars, size_t from) {
    size_t end = t->n;
    while (end > from) {
        size_t i = end - 1, size = 0;
        while (((unsigned char)t->bytes[i] & 0xC0) == 0x80)
            i--;
        if (!strips(chars, char_at(t, i, &size))) break;
        end = i;
    }
    return end;
}

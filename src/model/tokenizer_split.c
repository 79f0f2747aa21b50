/* The patterns by hand. Each rule below quotes the alternative it stands for; the order of the
 * rules is the order of the alternatives. */
#include "model/tokenizer_split.h"

#include "model/tokenizer_utf8.h"

const char split_regex_gpt2[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char split_regex_qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                                 "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_regex_qwen35[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

#define L UC_LETTER
#define N (UC_NUMBER | UC_DIGIT)
#define S UC_SPACE
static const unsigned char ascii_classes[128] = {
    ['\t'] = S, ['\n'] = S, ['\v'] = S, ['\f'] = S, ['\r'] = S, [' '] = S, ['0'] = N, ['1'] = N,
    ['2'] = N,  ['3'] = N,  ['4'] = N,  ['5'] = N,  ['6'] = N,  ['7'] = N, ['8'] = N, ['9'] = N,
    ['A'] = L,  ['B'] = L,  ['C'] = L,  ['D'] = L,  ['E'] = L,  ['F'] = L, ['G'] = L, ['H'] = L,
    ['I'] = L,  ['J'] = L,  ['K'] = L,  ['L'] = L,  ['M'] = L,  ['N'] = L, ['O'] = L, ['P'] = L,
    ['Q'] = L,  ['R'] = L,  ['S'] = L,  ['T'] = L,  ['U'] = L,  ['V'] = L, ['W'] = L, ['X'] = L,
    ['Y'] = L,  ['Z'] = L,  ['a'] = L,  ['b'] = L,  ['c'] = L,  ['d'] = L, ['e'] = L, ['f'] = L,
    ['g'] = L,  ['h'] = L,  ['i'] = L,  ['j'] = L,  ['k'] = L,  ['l'] = L, ['m'] = L, ['n'] = L,
    ['o'] = L,  ['p'] = L,  ['q'] = L,  ['r'] = L,  ['s'] = L,  ['t'] = L, ['u'] = L, ['v'] = L,
    ['w'] = L,  ['x'] = L,  ['y'] = L,  ['z'] = L,
};
#undef L
#undef N
#undef S

typedef const unsigned char *text_at;

static inline unsigned classes_at(struct splitter *s, text_at p, int *n) {
    if (*p < 0x80) {
        *n = 1;
        return ascii_classes[*p];
    }
    return unicode_classes(&s->memo, utf8_decode(p, n));
}

/* End of the run of characters that have one of `wanted`. */
static text_at run_of(struct splitter *s, text_at p, unsigned wanted) {
    int n;
    while (p < s->part_end && classes_at(s, p, &n) & wanted)
        p += n;
    return p;
}

/* End of the run of characters that have none of `unwanted`. */
static text_at run_without(struct splitter *s, text_at p, unsigned unwanted) {
    int n;
    while (p < s->part_end && !(classes_at(s, p, &n) & unwanted))
        p += n;
    return p;
}

static bool is_newline(unsigned char c) { return c == '\r' || c == '\n'; }

/* Bytes of 's 't 're 've 'm 'll 'd at p (an apostrophe), or 0. Regardless of case, the letter S is
 * also U+017F. */
static size_t contraction(const struct splitter *s, text_at p, bool any_case) {
    size_t left = (size_t)(s->part_end - p);
    if (left < 2) return 0;
    unsigned char fold = any_case ? 0x20 : 0; /* sets the bit that lower case has */
    unsigned char a = p[1] | fold, b = left > 2 ? p[2] | fold : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return any_case && left > 2 && p[1] == 0xc5 && p[2] == 0xbf ? 3 : 0;
}

/* \s+(?!\S)|\s+ : a run at the end of the text whole, any other without its last character, which
 * goes to the next word unless it is the only one. */
static text_at spaces(struct splitter *s, text_at p) {
    text_at last = p, q = p;
    int n;
    while (q < s->part_end && classes_at(s, q, &n) & UC_SPACE) {
        last = q;
        q += n;
    }
    return q == s->part_end || last == p ? q : last;
}

static text_at word_gpt2(struct splitter *s, text_at p) {
    if (*p == '\'') { /* '(?:[sdmt]|ll|ve|re) */
        size_t n = contraction(s, p, false);
        if (n) return p + n;
    }
    text_at first = *p == ' ' ? p + 1 : p;
    if (first == s->part_end) return first;
    int n;
    unsigned c = classes_at(s, first, &n);
    if (c & UC_LETTER) return run_of(s, first + n, UC_LETTER); /*  ?\p{L}+ */
    if (c & UC_NUMBER) return run_of(s, first + n, UC_NUMBER); /*  ?\p{N}+ */
    if (!(c & UC_SPACE))                                       /*  ?[^\s\p{L}\p{N}]+ */
        return run_without(s, first + n, UC_SPACE | UC_LETTER | UC_NUMBER);
    return spaces(s, p);
}

/* \s*[\r\n]+ : up to the last line end of the run of spaces; NULL when it has none. */
static text_at lines(struct splitter *s, text_at p) {
    text_at after = NULL;
    int n;
    while (p < s->part_end && classes_at(s, p, &n) & UC_SPACE) {
        p += n;
        if (is_newline(p[-1])) after = p;
    }
    return after;
}

static text_at word_qwen(struct splitter *s, text_at p, unsigned letters) {
    if (*p == '\'') { /* (?i:'s|'t|'re|'ve|'m|'ll|'d) */
        size_t n = contraction(s, p, true);
        if (n) return p + n;
    }
    int n, n2;
    unsigned c = classes_at(s, p, &n);
    if (c & letters) return run_of(s, p + n, letters);
    if (c & UC_NUMBER) return p + n; /* \p{N} */
    text_at second = p + n;
    if (!is_newline(*p) && second < s->part_end && classes_at(s, second, &n2) & letters)
        return run_of(s, second + n2, letters); /* [^\r\n\p{L}\p{N}]?\p{L}+ */

    text_at first = *p == ' ' ? second : p; /*  ?[^\s\p{L}\p{N}]+[\r\n]* */
    text_at after = run_without(s, first, UC_SPACE | UC_NUMBER | letters);
    if (after > first) {
        while (after < s->part_end && is_newline(*after))
            after++;
        return after;
    }
    after = lines(s, p);
    return after ? after : spaces(s, p);
}

/* The Digits pre-tokenizer hands each digit, and each text between digits, on by itself. */
static text_at word_smollm(struct splitter *s, text_at p) {
    if (p < s->part_end) return word_gpt2(s, p);
    int n;
    s->part_end = s->end;
    if (classes_at(s, p, &n) & UC_DIGIT) {
        s->part_end = p + n;
        return s->part_end;
    }
    s->part_end = run_without(s, p, UC_DIGIT);
    return word_gpt2(s, p);
}

void splitter_start(struct splitter *s, enum split_pattern pattern, const char *text, size_t n) {
    *s = (struct splitter){ .pattern = pattern, .next = (text_at)text };
    s->end = s->next + n;
    s->part_end = pattern == SPLIT_SMOLLM ? s->next : s->end;
}

size_t splitter_next(struct splitter *s, const unsigned char **word) {
    text_at p = s->next;
    *word = p;
    if (p == s->end) return 0;
    switch (s->pattern) {
    case SPLIT_SMOLLM:
        s->next = word_smollm(s, p);
        break;
    case SPLIT_QWEN2:
        s->next = word_qwen(s, p, UC_LETTER);
        break;
    case SPLIT_QWEN35:
        s->next = word_qwen(s, p, UC_LETTER | UC_MARK);
        break;
    case SPLIT_GPT2:
    case N_SPLIT_PATTERNS:
        s->next = word_gpt2(s, p);
        break;
    }
    return (size_t)(s->next - p);
}

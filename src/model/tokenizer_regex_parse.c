/* The text of an expression to a tree. Letters are taken as Oniguruma takes them in Ruby's syntax;
 * what is not taken is named, never guessed. */
#include "model/tokenizer_regex_parts.h"

#include <string.h>

struct parser {
    struct regex_parts *parts;
    const unsigned char *p, *end;
    int depth;
    bool fold;     /* inside (?i:..) */
    uint32_t last; /* the literal letter just before, while folding; or 0 */
};

static bool refuse(struct parser *p, const char *why) {
    if (!p->parts->why && !p->parts->no_memory) p->parts->why = why;
    return false;
}

static bool no_memory(struct parser *p) {
    p->parts->no_memory = true;
    return false;
}

static bool starts(const struct parser *p, const char *text) {
    size_t n = strlen(text);
    return (size_t)(p->end - p->p) >= n && memcmp(p->p, text, n) == 0;
}

static bool skip(struct parser *p, const char *text) {
    if (!starts(p, text)) return false;
    p->p += strlen(text);
    return true;
}

static uint32_t take(struct parser *p) {
    int n;
    uint32_t c = utf8_decode(p->p, &n);
    p->p += n;
    return c;
}

static bool is_letter(uint32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

/* ---- sets ------------------------------------------------------------------------------------ */

static bool add_range(struct parser *p, struct code_set *to, uint32_t first, uint32_t last) {
    struct code_set range = { 0 };
    bool ok = set_range(&range, first, last) && set_combine(to, &range, SET_OR);
    set_release(&range);
    return ok || no_memory(p);
}

#define CATEGORY(name) (1u << UC_##name)
#define LETTERS        (CATEGORY(Lu) | CATEGORY(Ll) | CATEGORY(Lt) | CATEGORY(Lm) | CATEGORY(Lo))

static const struct {
    const char *name;
    uint32_t categories;
    unsigned classes;
} properties[] = {
    { "L", LETTERS, 0 },
    { "Lu", CATEGORY(Lu), 0 },
    { "Ll", CATEGORY(Ll), 0 },
    { "Lt", CATEGORY(Lt), 0 },
    { "Lm", CATEGORY(Lm), 0 },
    { "Lo", CATEGORY(Lo), 0 },
    { "M", CATEGORY(Mn) | CATEGORY(Mc) | CATEGORY(Me), 0 },
    { "Mn", CATEGORY(Mn), 0 },
    { "Mc", CATEGORY(Mc), 0 },
    { "Me", CATEGORY(Me), 0 },
    { "N", CATEGORY(Nd) | CATEGORY(Nl) | CATEGORY(No), 0 },
    { "Nd", CATEGORY(Nd), 0 },
    { "Nl", CATEGORY(Nl), 0 },
    { "No", CATEGORY(No), 0 },
    { "P",
      CATEGORY(Pc) | CATEGORY(Pd) | CATEGORY(Ps) | CATEGORY(Pe) | CATEGORY(Pi) | CATEGORY(Pf) |
          CATEGORY(Po),
      0 },
    { "Pc", CATEGORY(Pc), 0 },
    { "Pd", CATEGORY(Pd), 0 },
    { "Ps", CATEGORY(Ps), 0 },
    { "Pe", CATEGORY(Pe), 0 },
    { "Pi", CATEGORY(Pi), 0 },
    { "Pf", CATEGORY(Pf), 0 },
    { "Po", CATEGORY(Po), 0 },
    { "S", CATEGORY(Sm) | CATEGORY(Sc) | CATEGORY(Sk) | CATEGORY(So), 0 },
    { "Sm", CATEGORY(Sm), 0 },
    { "Sc", CATEGORY(Sc), 0 },
    { "Sk", CATEGORY(Sk), 0 },
    { "So", CATEGORY(So), 0 },
    { "Z", CATEGORY(Zs) | CATEGORY(Zl) | CATEGORY(Zp), 0 },
    { "Zs", CATEGORY(Zs), 0 },
    { "Zl", CATEGORY(Zl), 0 },
    { "Zp", CATEGORY(Zp), 0 },
    { "Han", 0, UC_HAN },
    { "Hiragana", 0, UC_HIRAGANA },
    { "Katakana", 0, UC_KATAKANA },
    { "Hangul", 0, UC_HANGUL },
};

/* After \p or \P: {Name}, or {^Name} for what is not of it. */
static bool take_property(struct parser *p, bool negated, struct code_set *set) {
    if (!skip(p, "{")) return refuse(p, "\\p needs a name in braces");
    if (skip(p, "^")) negated = !negated;
    const unsigned char *close = memchr(p->p, '}', (size_t)(p->end - p->p));
    if (!close) return refuse(p, "\\p{ has no end");
    size_t n = (size_t)(close - p->p);
    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
        if (strlen(properties[i].name) != n || memcmp(properties[i].name, p->p, n) != 0) continue;
        p->p = close + 1;
        bool ok = set_property(set, properties[i].categories, properties[i].classes) &&
                  (!negated || set_complement(set));
        return ok || no_memory(p);
    }
    return refuse(p, "\\p names a property that reel does not know");
}

/* A class of characters written with a backslash; *is_class is false when c is no such letter. */
static bool take_class_letter(struct parser *p, uint32_t c, struct code_set *set, bool *is_class) {
    uint32_t lower = is_letter(c) ? c | 0x20 : 0;
    *is_class = true;
    if (lower == 'p') return take_property(p, c == 'P', set);
    bool ok = true;
    if (lower == 's')
        ok = set_property(set, 0, UC_SPACE);
    else if (lower == 'w')
        ok = set_property(set, 0, UC_WORD);
    else if (lower == 'd')
        ok = set_property(set, CATEGORY(Nd), 0);
    else
        *is_class = false;
    if (ok && *is_class && c != lower) ok = set_complement(set);
    return ok || no_memory(p);
}

/* The character that a letter after a backslash writes. */
static bool escaped(struct parser *p, uint32_t c, uint32_t *out) {
    static const char letters[] = "rntfv", meant[] = "\r\n\t\f\v";
    const char *known = c && c < 0x80 ? strchr(letters, (int)c) : NULL;
    *out = known ? (unsigned char)meant[known - letters] : c;
    if (known || (!is_letter(c) && !(c >= '0' && c <= '9'))) return true;
    return refuse(p, "an escape that reel does not know");
}

/* ASCII letters of a set in both cases, with the two other letters that fold to ASCII ones. */
static bool fold_set(struct parser *p, struct code_set *set) {
    if (set->n && set->at[set->n - 1] > 0x80)
        return refuse(p, "(?i: with more than ASCII in a class");
    for (uint32_t c = 'a'; c <= 'z'; c++) {
        if (!set_has(set, c) && !set_has(set, c - 0x20)) continue;
        if (!add_range(p, set, c, c) || !add_range(p, set, c - 0x20, c - 0x20)) return false;
        if (c == 's' && !add_range(p, set, 0x17f, 0x17f)) return false;
        if (c == 'k' && !add_range(p, set, 0x212a, 0x212a)) return false;
    }
    return true;
}

static bool take_class(struct parser *p, struct code_set *set);

/* One member of a class: a character, a range, a nested class or a letter's class. */
static bool take_member(struct parser *p, struct code_set *set) {
    struct code_set part = { 0 };
    bool ok = true, is_class = false;
    if (starts(p, "[:")) return refuse(p, "a POSIX bracket");
    if (skip(p, "[")) {
        ok = take_class(p, &part) && (set_combine(set, &part, SET_OR) || no_memory(p));
        set_release(&part);
        return ok;
    }
    uint32_t first = take(p), last;
    if (first == '\\') {
        if (p->p == p->end) return refuse(p, "a backslash at the end");
        first = take(p);
        ok = take_class_letter(p, first, &part, &is_class);
        if (ok && is_class) ok = set_combine(set, &part, SET_OR) || no_memory(p);
        set_release(&part);
        if (!ok) return false;
        if (is_class && starts(p, "-") && !starts(p, "-]"))
            return refuse(p, "a range that begins with a class");
        if (is_class) return true;
        if (!escaped(p, first, &first)) return false;
    }
    last = first;
    if (p->end - p->p >= 2 && p->p[0] == '-' && p->p[1] != ']') {
        p->p++;
        last = take(p);
        if (last == '[') return refuse(p, "a range that ends with a class");
        if (last == '\\') {
            if (p->p == p->end) return refuse(p, "a backslash at the end");
            if (!escaped(p, take(p), &last)) return false;
        }
        if (last < first) return refuse(p, "a range that runs backwards");
    }
    return add_range(p, set, first, last);
}

/* After [. */
static bool take_class(struct parser *p, struct code_set *set) {
    struct code_set both = { 0 };
    bool ok = true, negated = skip(p, "^"), intersected = false;
    if (++p->depth > REGEX_MAX_DEPTH) return refuse(p, "classes in classes too deep");
    for (bool first = true; ok; first = false) {
        if (p->p == p->end) {
            ok = refuse(p, "a class without its ]");
        } else if (!first && skip(p, "]")) {
            break;
        } else if (skip(p, "&&")) {
            ok = !intersected || set_combine(set, &both, SET_AND) || no_memory(p);
            set_release(&both);
            both = *set;
            *set = (struct code_set){ 0 };
            intersected = true;
        } else {
            ok = take_member(p, set);
        }
    }
    if (ok && intersected) ok = set_combine(set, &both, SET_AND) || no_memory(p);
    set_release(&both);
    if (ok && p->fold) ok = fold_set(p, set);
    if (ok && negated) ok = set_complement(set) || no_memory(p);
    p->depth--;
    return ok;
}

/* ---- tree ------------------------------------------------------------------------------------ */

static bool add_node(struct parser *p, struct regex_node node, uint16_t *out) {
    struct regex_parts *parts = p->parts;
    if (parts->n_nodes == REGEX_MAX_NODES) return refuse(p, "it is too long");
    *out = (uint16_t)parts->n_nodes;
    parts->nodes[parts->n_nodes++] = node;
    return true;
}

/* Takes the set over, also when it fails. */
static bool add_set_node(struct parser *p, struct code_set *set, struct regex_node node,
                         uint16_t *out) {
    int index = regex_keep_set(p->parts, set);
    if (index < 0) return false;
    node.a = (uint16_t)index;
    return add_node(p, node, out);
}

static bool parse_or(struct parser *p, uint16_t *out);

/* What looks like two letters to (?i: may also be one ligature, as in "st". */
static bool folds_to_one(uint32_t before, uint32_t c) {
    static const char pairs[] = "ssstfffifl";
    for (size_t i = 0; i + 1 < sizeof pairs - 1; i += 2)
        if ((before | 0x20) == (unsigned char)pairs[i] && (c | 0x20) == (unsigned char)pairs[i + 1])
            return true;
    return false;
}

static bool take_literal(struct parser *p, uint32_t c, uint16_t *out) {
    struct code_set set = { 0 };
    const uint32_t before = p->last;
    if (!set_range(&set, c, c)) return no_memory(p);
    p->last = p->fold && is_letter(c) ? c : 0;
    bool ok = !before || !p->last || !folds_to_one(before, c);
    if (!ok) refuse(p, "letters under (?i: that one ligature stands for, too");
    if (ok && p->fold && (is_letter(c) || c >= 0x80)) ok = fold_set(p, &set);
    if (ok) return add_set_node(p, &set, (struct regex_node){ .kind = NODE_SET }, out);
    set_release(&set);
    return false;
}

/* After (?= or (?!: one character and the end of the group. */
static bool take_look(struct parser *p, bool negated, uint16_t *out) {
    struct regex_parts *parts = p->parts;
    uint16_t inner = 0;
    if (!parse_or(p, &inner)) return false;
    if (!skip(p, ")")) return refuse(p, "a group without its )");
    if (parts->nodes[inner].kind != NODE_SET)
        return refuse(p, "looking further ahead than one character");
    struct code_set set = { 0 };
    const struct code_set *seen = &parts->sets[parts->nodes[inner].a];
    if (!set_combine(&set, seen, SET_OR) || (negated && !set_complement(&set))) {
        set_release(&set);
        return no_memory(p);
    }
    const struct regex_node look = { .kind = NODE_LOOK, .min = negated, .empty = true };
    return add_set_node(p, &set, look, out);
}

/* After (. */
static bool take_group(struct parser *p, uint16_t *out) {
    const bool fold = p->fold;
    if (++p->depth > REGEX_MAX_DEPTH) return refuse(p, "groups in groups too deep");
    bool look = starts(p, "?=") || starts(p, "?!"), ok;
    p->last = 0;
    if (look) {
        bool negated = p->p[1] == '!';
        p->p += 2;
        ok = take_look(p, negated, out);
    } else {
        if (skip(p, "?i:"))
            p->fold = true;
        else if (!skip(p, "?:") && starts(p, "?"))
            return refuse(p, "a group that is neither (?:, (?i:, (?= nor (?!");
        ok = parse_or(p, out) && (skip(p, ")") || refuse(p, "a group without its )"));
    }
    p->fold = fold;
    p->last = 0;
    p->depth--;
    return ok;
}

static bool take_escape(struct parser *p, uint16_t *out) {
    struct code_set set = { 0 };
    bool is_class;
    if (p->p == p->end) return refuse(p, "a backslash at the end");
    uint32_t c = take(p);
    if (!take_class_letter(p, c, &set, &is_class)) {
        set_release(&set);
        return false;
    }
    if (is_class) return add_set_node(p, &set, (struct regex_node){ .kind = NODE_SET }, out);
    return escaped(p, c, &c) && take_literal(p, c, out);
}

static bool parse_atom(struct parser *p, uint16_t *out) {
    struct code_set set = { 0 };
    if (skip(p, "(")) return take_group(p, out);
    if (skip(p, "\\")) return take_escape(p, out);
    if (skip(p, "[")) {
        p->last = 0;
        if (take_class(p, &set))
            return add_set_node(p, &set, (struct regex_node){ .kind = NODE_SET }, out);
        set_release(&set);
        return false;
    }
    bool dot = starts(p, "."), end = starts(p, "$");
    if (dot || end) { /* both know lines by their \n alone */
        p->p++;
        p->last = 0;
        if (!set_range(&set, '\n', '\n') || (dot && !set_complement(&set))) {
            set_release(&set);
            return no_memory(p);
        }
        const struct regex_node node = { .kind = dot ? NODE_SET : NODE_LOOK,
                                         .min = end,
                                         .empty = end };
        return add_set_node(p, &set, node, out);
    }
    if (*p->p == '^') return refuse(p, "^ outside of a class");
    if (strchr("*+?", *p->p)) return refuse(p, "a repeat of nothing");
    return take_literal(p, take(p), out);
}

/* {n}, {n,} or {n,m} at p; false when the brace is a literal one. */
static bool take_counts(struct parser *p, int *min, int *max) {
    const unsigned char *q = p->p + 1;
    int counts[2] = { 0, 0 }, k = 0, digits[2] = { 0, 0 };
    for (; q < p->end && *q != '}'; q++) {
        if (*q == ',' && k == 0) {
            k = 1;
        } else if (*q >= '0' && *q <= '9' && counts[k] <= REGEX_MAX_COUNT) {
            counts[k] = 10 * counts[k] + (*q - '0');
            digits[k]++;
        } else {
            return false;
        }
    }
    if (q == p->end || !digits[0]) return false;
    *min = counts[0];
    *max = k == 0 ? counts[0] : digits[1] ? counts[1] : -1;
    p->p = q + 1;
    return true;
}

static bool take_repeat(struct parser *p, int *min, int *max, bool *found) {
    *found = true;
    if (skip(p, "*") || skip(p, "+") || skip(p, "?")) {
        unsigned char sign = p->p[-1];
        *min = sign == '+';
        *max = sign == '?' ? 1 : -1;
        return true;
    }
    *found = starts(p, "{") && take_counts(p, min, max);
    if (!*found && starts(p, "{")) return refuse(p, "a brace that is no count");
    if (!*found) return true;
    if (*min > REGEX_MAX_COUNT || *max > REGEX_MAX_COUNT || (*max >= 0 && *max < *min))
        return refuse(p, "a count beyond 64, or one that runs backwards");
    if (starts(p, "?") || starts(p, "+")) return refuse(p, "a sign behind a count");
    return true;
}

/* An atom with its repeats: a second sign is ? for lazy or + for possessive. */
static bool parse_repeat(struct parser *p, uint16_t *out) {
    int min, max;
    bool found;
    if (!parse_atom(p, out)) return false;
    if (p->p == p->end) return true;
    const bool sign = *p->p != '{';
    if (!take_repeat(p, &min, &max, &found)) return false;
    if (!found) return true;
    p->last = 0;
    const struct regex_node *inner = &p->parts->nodes[*out];
    if (inner->empty) return refuse(p, "a repeat of what can be nothing");
    struct regex_node node = {
        .kind = NODE_REPEAT, .a = *out, .min = (int16_t)min, .max = (int16_t)max, .empty = min == 0
    };
    if (sign && starts(p, "?")) return refuse(p, "a lazy repeat");
    if (sign && skip(p, "+")) {
        node.possessive = true;
        if (inner->kind != NODE_SET) return refuse(p, "a possessive repeat of more than one class");
    }
    if (starts(p, "*") || starts(p, "+") || starts(p, "?") || starts(p, "{"))
        return refuse(p, "a repeat of a repeat");
    return add_node(p, node, out);
}

static bool parse_cat(struct parser *p, uint16_t *out) {
    const struct regex_parts *parts = p->parts;
    if (!add_node(p, (struct regex_node){ .kind = NODE_EMPTY, .empty = true }, out)) return false;
    while (p->p < p->end && !starts(p, "|") && !starts(p, ")")) {
        uint16_t next = 0;
        if (!parse_repeat(p, &next)) return false;
        const bool empty = parts->nodes[*out].empty && parts->nodes[next].empty;
        const struct regex_node both = { .kind = NODE_CAT, .a = *out, .b = next, .empty = empty };
        if (parts->nodes[*out].kind == NODE_EMPTY)
            *out = next;
        else if (!add_node(p, both, out))
            return false;
    }
    return true;
}

static bool parse_or(struct parser *p, uint16_t *out) {
    const struct regex_parts *parts = p->parts;
    uint16_t next = 0;
    if (!parse_cat(p, out)) return false;
    while (skip(p, "|")) {
        p->last = 0;
        if (!parse_cat(p, &next)) return false;
        const bool empty = parts->nodes[*out].empty || parts->nodes[next].empty;
        const struct regex_node either = { .kind = NODE_OR, .a = *out, .b = next, .empty = empty };
        if (!add_node(p, either, out)) return false;
    }
    return true;
}

bool regex_parse(struct regex_parts *parts, const char *text, size_t n) {
    struct parser p = { .parts = parts, .p = (const unsigned char *)text };
    p.end = p.p + n;
    if (n > REGEX_MAX_BYTES) return refuse(&p, "it is too long");
    if (utf8_valid_prefix(text, n) != n) return refuse(&p, "it is not UTF-8");
    if (memchr(text, 0, n)) return refuse(&p, "it contains a NUL");
    if (!parse_or(&p, &parts->root)) return false;
    if (p.p < p.end) return refuse(&p, "a ) that nothing opens");
    return true;
}

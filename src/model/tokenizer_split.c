#include "model/tokenizer_split.h"

#include "model/tokenizer_unicode.h"

#include <string.h>

const char split_regex_gpt2[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char split_regex_qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                                 "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_regex_qwen35[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* ---- plans ----------------------------------------------------------------------------------- */

enum reel_status split_add(struct buffer *text, enum split_what what,
                           enum split_behaviour behaviour, bool inverted, const char *regex,
                           struct reel_error *err) {
    const char head[3] = { (char)what, (char)behaviour, inverted ? '+' : '-' };
    enum reel_status status = buffer_append(text, head, sizeof head, err);
    if (status == REEL_OK) status = buffer_append(text, regex, strlen(regex) + 1, err);
    return status;
}

static enum reel_status add_stage(struct split_plan *plan, const char *head, const char *regex,
                                  bool bytes, const char *name, struct reel_error *err) {
    struct regex *re = NULL;
    enum reel_status status =
        plan->n_stages == SPLIT_MAX_STAGES
            ? err_set(err, REEL_E_LIMIT, "%s: more than %d pre-tokenizers", name, SPLIT_MAX_STAGES)
        : head[0] == SPLIT_REGEX   ? regex_compile(&re, regex, strlen(regex), name, err)
        : head[0] == SPLIT_NUMERIC ? regex_of_class(&re, UC_NUMERIC, err)
                                   : regex_of_class(&re, UC_PUNCTUATION, err);
    if (status != REEL_OK) return status;
    plan->stages[plan->n_stages++] =
        (struct split_stage){ .re = re,
                              .behaviour = (enum split_behaviour)(unsigned char)head[1],
                              .inverted = head[2] == '+',
                              .bytes = bytes };
    return REEL_OK;
}

enum reel_status split_plan_open(struct split_plan *plan, const char *text, size_t n,
                                 const char *name, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    bool bytes = false;
    *plan = (struct split_plan){ 0 };
    for (size_t at = 0, length; status == REEL_OK && at < n; at += length) {
        const char *head = text + at, *end = memchr(head, 0, n - at);
        length = end ? (size_t)(end - head) + 1 : 0;
        if (length < 4 || !strchr("RDUPB", head[0]) || !strchr("IRCPN", head[1]) ||
            !strchr("+-", head[2]))
            status = err_set(err, REEL_E_FORMAT, "%s: a damaged list of pre-tokenizers", name);
        else if (head[0] == SPLIT_PREFIX)
            plan->prefix = true;
        else if (head[0] == SPLIT_BYTES)
            bytes = true;
        else
            status = add_stage(plan, head, head + 3, bytes, name, err);
    }
    if (status != REEL_OK) split_plan_release(plan);
    return status;
}

void split_plan_release(struct split_plan *plan) {
    for (int i = 0; i < plan->n_stages; i++)
        regex_free(plan->stages[i].re);
    *plan = (struct split_plan){ 0 };
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* What an attempt that failed says of later ones: whoever is in `state` at a place from `from` to
 * `to` goes the same way, and finds no end of a match from there on. */
struct dead_end {
    const unsigned char *from, *to;
    uint32_t state;
};

/* regex_match(), and no step on a way that is known to lead nowhere. Where an expression looks far
 * ahead in vain (\s+$ in spaces that a letter ends), each place would else read the rest again. */
static size_t try_match(const struct split_stage *stage, const unsigned char *p,
                        const unsigned char *end, struct dead_end *dead) {
    const struct regex *re = stage->re;
    const unsigned char *start = p, *last = p, *since = p;
    uint32_t at = re->n_classes;
    while (p < end) {
        int n;
        if (at == dead->state && p >= dead->from && p <= dead->to) return (size_t)(last - start);
        uint32_t next = re->next[at + regex_class(re, p, stage->bytes, &n)];
        if (next & REGEX_ACCEPT) last = p;
        next &= ~REGEX_ACCEPT;
        if (next == 0) break;
        p += n;
        if (next != at) since = p;
        at = next;
    }
    if (p == end && re->next[at + re->n_classes - 1] & REGEX_ACCEPT) last = p;
    if (last == start) *dead = (struct dead_end){ since, p, at };
    return (size_t)(last - start);
}

/* Where the next match begins, and its bytes; the end, and 0, when there is none. */
static const unsigned char *find(const struct split_stage *stage, const unsigned char *p,
                                 const unsigned char *end, size_t *found) {
    const struct regex *re = stage->re;
    struct dead_end dead = { 0 };
    int n;
    *found = 0;
    for (; p < end; p += n)
        if (re->begins[regex_class(re, p, stage->bytes, &n)] &&
            (*found = try_match(stage, p, end, &dead)) > 0)
            break;
    return p;
}

/* The next match, or what lies before it. False at the end. */
static bool next_raw(const struct split_stage *stage, struct split_level *l,
                     struct split_part *part) {
    if (l->at == l->end) return false;
    size_t found = l->found;
    l->found = 0;
    if (found == 0) found = regex_match(stage->re, l->at, l->end, stage->bytes);
    part->at = l->at;
    part->match = (found > 0) != stage->inverted;
    l->at = found ? l->at + found : find(stage, l->at, l->end, &l->found);
    part->end = l->at;
    return true;
}

/* Joins to part what the behaviour wants behind it. */
static void join(const struct split_stage *stage, struct split_level *l, struct split_part *part) {
    for (;;) {
        struct split_level after = *l;
        struct split_part next;
        if (!next_raw(stage, &after, &next)) return;
        bool joins = stage->behaviour == SPLIT_CONTIGUOUS      ? part->match == next.match
                     : stage->behaviour == SPLIT_WITH_PREVIOUS ? !part->match && next.match
                                                               : part->match && !next.match;
        if (!joins) return;
        *l = after;
        part->end = next.end;
        if (stage->behaviour != SPLIT_CONTIGUOUS) return;
    }
}

static bool next_part(const struct split_stage *stage, struct split_level *l,
                      struct split_part *part) {
    if (!next_raw(stage, l, part)) return false;
    switch (stage->behaviour) {
    case SPLIT_ISOLATED:
        return true;
    case SPLIT_REMOVED:
        while (part->match)
            if (!next_raw(stage, l, part)) return false;
        return true;
    default:
        join(stage, l, part);
        return true;
    }
}

void splitter_start(struct splitter *s, const struct split_plan *plan, const char *text, size_t n) {
    s->plan = plan;
    s->depth = 0;
    s->levels[0].at = (const unsigned char *)text;
    s->levels[0].end = s->levels[0].at + n;
    s->levels[0].found = 0;
}

size_t splitter_next(struct splitter *s, const unsigned char **word) {
    const int last = s->plan->n_stages - 1;
    struct split_part part;
    if (last < 0) { /* nothing cuts: the text is one word */
        struct split_level *l = &s->levels[0];
        *word = l->at;
        l->at = l->end;
        return (size_t)(l->end - *word);
    }
    while (s->depth >= 0) {
        if (!next_part(&s->plan->stages[s->depth], &s->levels[s->depth], &part)) {
            s->depth--;
        } else if (s->depth == last) {
            *word = part.at;
            return (size_t)(part.end - part.at);
        } else {
            s->levels[++s->depth] = (struct split_level){ .at = part.at, .end = part.end };
        }
    }
    *word = s->levels[0].end;
    return 0;
}

/* The tree of an expression to tables.
 *
 * First a machine of steps: a step takes one character, looks at the next one, or goes two ways,
 * the first of them preferred. Then a table: a state is the list of the steps that can be reached
 * after some text, best first. A step behind one that ends the match is dropped from the list, so
 * that the last place where a match ended is the one that backtracking would find (Cox, "Regular
 * Expression Matching: the Virtual Machine Approach", and RE2's leftmost-first automata). Steps
 * that look ahead are decided when the next character is known: a table's entry says whether the
 * match may end before the character that it is for.
 */
#include "model/tokenizer_regex_parts.h"

#include "base/memory.h"

#include <string.h>

#define MAX_STEPS  4096
#define MAX_STATES 2048
#define MAX_LISTS  (1 << 18) /* steps in the lists of all states */
#define MAX_WORK   (1 << 25) /* steps looked at */

enum step_kind { STEP_TAKE, STEP_LOOK, STEP_BOTH, STEP_END };

struct step {
    uint8_t kind;
    bool or_end; /* of STEP_LOOK: the end of the text will do */
    uint16_t set;
    uint16_t out, second;
};

/* A possessive repeat takes nothing from what comes after it. */
struct possessive {
    uint16_t set, after;
};

struct state {
    uint32_t at, n; /* its list */
};

struct machine {
    struct regex_parts *parts;
    struct step steps[MAX_STEPS];
    uint32_t n_steps;
    struct possessive possessive[64];
    int n_possessive;
    uint64_t members[256]; /* [class] which sets it is in */
    struct state states[MAX_STATES];
    uint32_t n_states;
    uint16_t *lists; /* [MAX_LISTS] */
    uint32_t n_lists;
    uint16_t stack[MAX_STEPS + 2];
    uint32_t seen[MAX_STEPS], taken[MAX_STEPS]; /* the round they were last met in */
    uint32_t round, work;
};

static bool refuse(struct machine *m, const char *why) {
    if (!m->parts->why) m->parts->why = why;
    return false;
}

int regex_keep_set(struct regex_parts *parts, struct code_set *set) {
    for (int i = 0; i < parts->n_sets; i++) {
        if (!set_equal(&parts->sets[i], set)) continue;
        set_release(set);
        return i;
    }
    if (parts->n_sets == REGEX_MAX_SETS) {
        parts->why = "more than 64 classes";
        set_release(set);
        return -1;
    }
    parts->sets[parts->n_sets] = *set;
    *set = (struct code_set){ 0 };
    return parts->n_sets++;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint16_t add_step(struct machine *m, struct step step) {
    if (m->n_steps == MAX_STEPS) {
        refuse(m, "its repeats are too long");
        return 0;
    }
    m->steps[m->n_steps] = step;
    return (uint16_t)m->n_steps++;
}

static uint16_t both(struct machine *m, uint16_t first, uint16_t second) {
    return add_step(m, (struct step){ .kind = STEP_BOTH, .out = first, .second = second });
}

static uint16_t emit(struct machine *m, uint16_t node, uint16_t next);

static uint16_t emit_repeat(struct machine *m, const struct regex_node *node, uint16_t next) {
    if (node->possessive && m->n_possessive < 64)
        m->possessive[m->n_possessive++] = (struct possessive){ m->parts->nodes[node->a].a, next };
    else if (node->possessive)
        refuse(m, "more than 64 possessive repeats");
    uint16_t entry = next;
    int least = node->min;
    if (node->max < 0) { /* the last of those that must be, and more of it */
        uint16_t loop = both(m, 0, next);
        uint16_t body = emit(m, node->a, loop);
        m->steps[loop].out = body;
        entry = least ? body : loop;
        if (least) least--;
    }
    for (int i = node->min; i < node->max; i++)
        entry = both(m, emit(m, node->a, entry), next);
    for (int i = 0; i < least; i++)
        entry = emit(m, node->a, entry);
    return entry;
}

static uint16_t emit_or(struct machine *m, uint16_t node, uint16_t next) {
    const struct regex_node *nodes = m->parts->nodes;
    uint16_t entry = REGEX_NONE;
    for (bool more = true; more; node = nodes[node].a) {
        more = nodes[node].kind == NODE_OR;
        uint16_t way = emit(m, more ? nodes[node].b : node, next);
        entry = entry == REGEX_NONE ? way : both(m, way, entry);
        if (!more) break;
    }
    return entry;
}

/* The first step of a node that goes on with `next`. */
static uint16_t emit(struct machine *m, uint16_t at, uint16_t next) {
    const struct regex_node *nodes = m->parts->nodes;
    if (m->parts->why) return 0;
    while (nodes[at].kind == NODE_CAT) {
        next = emit(m, nodes[at].b, next);
        at = nodes[at].a;
    }
    const struct regex_node *node = &nodes[at];
    switch (node->kind) {
    case NODE_SET:
        return add_step(m, (struct step){ .kind = STEP_TAKE, .set = node->a, .out = next });
    case NODE_LOOK:
        return add_step(
            m, (struct step){
                   .kind = STEP_LOOK, .or_end = node->min != 0, .set = node->a, .out = next });
    case NODE_OR:
        return emit_or(m, at, next);
    case NODE_REPEAT:
        return emit_repeat(m, node, next);
    default:
        return next;
    }
}

static bool disjoint(const struct machine *m, unsigned n_classes, uint16_t a, uint16_t b) {
    bool apart = true;
    for (unsigned c = 0; c < n_classes; c++)
        apart &= !(m->members[c] >> a & 1 && m->members[c] >> b & 1);
    return apart;
}

/* A possessive repeat gives nothing back. That is the same as one that may give back when what
 * comes after it cannot take any of it, and asks for nothing else. */
static bool check_possessive(struct machine *m, const struct possessive *p, unsigned n_classes) {
    uint32_t n = 0;
    m->round++;
    m->stack[n++] = p->after;
    while (n) {
        uint16_t at = m->stack[--n];
        const struct step *step = &m->steps[at];
        if (m->seen[at] == m->round) continue;
        m->seen[at] = m->round;
        if (step->kind == STEP_LOOK ||
            (step->kind == STEP_TAKE && !disjoint(m, n_classes, step->set, p->set)))
            return refuse(m, "a possessive repeat that giving back would change");
        if (step->kind != STEP_BOTH) continue;
        m->stack[n++] = step->second;
        m->stack[n++] = step->out;
    }
    return true;
}

/* ---- classes --------------------------------------------------------------------------------- */

static bool class_of(struct machine *m, struct regex *re, uint64_t members, uint32_t *class) {
    for (*class = 0; *class < re->n_classes; ++*class)
        if (m->members[*class] == members) return true;
    if (re->n_classes == 255) return refuse(m, "more than 255 kinds of characters");
    m->members[re->n_classes++] = members;
    return true;
}

/* Cuts the code points where a set changes; those that are in the same sets are one class. */
static bool make_classes(struct machine *m, struct regex *re) {
    const struct regex_parts *parts = m->parts;
    size_t next[REGEX_MAX_SETS] = { 0 }, room = 1;
    uint64_t members = 0;
    for (int i = 0; i < parts->n_sets; i++)
        room += parts->sets[i].n;
    re->above = mem_alloc(room * sizeof *re->above);
    if (!re->above) {
        m->parts->no_memory = true;
        return false;
    }
    for (uint32_t from = 0, to; from < UNICODE_END; from = to) {
        uint32_t class;
        to = UNICODE_END;
        for (int i = 0; i < parts->n_sets; i++) {
            const struct code_set *set = &parts->sets[i];
            while (next[i] < set->n && set->at[next[i]] == from) {
                members ^= UINT64_C(1) << i;
                next[i]++;
            }
            if (next[i] < set->n && set->at[next[i]] < to) to = set->at[next[i]];
        }
        if (!class_of(m, re, members, &class)) return false;
        if (from < REGEX_BMP)
            memset(re->bmp + from, (int)class, (to < REGEX_BMP ? to : REGEX_BMP) - from);
        if (to > REGEX_BMP)
            re->above[re->n_above++] =
                (struct regex_range){ from < REGEX_BMP ? REGEX_BMP : from, class };
    }
    for (unsigned byte = 0; byte < 256; byte++)
        re->byte_class[byte] = re->bmp[regex_byte_character(byte)];
    re->n_classes++; /* the end of the text */
    return true;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The state with this list, which stands at the end of all lists; made when it is new. */
static bool find_state(struct machine *m, uint32_t n, uint32_t *index) {
    const uint16_t *list = m->lists + m->n_lists;
    for (*index = 0; *index < m->n_states; ++*index) {
        const struct state *s = &m->states[*index];
        if (s->n != n || memcmp(m->lists + s->at, list, n * sizeof *list) != 0) continue;
        m->work += *index;
        return true;
    }
    m->work += m->n_states;
    if (m->n_states == MAX_STATES) return refuse(m, "it needs more than 2048 states");
    m->states[m->n_states++] = (struct state){ m->n_lists, n };
    m->n_lists += n;
    return true;
}

static bool passes(const struct machine *m, const struct step *step, uint32_t class, bool end) {
    return end ? step->or_end : m->members[class] >> step->set & 1;
}

/* Where state `from` goes on a character of `class`. */
static bool step_on(struct machine *m, uint32_t from, uint32_t class, bool end, uint32_t *to,
                    bool *accept) {
    const struct state source = m->states[from];
    uint32_t n_made = 0;
    *accept = false;
    m->round++;
    for (uint32_t i = 0; i < source.n && !*accept; i++) {
        uint32_t n = 0;
        m->stack[n++] = m->lists[source.at + i];
        while (n && !*accept) {
            uint16_t at = m->stack[--n];
            const struct step *step = &m->steps[at];
            m->work++;
            if (m->seen[at] == m->round) continue;
            m->seen[at] = m->round;
            if (step->kind == STEP_END) {
                *accept = true;
            } else if (step->kind == STEP_BOTH) {
                m->stack[n++] = step->second;
                m->stack[n++] = step->out;
            } else if (step->kind == STEP_LOOK) {
                if (passes(m, step, class, end)) m->stack[n++] = step->out;
            } else if (!end && passes(m, step, class, false) && m->taken[step->out] != m->round) {
                m->taken[step->out] = m->round;
                m->lists[m->n_lists + n_made++] = step->out;
            }
        }
    }
    return find_state(m, n_made, to);
}

/* Rows of the table in the order in which states are found; row 0 is the state with no steps. */
static bool make_states(struct machine *m, struct regex *re) {
    size_t room = 0;
    uint32_t index;
    if (!find_state(m, 0, &index)) return false;
    m->lists[m->n_lists] = (uint16_t)m->parts->root;
    if (!find_state(m, 1, &index)) return false;
    for (uint32_t from = 0; from < m->n_states; from++) {
        if ((from + 1) * (size_t)re->n_classes > room) {
            room = 2 * room + 16 * (size_t)re->n_classes;
            uint32_t *next = mem_resize(re->next, room * sizeof *next);
            if (!next) {
                m->parts->no_memory = true;
                return false;
            }
            re->next = next;
        }
        for (uint32_t class = 0; class < re->n_classes; class ++) {
            bool accept, end = class + 1 == re->n_classes;
            if (m->n_lists > MAX_LISTS - MAX_STEPS || m->work > MAX_WORK)
                return refuse(m, "it is too complicated");
            if (!step_on(m, from, class, end, &index, &accept)) return false;
            re->next[from * re->n_classes + class] =
                index * re->n_classes | (accept ? REGEX_ACCEPT : 0);
        }
    }
    re->n_states = m->n_states;
    return true;
}

static bool check_start(struct machine *m, struct regex *re) {
    for (uint32_t class = 0; class < re->n_classes; class ++) {
        uint32_t next = re->next[re->n_classes + class];
        if (next & REGEX_ACCEPT) return refuse(m, "it can match nothing at all");
        if (class + 1 < re->n_classes) re->begins[class] = next != 0;
    }
    return true;
}

bool regex_build(struct regex *re, struct regex_parts *parts) {
    struct machine *m = mem_calloc(1, sizeof *m);
    if (m) m->lists = mem_alloc(MAX_LISTS * sizeof *m->lists);
    bool ok = m && m->lists;
    if (!ok) parts->no_memory = true;
    if (ok) {
        m->parts = parts;
        uint16_t end = add_step(m, (struct step){ .kind = STEP_END });
        parts->root = emit(m, parts->root, end);
        ok = !parts->why && make_classes(m, re);
        for (int i = 0; ok && i < m->n_possessive; i++)
            ok = check_possessive(m, &m->possessive[i], re->n_classes - 1);
        ok = ok && make_states(m, re) && check_start(m, re);
    }
    if (m) mem_free(m->lists);
    mem_free(m);
    return ok;
}

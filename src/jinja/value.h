/* Values of a rendering, and the job they belong to. Python's values as far as templates meet them:
 * a struct value is passed by value, what it points to lives in an arena and is never freed alone.
 *
 * A function that can fail returns a value of the kind V_FAILED, or NULL or false, after fail() has
 * written the message into the job; the first message stays. */
#ifndef REEL_JINJA_VALUE_H
#define REEL_JINJA_VALUE_H

#include "jinja/arena.h"
#include "jinja/jinja.h"

enum kind {
    V_FAILED,
    V_MISSING, /* no value at all: an argument not given, a name not set */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_BIG, /* an integer beyond 64 bits, from JSON: printed, compared, never computed with */
    V_TEXT,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_RANGE,
    V_VIEW, /* keys(), values(), items() of a dict */
    V_GENERATOR,
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_METHOD,
    V_FUNCTION, /* range, namespace, raise_exception, ... */
    V_CYCLER,
    V_JOINER,
    V_RECURSE /* the loop as its recursive self */
};

struct value {
    uint8_t kind;
    bool foreign; /* numbers, booleans, None, undefined: made from what is not the template's */
    union {
        bool b;
        int64_t i;
        double f;
        struct text *text;
        struct list *list; /* also of a tuple */
        struct dict *dict; /* also of a namespace */
        struct range *range;
        struct view *view;
        struct generator *generator;
        struct loop *loop;
        struct macro *macro;
        struct method *method;
        const struct function *function;
        struct cycler *cycler;
        struct joiner *joiner;
        const struct undefined *undefined;
    };
};

/* What the caller holds. */
struct jinja_value {
    struct value v;
};

/* UTF-8 with a mark for each byte: 1 is foreign. */
struct text {
    const char *bytes;
    size_t n;
    const uint8_t *marks; /* NULL: all bytes are as `foreign` says */
    bool foreign;         /* with marks: some byte is */
    bool safe;            /* Markup: what |safe and |escape return */
    uint32_t hash;        /* 0: not yet known */
    ptrdiff_t n_chars;    /* -1: not yet known */
    struct growth *growth;
};

struct list {
    struct value *items;
    size_t n, cap;
    bool foreign; /* it or something in it */
    bool group;   /* what |groupby makes: its items have the names grouper and list */
};

struct pair {
    struct value key, item;
    uint32_t hash;
};

struct dict {
    struct pair *pairs;
    size_t n, cap;
    uint32_t *slots; /* number of a pair + 1, by hash; NULL while there are few */
    size_t n_slots;
    bool foreign;
};

struct range {
    int64_t start, stop, step;
    size_t n;
};

enum view_part { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
struct view {
    struct dict *dict;
    enum view_part part;
};

struct keyword {
    struct text *name;
    struct value value;
};
struct args {
    struct value *items;
    int n;
    struct keyword *keywords;
    int n_keywords;
};

struct job;
typedef struct value filter_fn(struct job *job, struct value in, const struct args *args);
typedef struct value test_fn(struct job *job, struct value in, const struct args *args);
typedef struct value function_fn(struct job *job, const struct args *args);

/* An iterator that is used up. Its items are made when the first is asked for. */
struct generator {
    filter_fn *make; /* NULL: `items` is filled */
    struct value in;
    struct args args;
    struct list *items;
    size_t next;
    bool foreign; /* before there are items: what they are made from is */
};

struct function {
    const char *name;
    function_fn *call;
};

struct method {
    struct value self;
    const struct method_entry *entry;
};

struct cycler {
    struct list *items;
    size_t at;
};

struct joiner {
    struct value sep;
    bool used;
};

/* Why something is undefined: the message of the error that using it gives. */
struct undefined {
    const char *hint;        /* the whole message, or NULL */
    const struct text *name; /* of a variable or attribute */
    const char *owner;       /* what has no such attribute; NULL: a variable */
    struct value index;      /* where not a name but another index was asked for */
    bool unsafe;             /* the sandbox forbids it */
};

struct iter {
    struct value source;
    size_t at;
};

struct job {
    struct arena *arena;
    struct jinja_limits limits;
    const char *name; /* of the template */
    int line;
    bool failed;
    struct reel_error error;
    size_t steps;
    int depth; /* C calls inside each other, as far as templates decide them */
    int calls;
    const struct jinja_template *template;
    const struct value *context; /* the variables, by number of their names */
    const struct tm *now;
};

/* Writes "NAME:LINE: ..." into the job and returns the failed value. */
struct value fail(struct job *job, enum reel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define fail_python(job, ...) fail(job, REEL_E_FORMAT, __VA_ARGS__)
struct value fail_limit(struct job *job, const char *what, size_t limit);

/* Counts n steps; false when they are too many, or the job has failed. */
bool job_too_many_steps(struct job *job);
static inline bool job_step(struct job *job, size_t n) {
    if (job->failed || n > job->limits.steps - job->steps) return job_too_many_steps(job);
    job->steps += n;
    return true;
}
/* Looking at n bytes. */
static inline bool job_look(struct job *job, size_t n_bytes) {
    return job_step(job, 1 + n_bytes / 16);
}
/* One level deeper into recursion; false when that is too deep. job_leave is due only after true.
 */
bool job_enter(struct job *job);
static inline void job_leave(struct job *job) { job->depth--; }

/* Memory of the job: zeroed or not; NULL after fail(). */
void *job_take(struct job *job, size_t n, size_t size);
void *job_raw(struct job *job, size_t n, size_t size);

/* ---- making values --------------------------------------------------------------------------- */

static inline struct value v_kind(enum kind kind) {
    return (struct value){ .kind = (uint8_t)kind };
}
static inline struct value v_none(void) { return v_kind(V_NONE); }
static inline struct value v_failed(void) { return v_kind(V_FAILED); }
static inline struct value v_missing(void) { return v_kind(V_MISSING); }
static inline struct value v_bool(bool b) { return (struct value){ .kind = V_BOOL, .b = b }; }
static inline struct value v_int(int64_t i) { return (struct value){ .kind = V_INT, .i = i }; }
static inline struct value v_float(double f) { return (struct value){ .kind = V_FLOAT, .f = f }; }
static inline struct value v_text(struct text *t) {
    return t ? (struct value){ .kind = V_TEXT, .text = t } : v_failed();
}
static inline struct value v_list(struct list *l) {
    return l ? (struct value){ .kind = V_LIST, .list = l } : v_failed();
}
static inline struct value v_tuple(struct list *l) {
    return l ? (struct value){ .kind = V_TUPLE, .list = l } : v_failed();
}
static inline struct value v_dict(struct dict *d) {
    return d ? (struct value){ .kind = V_DICT, .dict = d } : v_failed();
}
static inline bool is_failed(struct value v) { return v.kind == V_FAILED; }
static inline bool is_given(struct value v) { return v.kind != V_MISSING; }

/* The same value, foreign when `foreign` says so too. */
static inline struct value v_marked(struct value v, bool foreign) {
    v.foreign |= foreign;
    return v;
}
/* Whether the value, or anything in it, is foreign. */
bool value_foreign(struct value v);

/* ---- lists and dicts ------------------------------------------------------------------------- */

struct list *list_new(struct job *job, size_t cap);
bool list_add(struct job *job, struct list *list, struct value item);
struct list *list_part(struct job *job, const struct list *list, size_t from, size_t n);
/* Stable, by `keys` (as many as items) or, where that is NULL, by the items. */
bool list_sort(struct job *job, struct list *list, const struct list *keys, bool reverse);

struct dict *dict_new(struct job *job, size_t cap);
/* Replaces the item of a key that is there. Fails for keys that Python cannot hash. */
bool dict_set(struct job *job, struct dict *dict, struct value key, struct value item);
/* NULL when there is none, or after a failure. */
struct pair *dict_find(struct job *job, const struct dict *dict, struct value key);
struct pair *dict_find_text(struct job *job, const struct dict *dict, struct text *key);
struct pair *dict_find_word(struct job *job, const struct dict *dict, const char *word);

struct value dict_view(struct job *job, struct dict *dict, enum view_part part);

/* ---- what Python does with any value --------------------------------------------------------- */

const char *type_name(struct value v); /* "str", "dict", ... */
bool value_true(struct value v);
/* -1 after failing: the value has no length. */
ptrdiff_t value_length(struct job *job, struct value v);
bool values_equal(struct job *job, struct value a, struct value b);
/* a < b by Python's order; fails when they have none. `symbol` is the operator in the message. */
bool value_less(struct job *job, struct value a, struct value b, const char *symbol);
bool value_contains(struct job *job, struct value whole, struct value part);
/* False after failing: the value cannot be hashed. */
bool value_hash(struct job *job, struct value v, uint32_t *hash);
bool values_same(struct value a, struct value b); /* Python's `is` */
bool is_number(struct value v);                   /* bool, int or float */
double as_float(struct value v);                  /* of a number */
int64_t as_int(struct value v);                   /* of a bool or an int */
static inline bool is_int(struct value v) { return v.kind == V_INT || v.kind == V_BOOL; }
static inline bool is_text(struct value v) { return v.kind == V_TEXT; }
static inline bool is_mapping(struct value v) { return v.kind == V_DICT; }

bool is_iterable(struct value v);
bool iter_open(struct job *job, struct value v, struct iter *it);
/* False at the end and after a failure. */
bool iter_next(struct job *job, struct iter *it, struct value *item);
/* All that is left; the value's own list where it is one. */
struct list *value_items(struct job *job, struct value v);
struct value generator_of(struct job *job, filter_fn *make, struct value in,
                          const struct args *args);
struct value generator_list(struct job *job, struct list *items);

/* value[index], value.name, value[from:to:step] as jinja2's sandbox does them. */
struct value value_item(struct job *job, struct value v, struct value index);
struct value value_attribute(struct job *job, struct value v, struct text *name);
struct value value_slice(struct job *job, struct value v, struct value from, struct value to,
                         struct value step);
struct value undefined_name(struct job *job, const struct text *name);
struct value undefined_hint(struct job *job, const char *hint);
struct value fail_undefined(struct job *job, struct value v);

struct value value_call(struct job *job, struct value callee, const struct args *args);

/* ---- operators ------------------------------------------------------------------------------- */

enum operator{ OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
struct value operate(struct job *job, enum operator op, struct value a, struct value b);
struct value negate(struct job *job, struct value v, bool minus);
enum comparison { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };
/* False also after a failure. */
bool compare(struct job *job, enum comparison op, struct value a, struct value b);

/* ---- arguments ------------------------------------------------------------------------------- */

/* Sorts what was given into `out`, one for each of the `names` (spaces between them), V_MISSING
 * where nothing was. False after failing: too many, an unknown keyword, fewer than `required`. */
bool args_bind(struct job *job, const struct args *args, const char *what, const char *names,
               int required, struct value *out);

/* ---- tables ---------------------------------------------------------------------------------- */

struct filter_entry {
    const char *name;
    filter_fn *fn;
    bool lazy; /* a generator in jinja2 */
};
struct test_entry {
    const char *name;
    test_fn *fn;
};
struct method_entry {
    const char *name;
    filter_fn *fn; /* in: the object */
    bool unsafe;   /* would change the object */
};
const struct filter_entry *filter_find(const char *name, size_t n);
const struct test_entry *test_find(const char *name, size_t n);
const struct function *function_find(const char *name, size_t n);
const struct method_entry *method_find(enum kind kind, const char *name, size_t n);
struct value method_call(struct job *job, const struct method *method, const struct args *args);
struct value filter_apply(struct job *job, const struct filter_entry *filter, struct value in,
                          const struct args *args);

#endif

/* Lists and dicts, and going through whatever can be gone through. */
#include "jinja/text.h"

struct list *list_new(struct job *job, size_t cap) {
    struct list *list = job_take(job, 1, sizeof *list);
    if (!list) return NULL;
    if (cap) {
        list->items = job_raw(job, cap, sizeof *list->items);
        if (!list->items) return NULL;
    }
    list->cap = cap;
    return list;
}

bool list_add(struct job *job, struct list *list, struct value item) {
    if (!list || is_failed(item) || !job_step(job, 1)) return false;
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        struct value *items = job_raw(job, cap, sizeof *items);
        if (!items) return false;
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = item;
    list->foreign |= value_foreign(item);
    return true;
}

struct list *list_part(struct job *job, const struct list *list, size_t from, size_t n) {
    struct list *part = list_new(job, n);
    for (size_t i = 0; part && i < n; i++)
        if (!list_add(job, part, list->items[from + i])) return NULL;
    return part;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

enum { FEW_PAIRS = 8 }; /* up to here a search looks at each */

struct dict *dict_new(struct job *job, size_t cap) {
    struct dict *dict = job_take(job, 1, sizeof *dict);
    if (!dict) return NULL;
    if (cap) {
        dict->pairs = job_raw(job, cap, sizeof *dict->pairs);
        if (!dict->pairs) return NULL;
    }
    dict->cap = cap;
    return dict;
}

static bool same_key(struct job *job, const struct pair *pair, struct value key, uint32_t hash) {
    if (pair->hash != hash) return false;
    if (is_text(key) && is_text(pair->key)) return texts_equal(key.text, pair->key.text);
    return values_equal(job, pair->key, key);
}

static struct pair *find_hashed(struct job *job, const struct dict *dict, struct value key,
                                uint32_t hash) {
    if (!dict->slots) {
        for (size_t i = 0; i < dict->n; i++)
            if (same_key(job, &dict->pairs[i], key, hash)) return &dict->pairs[i];
        return NULL;
    }
    size_t mask = dict->n_slots - 1;
    for (size_t i = hash & mask; dict->slots[i]; i = (i + 1) & mask) {
        if (!job_step(job, 1)) return NULL;
        struct pair *pair = &dict->pairs[dict->slots[i] - 1];
        if (same_key(job, pair, key, hash)) return pair;
    }
    return NULL;
}

struct pair *dict_find(struct job *job, const struct dict *dict, struct value key) {
    uint32_t hash = 0;
    if (!value_hash(job, key, &hash)) return NULL;
    return find_hashed(job, dict, key, hash);
}

struct pair *dict_find_text(struct job *job, const struct dict *dict, struct text *key) {
    return find_hashed(job, dict, v_text(key), text_hash(key));
}

struct pair *dict_find_word(struct job *job, const struct dict *dict, const char *word) {
    struct text key = { .bytes = word, .n = strlen(word) };
    return dict_find_text(job, dict, &key);
}

static void fill_slot(struct dict *dict, size_t number) {
    size_t mask = dict->n_slots - 1;
    size_t i = dict->pairs[number].hash & mask;
    while (dict->slots[i])
        i = (i + 1) & mask;
    dict->slots[i] = (uint32_t)number + 1;
}

static bool dict_grow(struct job *job, struct dict *dict) {
    size_t cap = dict->cap ? dict->cap * 2 : 4;
    struct pair *pairs = job_raw(job, cap, sizeof *pairs);
    if (!pairs) return false;
    if (dict->n) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
    dict->pairs = pairs;
    dict->cap = cap;
    return true;
}

/* Called with a free place in pairs; at most half of the slots are taken. */
static bool index_pairs(struct job *job, struct dict *dict) {
    if (dict->n < FEW_PAIRS) return true;
    if (dict->slots && dict->n * 2 < dict->n_slots) {
        fill_slot(dict, dict->n - 1);
        return true;
    }
    size_t n = dict->n_slots ? dict->n_slots * 2 : (size_t)4 * FEW_PAIRS;
    dict->slots = job_take(job, n, sizeof *dict->slots);
    if (!dict->slots) return false;
    dict->n_slots = n;
    for (size_t i = 0; i < dict->n; i++)
        fill_slot(dict, i);
    return true;
}

bool dict_set(struct job *job, struct dict *dict, struct value key, struct value item) {
    uint32_t hash = 0;
    if (!dict || is_failed(key) || is_failed(item) || !job_step(job, 1)) return false;
    if (!value_hash(job, key, &hash)) return false;
    dict->foreign |= value_foreign(key) || value_foreign(item);
    struct pair *pair = find_hashed(job, dict, key, hash);
    if (job->failed) return false;
    if (pair) {
        pair->item = item;
        return true;
    }
    if (dict->n == dict->cap && !dict_grow(job, dict)) return false;
    dict->pairs[dict->n++] = (struct pair){ key, item, hash };
    return index_pairs(job, dict);
}

/* ---- iterating ------------------------------------------------------------------------------- */

struct value generator_of(struct job *job, filter_fn *make, struct value in,
                          const struct args *args) {
    struct generator *g = job_take(job, 1, sizeof *g);
    if (!g) return v_failed();
    g->make = make;
    g->in = in;
    g->foreign = value_foreign(in);
    g->args = *args;
    /* The arguments may lie on the caller's stack. */
    g->args.items = job_raw(job, (size_t)args->n, sizeof *args->items);
    g->args.keywords = job_raw(job, (size_t)args->n_keywords, sizeof *args->keywords);
    if (!g->args.items || !g->args.keywords) return v_failed();
    if (args->n) memcpy(g->args.items, args->items, (size_t)args->n * sizeof *args->items);
    if (args->n_keywords)
        memcpy(g->args.keywords, args->keywords, (size_t)args->n_keywords * sizeof *args->keywords);
    return (struct value){ .kind = V_GENERATOR, .generator = g };
}

struct value generator_list(struct job *job, struct list *items) {
    struct generator *g = job_take(job, 1, sizeof *g);
    if (!g || !items) return v_failed();
    g->items = items;
    return (struct value){ .kind = V_GENERATOR, .generator = g };
}

/* Makes the items of a generator that nobody has asked yet. */
static bool generator_fill(struct job *job, struct generator *g) {
    if (g->items) return true;
    if (!job_enter(job)) return false; /* generators take from generators */
    struct value made = g->make(job, g->in, &g->args);
    job_leave(job);
    if (is_failed(made)) return false;
    g->items = made.list;
    return true;
}

bool is_iterable(struct value v) {
    switch (v.kind) {
    case V_UNDEFINED:
    case V_TEXT:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW:
    case V_GENERATOR:
        return true;
    default:
        return false;
    }
}

bool iter_open(struct job *job, struct value v, struct iter *it) {
    *it = (struct iter){ .source = v };
    if (is_failed(v)) return false;
    if (!is_iterable(v)) {
        fail_python(job, "'%s' object is not iterable", type_name(v));
        return false;
    }
    return true;
}

static struct value pair_value(struct job *job, const struct dict *dict, size_t i,
                               enum view_part part) {
    if (part == VIEW_KEYS) return dict->pairs[i].key;
    if (part == VIEW_VALUES) return dict->pairs[i].item;
    struct list *two = list_new(job, 2);
    if (!list_add(job, two, dict->pairs[i].key) || !list_add(job, two, dict->pairs[i].item))
        return v_failed();
    return v_tuple(two);
}

bool iter_next(struct job *job, struct iter *it, struct value *item) {
    struct value v = it->source;
    if (!job_step(job, 1)) return false;
    switch (v.kind) {
    case V_LIST:
    case V_TUPLE:
        if (it->at >= v.list->n) return false;
        *item = v.list->items[it->at++];
        return true;
    case V_DICT:
        if (it->at >= v.dict->n) return false;
        *item = v.dict->pairs[it->at++].key;
        return true;
    case V_VIEW:
        if (it->at >= v.view->dict->n) return false;
        *item = pair_value(job, v.view->dict, it->at++, v.view->part);
        return !is_failed(*item);
    case V_RANGE:
        if (it->at >= v.range->n) return false;
        *item = v_marked(v_int(v.range->start + (int64_t)it->at++ * v.range->step), v.foreign);
        return true;
    case V_TEXT: {
        if (it->at >= v.text->n) return false;
        size_t end = it->at + char_bytes(v.text->bytes[it->at]);
        *item = v_text(text_part(job, v.text, it->at, end));
        it->at = end;
        return !is_failed(*item);
    }
    case V_GENERATOR:
        if (!generator_fill(job, v.generator)) return false;
        if (v.generator->next >= v.generator->items->n) return false;
        *item = v.generator->items->items[v.generator->next++];
        return true;
    default:
        return false;
    }
}

struct list *value_items(struct job *job, struct value v) {
    if (v.kind == V_LIST || v.kind == V_TUPLE) return v.list;
    struct iter it;
    struct value item;
    if (!iter_open(job, v, &it)) return NULL;
    struct list *list = list_new(job, 0);
    while (list && iter_next(job, &it, &item))
        if (!list_add(job, list, item)) return NULL;
    if (list) list->foreign |= value_foreign(v);
    return job->failed ? NULL : list;
}

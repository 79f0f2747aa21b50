#include "server/id_lists.h"

#include "base/memory.h"

#include "server/api_error.h"

#include <limits.h>
#include <string.h>

static bool no_memory(struct exchange *x) {
    api_error(x, 503, NULL, NULL, "out of memory");
    return false;
}

/* Room for so many ids more. */
static bool reserve(struct id_lists *l, struct exchange *x, size_t n) {
    size_t most = l->n_ids + n;
    if (most <= l->most_ids && l->ids) return true;
    if (most < 2 * l->most_ids) most = 2 * l->most_ids;
    int32_t *ids = mem_resize(l->ids, (most ? most : 1) * sizeof *ids);
    if (!ids) return no_memory(x);
    l->ids = ids;
    l->most_ids = most;
    return true;
}

/* Room for one list more. */
static bool begin_list(struct id_lists *l, struct exchange *x, const char *text) {
    const size_t room = (size_t)l->n + 1;
    if ((room & (room - 1)) == 0) { /* at 1, 2, 4, 8, ... */
        int *lengths = mem_resize(l->lengths, 2 * room * sizeof *lengths);
        if (lengths) l->lengths = lengths;
        const char **texts = mem_resize(l->texts, 2 * room * sizeof *texts);
        if (texts) l->texts = texts;
        if (!lengths || !texts) return no_memory(x);
    }
    l->texts[l->n] = text;
    l->lengths[l->n++] = 0;
    return true;
}

bool id_lists_add_text(struct id_lists *l, struct exchange *x, const char *key, const char *text,
                       size_t n_bytes, const struct served_model *m, unsigned flags) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(m->model);
    struct reel_error err = { 0 };
    size_t n = 0;
    if (strlen(text) != n_bytes) return field_refuse(x, key, "has a zero byte in it");
    if (!begin_list(l, x, text) || !reserve(l, x, n_bytes + 16)) return false;
    enum reel_status status =
        reel_encode(tok, text, n_bytes, flags, l->ids + l->n_ids, l->most_ids - l->n_ids, &n, &err);
    if (status == REEL_E_LIMIT && n > l->most_ids - l->n_ids) { /* rare characters */
        if (!reserve(l, x, n)) return false;
        status = reel_encode(tok, text, n_bytes, flags, l->ids + l->n_ids, l->most_ids - l->n_ids,
                             &n, &err);
    }
    if (status != REEL_OK) return field_refuse(x, key, "cannot be encoded: %s", err.text);
    if (n > INT_MAX) return field_refuse(x, key, "has too many tokens");
    l->lengths[l->n - 1] = (int)n;
    l->n_ids += n;
    return true;
}

static bool add_ids(struct id_lists *l, struct exchange *x, const char *key, const json_t *list,
                    const struct served_model *m) {
    const size_t n = json_array_size(list);
    if (!begin_list(l, x, NULL) || !reserve(l, x, n)) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        const double id = json_number_value(value);
        if (!json_is_number(value))
            return field_refuse(x, key, "has a list of ids with something else at place %zu", i);
        if (!(id >= 0 && id < m->info.vocab) || id != (double)(int32_t)id)
            return field_refuse(x, key, "has the id %g; the model's are 0 to %d", id,
                                m->info.vocab - 1);
        l->ids[l->n_ids++] = (int32_t)id;
    }
    l->lengths[l->n - 1] = (int)n;
    return true;
}

static bool add_value(struct id_lists *l, struct exchange *x, const char *key, const json_t *value,
                      const struct served_model *m, unsigned flags) {
    if (json_is_array(value)) return add_ids(l, x, key, value, m);
    if (json_is_string(value))
        return id_lists_add_text(l, x, key, json_string_value(value), json_string_length(value), m,
                                 flags);
    return field_refuse(x, key,
                        "must be a text, a list of texts, a list of token ids or a list of "
                        "such lists");
}

bool id_lists_read(struct id_lists *l, struct exchange *x, const json_t *object, const char *key,
                   const struct served_model *m, unsigned flags) {
    const json_t *value = json_object_get(object, key);
    const size_t n = json_array_size(value);
    *l = (struct id_lists){ 0 };
    if (!value || json_is_null(value)) return field_refuse(x, key, "is missing");
    if (!json_is_array(value) || json_is_number(json_array_get(value, 0)))
        return add_value(l, x, key, value, m, flags);
    if (n == 0 || n > MOST_LISTS)
        return field_refuse(x, key, "is a list of %zu; allowed are 1 to %d", n, MOST_LISTS);
    for (size_t i = 0; i < n; i++)
        if (!add_value(l, x, key, json_array_get(value, i), m, flags)) return false;
    return true;
}

void id_lists_release(struct id_lists *l) {
    mem_free(l->lengths);
    mem_free(l->texts);
    mem_free(l->ids);
}

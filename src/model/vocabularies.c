#include "model/vocabularies.h"

#include "base/numbers.h"

#include <stdio.h>
#include <string.h>

static const char *name_of(const struct model *m) { return m->name ? m->name : "a model"; }

/* How many ids both have. Rows of the output matrix without a token are padding, of one vocabulary
 * or, where both have the same tokens, of both. */
static int common_ids(const struct model *model, const struct model *draft) {
    const int rows = int_min(model->config.vocab, draft->config.vocab);
    if (!model->tokenizer || !draft->tokenizer) return rows;
    const int n = tokenizer_size(model->tokenizer), n_draft = tokenizer_size(draft->tokenizer);
    return n == n_draft ? rows : int_min(int_min(n, n_draft), rows);
}

static bool is_same(const struct reel_tokenizer *a, const struct reel_tokenizer *b, int32_t id) {
    size_t n = 0, n_other = 0;
    const char *bytes = tokenizer_bytes(a, id, &n), *other = tokenizer_bytes(b, id, &n_other);
    if (!bytes || !other) return !bytes && !other;
    return n == n_other && memcmp(bytes, other, n) == 0 &&
           tokenizer_is_control(a, id) == tokenizer_is_control(b, id);
}

/* What people see of a token: its first bytes, those that cannot be printed as \xNN. */
struct shown {
    char text[100];
};

static struct shown show(const struct reel_tokenizer *tok, int32_t id) {
    enum { MOST = 16 };
    struct shown s = { "no token" };
    size_t n = 0, at = 0;
    const char *bytes = tokenizer_bytes(tok, id, &n);
    if (!bytes) return s;
    at += (size_t)snprintf(s.text, sizeof s.text, "%s\"",
                           tokenizer_is_control(tok, id) ? "the control token " : "");
    for (size_t i = 0; i < n && i < MOST; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, plain ? "%c" : "\\x%02x", c);
    }
    snprintf(s.text + at, sizeof s.text - at, n > MOST ? "...\"" : "\"");
    return s;
}

static enum reel_status compare_tokens(const struct model *model, const struct model *draft,
                                       int n_ids, struct reel_error *err) {
    for (int32_t id = 0; id < n_ids; id++) {
        if (is_same(model->tokenizer, draft->tokenizer, id)) continue;
        const struct shown own = show(model->tokenizer, id), other = show(draft->tokenizer, id);
        return err_set(err, REEL_E_MISMATCH,
                       "%.100s cannot guess for %.100s: id %d is %s there and %s here",
                       name_of(draft), name_of(model), (int)id, other.text, own.text);
    }
    return REEL_OK;
}

/* A model that ends its texts in another way would guess that the wrong end comes. */
static enum reel_status compare_ends(const struct model *model, const struct model *draft,
                                     struct reel_error *err) {
    const struct model_config *a = &model->config, *b = &draft->config;
    for (int i = 0; i < a->n_stop_ids; i++)
        for (int j = 0; j < b->n_stop_ids; j++)
            if (a->stop_ids[i] == b->stop_ids[j]) return REEL_OK;
    if (a->n_stop_ids == 0 || b->n_stop_ids == 0) return REEL_OK;
    return err_set(err, REEL_E_MISMATCH,
                   "%.100s cannot guess for %.100s: id %d ends its texts, which is none of the ids "
                   "that end those of the other, such as %d",
                   name_of(draft), name_of(model), b->stop_ids[0], a->stop_ids[0]);
}

enum reel_status vocabularies_compare(const struct model *model, const struct model *draft,
                                      int *n_ids, struct reel_error *err) {
    const struct model *bare = !model->tokenizer ? model : draft;
    *n_ids = common_ids(model, draft);
    if (!model->tokenizer != !draft->tokenizer)
        return err_set(err, REEL_E_MISMATCH,
                       "%.100s cannot guess for %.100s: %.100s has no tokenizer, so it is not "
                       "known what its ids mean",
                       name_of(draft), name_of(model), name_of(bare));
    enum reel_status status = REEL_OK;
    if (model->tokenizer) status = compare_tokens(model, draft, *n_ids, err);
    return status == REEL_OK ? compare_ends(model, draft, err) : status;
}

/* POST /v1/embeddings. The texts of a request become vectors together, packed as the library does.
 */
#include "server/handlers.h"
#include "server/id_lists.h"
#include "server/json_out.h"

#include "base/memory.h"

#include "server/api_error.h"
#include "server/base64.h"

#include <stdint.h>
#include <string.h>

struct embedding {
    struct exchange *x;
    struct served_model *model;
    struct id_lists lists;
    int dimensions; /* 0: all */
    bool base64;
    int64_t
        most_ids;   /* of a text; longer ones are cut. 0: longer ones than a session are refused */
    float *vectors; /* f32 [lists.n, width] */
    int width;
};

/* ---- the request ---- */

/* A model that was not made for it answers vectors, too, and nobody would see that they say little.
 */
static bool check_embeds(const struct embedding *e) {
    struct reel_embed_info info = { .size = sizeof info };
    struct reel_error err = { 0 };
    if (reel_model_get_embed_info(e->model->model, &info, &err) != REEL_OK) {
        api_error_from(e->x, &err);
        return false;
    }
    if (info.stated) return true;
    return field_refuse(e->x, "model",
                        "is %s, whose files do not say that it was made for embedding",
                        e->model->name);
}

static bool read_format(struct embedding *e, const json_t *json) {
    const char *format = NULL;
    if (!field_text(e->x, json, "encoding_format", &format)) return false;
    if (!format) return true;
    e->base64 = strcmp(format, "base64") == 0;
    if (e->base64 || strcmp(format, "float") == 0) return true;
    return field_refuse(e->x, "encoding_format", "is '%.40s'; allowed are float and base64",
                        format);
}

static bool read_lengths(struct embedding *e, const json_t *json) {
    int64_t dimensions = 0;
    const double most = json_number_value(json_object_get(json, "truncate_prompt_tokens"));
    if (!field_int(e->x, json, "dimensions", 1, e->model->info.hidden, &dimensions)) return false;
    e->dimensions = (int)dimensions;
    if (most == -1) { /* vLLM's word for as many as there is room for */
        e->most_ids = e->model->context;
        return true;
    }
    return field_int(e->x, json, "truncate_prompt_tokens", 1, e->model->context, &e->most_ids);
}

/* How many of the ids of a text the model puts behind it: those stay when the text is cut. */
static bool count_end(const struct embedding *e, size_t *n_end) {
    struct reel_error err = { 0 };
    int32_t ids[64];
    size_t plain = 0, all = 0, before = 0;
    const struct reel_tokenizer *tok = reel_model_tokenizer(e->model->model);
    enum reel_status status = reel_encode(tok, "a", 1, REEL_ENCODE_SPECIAL, ids, 32, &all, &err);
    if (status == REEL_OK) status = reel_encode(tok, "a", 1, 0, ids + 32, 32, &plain, &err);
    if (status != REEL_OK) {
        api_error_from(e->x, &err);
        return false;
    }
    while (before + plain < all && memcmp(ids + before, ids + 32, plain * sizeof *ids) != 0)
        before++;
    *n_end = all > before + plain ? all - before - plain : 0;
    return true;
}

/* Cuts what is longer than most_ids; of a text, not its end token. */
static bool cut(struct embedding *e) {
    struct id_lists *l = &e->lists;
    size_t from = 0, to = 0, n_end = 0;
    if (!count_end(e, &n_end)) return false;
    for (int i = 0; i < l->n; i++) {
        const size_t n = (size_t)l->lengths[i], most = (size_t)e->most_ids;
        const size_t end = l->texts[i] ? n_end : 0, kept = n < most ? n : most;
        if (n > most && end >= most)
            return field_refuse(e->x, "truncate_prompt_tokens", "leaves no room for a text");
        memmove(l->ids + to, l->ids + from, kept * sizeof *l->ids);
        memmove(l->ids + to + kept - end, l->ids + from + n - end, end * sizeof *l->ids);
        l->lengths[i] = (int)kept;
        to += kept;
        from += n;
    }
    l->n_ids = to;
    return true;
}

static bool check_lengths(struct embedding *e) {
    if (e->most_ids && !cut(e)) return false;
    for (int i = 0; i < e->lists.n; i++) {
        const int n = e->lists.lengths[i];
        if (n == 0) return field_refuse(e->x, "input", "has a text %d without tokens", i);
        if (n <= e->model->context) continue;
        api_error(e->x, 400, "input", "context_length_exceeded",
                  "text %d of 'input' has %d tokens; this server's sessions hold %d (--ctx); "
                  "truncate_prompt_tokens -1 cuts its end",
                  i, n, e->model->context);
        return false;
    }
    return true;
}

static bool read_request(struct embedding *e, const json_t *json) {
    const char *name = NULL;
    if (!field_text(e->x, json, "model", &name)) return false;
    e->model = exchange_need_model(e->x, name, false);
    return e->model && check_embeds(e) && read_format(e, json) && read_lengths(e, json) &&
           id_lists_read(&e->lists, e->x, json, "input", e->model, REEL_ENCODE_SPECIAL) &&
           check_lengths(e);
}

/* ---- the vectors ---- */

static enum reel_status run(struct embedding *e, struct reel_error *err) {
    struct session_lease lease;
    const size_t n = (size_t)e->lists.n;
    e->width = e->dimensions ? e->dimensions : e->model->info.hidden;
    enum reel_status status =
        mem_zeroed(&e->vectors, n * (size_t)e->width, sizeof *e->vectors, "vectors", err);
    if (status == REEL_OK) status = session_lease_take(&lease, e->model, e->x, NULL, 0, err);
    if (status != REEL_OK) return status;
    const struct reel_embed embed = { .size = sizeof embed,
                                      .ids = e->lists.ids,
                                      .lengths = e->lists.lengths,
                                      .n_texts = e->lists.n,
                                      .dimensions = e->dimensions,
                                      .out = e->vectors,
                                      .out_floats = n * (size_t)e->width };
    status = reel_session_embed(lease.session, &embed, err);
    session_lease_give(&lease, e->model, e->x);
    exchange_figures(e->x)->n_prompt = (int)e->lists.n_ids;
    return status;
}

/* Little-endian float32, whatever this machine has. */
static enum reel_status put_base64(struct buffer *out, const float *vector, int n) {
    struct buffer bytes = { 0 };
    enum reel_status status = buffer_text(&bytes, "", NULL);
    for (int i = 0; i < n && status == REEL_OK; i++) {
        uint32_t bits;
        memcpy(&bits, &vector[i], sizeof bits);
        const unsigned char four[4] = { (unsigned char)bits, (unsigned char)(bits >> 8),
                                        (unsigned char)(bits >> 16), (unsigned char)(bits >> 24) };
        status = buffer_append(&bytes, four, sizeof four, NULL);
    }
    if (status == REEL_OK) status = buffer_text(out, "\"", NULL);
    if (status == REEL_OK) status = base64_write(out, bytes.bytes, bytes.size, NULL);
    buffer_release(&bytes);
    return status == REEL_OK ? buffer_text(out, "\"", NULL) : status;
}

static enum reel_status put_floats(struct buffer *out, const float *vector, int n) {
    enum reel_status status = buffer_text(out, "[", NULL);
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = buffer_printf(out, NULL, "%s%.9g", i ? "," : "", (double)vector[i]);
    return status == REEL_OK ? buffer_text(out, "]", NULL) : status;
}

static enum reel_status put_body(struct buffer *out, const struct embedding *e) {
    enum reel_status status = buffer_text(out, "{\"object\":\"list\",\"data\":[", NULL);
    for (int i = 0; i < e->lists.n && status == REEL_OK; i++) {
        const float *vector = e->vectors + (size_t)i * (size_t)e->width;
        status = buffer_printf(
            out, NULL, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
        if (status == REEL_OK)
            status =
                e->base64 ? put_base64(out, vector, e->width) : put_floats(out, vector, e->width);
        if (status == REEL_OK) status = buffer_text(out, "}", NULL);
    }
    if (status == REEL_OK) status = buffer_text(out, "],\"model\":", NULL);
    if (status == REEL_OK) status = json_out_string(out, e->model->name, NULL);
    if (status == REEL_OK)
        status =
            buffer_printf(out, NULL, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}",
                          e->lists.n_ids, e->lists.n_ids);
    return status;
}

static void answer(struct embedding *e) {
    struct reel_error err = { 0 };
    struct buffer out = { 0 };
    if (run(e, &err) != REEL_OK) {
        api_error_from(e->x, &err);
        return;
    }
    if (put_body(&out, e) == REEL_OK) {
        exchange_reply_buffer(e->x, 200, "application/json", &out);
        return;
    }
    buffer_release(&out);
    api_error(e->x, 503, NULL, NULL, "out of memory");
}

void handle_embeddings(struct exchange *x) {
    struct embedding e = { .x = x };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    if (read_request(&e, json)) answer(&e);
    mem_free(e.vectors);
    id_lists_release(&e.lists);
    json_decref(json);
}

/* POST /v1/rerank, in the form that Jina, Cohere, vLLM and llama.cpp's server share. */
#include "server/fields.h"
#include "server/handlers.h"
#include "server/json_out.h"
#include "server/models.h"

#include "base/memory.h"

#include "server/api_error.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DOCUMENTS 10000

struct judged {
    int index;
    float score;
};

struct ranking {
    struct exchange *x;
    struct served_model *model;
    const char *query, *instruction;
    const char **documents; /* [n], borrowed from the JSON */
    int n, top;
    int64_t max_tokens;
    bool return_documents;
    bool too_long;   /* the query leaves no room for documents */
    size_t n_tokens; /* of the query and the documents */
    float *scores;   /* [n] */
    struct judged *order;
};

/* ---- the request ---- */

static const json_t *text_of(const json_t *document) {
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

static bool read_documents(struct ranking *r, const json_t *json) {
    const json_t *list = json_object_get(json, "documents");
    if (!list) list = json_object_get(json, "texts");
    const size_t n = json_array_size(list);
    if (n == 0 || n > MOST_DOCUMENTS)
        return field_refuse(r->x, "documents", "must be a list of 1 to %d texts", MOST_DOCUMENTS);
    if (mem_zeroed(&r->documents, n, sizeof *r->documents, "documents", NULL) != REEL_OK) {
        api_error(r->x, 503, NULL, NULL, "out of memory");
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *text = text_of(json_array_get(list, i));
        if (!json_is_string(text) || strlen(json_string_value(text)) != json_string_length(text))
            return field_refuse(r->x, "documents",
                                "has an entry %zu that is neither a text nor {\"text\": ...}", i);
        r->documents[r->n++] = json_string_value(text);
    }
    return true;
}

static bool read_request(struct ranking *r, const json_t *json) {
    const char *name = NULL;
    int64_t top = MOST_DOCUMENTS;
    r->return_documents = true;
    if (!field_text(r->x, json, "model", &name)) return false;
    r->model = exchange_need_model(r->x, name, false);
    if (!r->model || !field_text(r->x, json, "query", &r->query)) return false;
    if (!r->query) return field_refuse(r->x, "query", "is missing");
    if (!read_documents(r, json) || !field_int(r->x, json, "top_n", 1, INT32_MAX, &top) ||
        !field_bool(r->x, json, "return_documents", &r->return_documents) ||
        !field_text(r->x, json, "instruction", &r->instruction) ||
        !field_int(r->x, json, "truncate_prompt_tokens", 1, r->model->context, &r->max_tokens))
        return false;
    r->top = top < r->n ? (int)top : r->n;
    return true;
}

/* ---- running ---- */

static enum reel_status count(struct ranking *r, const char *text, struct reel_error *err) {
    size_t n = 0;
    enum reel_status status =
        reel_encode(reel_model_tokenizer(r->model->model), text, strlen(text), 0, NULL, 0, &n, err);
    if (status != REEL_OK && status != REEL_E_LIMIT) return status;
    r->n_tokens += n;
    return REEL_OK;
}

static int better_first(const void *a, const void *b) {
    const struct judged *p = a, *q = b;
    if (p->score != q->score) return p->score > q->score ? -1 : 1;
    return p->index - q->index;
}

static enum reel_status run(struct ranking *r, struct reel_error *err) {
    struct session_lease lease;
    const size_t n = (size_t)r->n;
    enum reel_status status = mem_zeroed(&r->scores, n, sizeof *r->scores, "scores", err);
    if (status == REEL_OK) status = mem_zeroed(&r->order, n, sizeof *r->order, "an order", err);
    if (status == REEL_OK) status = count(r, r->query, err);
    for (int i = 0; i < r->n && status == REEL_OK; i++)
        status = count(r, r->documents[i], err);
    if (status == REEL_OK) status = session_lease_take(&lease, r->model, r->x, NULL, 0, err);
    if (status != REEL_OK) return status;
    const struct reel_rerank rerank = { .size = sizeof rerank,
                                        .query = r->query,
                                        .instruction = r->instruction,
                                        .documents = r->documents,
                                        .n_documents = r->n,
                                        .max_tokens = (int)r->max_tokens,
                                        .scores = r->scores };
    status = reel_session_rerank(lease.session, &rerank, err);
    r->too_long = status == REEL_E_LIMIT;
    session_lease_give(&lease, r->model, r->x);
    for (int i = 0; i < r->n; i++)
        r->order[i] = (struct judged){ i, r->scores[i] };
    qsort(r->order, n, sizeof *r->order, better_first);
    exchange_figures(r->x)->n_prompt = (int)r->n_tokens;
    return status;
}

static enum reel_status put_result(struct buffer *out, const struct ranking *r, int place) {
    const struct judged *j = &r->order[place];
    enum reel_status status = buffer_printf(out, NULL, "%s{\"index\":%d,\"relevance_score\":%.9g",
                                            place ? "," : "", j->index, (double)j->score);
    if (status == REEL_OK && r->return_documents) {
        status = buffer_text(out, ",\"document\":{\"text\":", NULL);
        if (status == REEL_OK) status = json_out_string(out, r->documents[j->index], NULL);
        if (status == REEL_OK) status = buffer_text(out, "}", NULL);
    }
    return status == REEL_OK ? buffer_text(out, "}", NULL) : status;
}

static enum reel_status put_body(struct buffer *out, const struct ranking *r) {
    enum reel_status status = buffer_printf(
        out, NULL, "{\"id\":\"rerank-%s\",\"object\":\"list\",\"model\":", exchange_id(r->x));
    if (status == REEL_OK) status = json_out_string(out, r->model->name, NULL);
    if (status == REEL_OK)
        status = buffer_printf(out, NULL,
                               ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu},"
                               "\"results\":[",
                               r->n_tokens, r->n_tokens);
    for (int i = 0; i < r->top && status == REEL_OK; i++)
        status = put_result(out, r, i);
    return status == REEL_OK ? buffer_text(out, "]}", NULL) : status;
}

static void answer(struct ranking *r) {
    struct reel_error err = { 0 };
    struct buffer out = { 0 };
    if (run(r, &err) != REEL_OK) {
        if (r->too_long)
            api_error(r->x, 400, "query", "context_length_exceeded", "%s", err.text);
        else
            api_error_from(r->x, &err);
        return;
    }
    if (put_body(&out, r) == REEL_OK) {
        exchange_reply_buffer(r->x, 200, "application/json", &out);
        return;
    }
    buffer_release(&out);
    api_error(r->x, 503, NULL, NULL, "out of memory");
}

void handle_rerank(struct exchange *x) {
    struct ranking r = { .x = x };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    if (read_request(&r, json)) answer(&r);
    mem_free(r.documents);
    mem_free(r.scores);
    mem_free(r.order);
    json_decref(json);
}

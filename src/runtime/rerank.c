/* Judging documents against a query, as Qwen3-Reranker's model card does it: one prompt for each
 * document, of whose last vector only two rows of the output matrix are asked. */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/struct_size.h"
#include "model/tokenizer_utf8.h"
#include "runtime/embed.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CARD_TOKENS 8192 /* of a prompt, in the card's code */

/* The card's words. They are the model's training: nothing here is a matter of style. */
static const char before[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
static const char after[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char web_search[] =
    "Given a web search query, retrieve relevant passages that answer the query";

struct ids {
    int32_t *ids;
    size_t n;
};

struct reranking {
    struct reel_session *session;
    const struct reel_rerank *rerank;
    const struct reel_tokenizer *tok;
    struct ids before, after;
    int room;           /* ids between them, at most */
    struct buffer text; /* of one document's prompt; its first part stays */
    size_t head;        /* bytes of that part: instruction and query */
    struct buffer ids;  /* int32_t of all prompts */
    int *lengths;       /* [n_documents] */
    float *yes, *no;    /* f32 [hidden] rows of the output matrix */
};

static enum reel_status encode(struct ids *out, const struct reel_tokenizer *tok, const char *text,
                               size_t n, bool control, struct reel_error *err) {
    const struct text_piece piece = { text, n, control };
    return tokenizer_encode(tok, &piece, 1, &out->ids, &out->n, err);
}

/* ---- what does not depend on the documents ---- */

static enum reel_status answer_row(struct reranking *r, const char *word, float **row,
                                   struct reel_error *err) {
    const struct model *model = &r->session->model->model;
    const int32_t id = tokenizer_find(r->tok, word, strlen(word));
    if (id < 0 || id >= model->config.vocab)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "reranking: the tokenizer of %s has no token \"%s\"", model->name, word);
    enum reel_status status =
        mem_zeroed(row, (size_t)model->config.hidden, sizeof **row, "a row of weights", err);
    if (status == REEL_OK) matrix_row_f32(&model->weights.head, id, *row);
    return status;
}

static enum reel_status choose_room(struct reranking *r, struct reel_error *err) {
    const int context = r->session->max_context;
    int most = r->rerank->max_tokens;
    if (most < 0 || most > context)
        return err_set(err, REEL_E_ARGUMENT,
                       "max_tokens is %d; the session allows 1 to %d, or 0 for at most %d", most,
                       context, CARD_TOKENS);
    if (most == 0) most = context < CARD_TOKENS ? context : CARD_TOKENS;
    r->room = most - (int)(r->before.n + r->after.n);
    return REEL_OK;
}

static enum reel_status prepare(struct reranking *r, struct reel_error *err) {
    const struct reel_rerank *given = r->rerank;
    struct ids head = { 0 };
    if (tokenizer_find_added(r->tok, "<|im_start|>") < 0 ||
        tokenizer_find_added(r->tok, "<|im_end|>") < 0)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "reranking: the tokenizer has no <|im_start|> and <|im_end|>; this is not a "
                       "Qwen3-Reranker");
    enum reel_status status = encode(&r->before, r->tok, before, sizeof before - 1, true, err);
    if (status == REEL_OK) status = encode(&r->after, r->tok, after, sizeof after - 1, true, err);
    if (status == REEL_OK) status = choose_room(r, err);
    if (status == REEL_OK)
        status = buffer_printf(&r->text, err, "<Instruct>: %s\n<Query>: %s\n<Document>: ",
                               given->instruction ? given->instruction : web_search, given->query);
    r->head = r->text.size;
    if (status == REEL_OK) status = encode(&head, r->tok, r->text.bytes, r->head, false, err);
    if (status == REEL_OK && (r->room < 0 || head.n >= (size_t)r->room))
        status =
            err_set(err, REEL_E_LIMIT,
                    "instruction, query and what is around them take %zu of %d tokens; "
                    "nothing is left for a document",
                    head.n + r->before.n + r->after.n, r->room + (int)(r->before.n + r->after.n));
    mem_free(head.ids);
    if (status == REEL_OK) status = answer_row(r, "yes", &r->yes, err);
    if (status == REEL_OK) status = answer_row(r, "no", &r->no, err);
    return status;
}

/* ---- documents ---- */

static enum reel_status add(struct reranking *r, const int32_t *ids, size_t n,
                            struct reel_error *err) {
    return buffer_append(&r->ids, ids, n * sizeof *ids, err);
}

static enum reel_status add_document(struct reranking *r, int i, struct reel_error *err) {
    struct ids body = { 0 };
    r->text.size = r->head;
    enum reel_status status = buffer_text(&r->text, r->rerank->documents[i], err);
    if (status == REEL_OK) status = encode(&body, r->tok, r->text.bytes, r->text.size, false, err);
    const bool longer = body.n > (size_t)r->room;
    if (r->rerank->truncated && status == REEL_OK) r->rerank->truncated[i] = longer;
    if (longer) body.n = (size_t)r->room;
    if (status == REEL_OK) status = add(r, r->before.ids, r->before.n, err);
    if (status == REEL_OK) status = add(r, body.ids, body.n, err);
    if (status == REEL_OK) status = add(r, r->after.ids, r->after.n, err);
    r->lengths[i] = (int)(r->before.n + body.n + r->after.n);
    mem_free(body.ids);
    return status;
}

static void score(void *user, int text, const float *vector) {
    const struct reranking *r = user;
    const int hidden = r->session->model->model.config.hidden;
    double yes = 0, no = 0;
    for (int i = 0; i < hidden; i++) {
        yes += (double)vector[i] * r->yes[i];
        no += (double)vector[i] * r->no[i];
    }
    r->rerank->scores[text] = (float)(1 / (1 + exp(no - yes)));
}

static enum reel_status check_text(const char *name, const char *text, struct reel_error *err) {
    const size_t n = strlen(text), valid = utf8_valid_prefix(text, n);
    if (valid == n) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "%s is not UTF-8: byte 0x%02x at offset %zu", name,
                   (unsigned char)text[valid], valid);
}

static enum reel_status check_rerank(const struct reel_rerank *rerank, struct reel_error *err) {
    enum reel_status status =
        err_if_null(err, "query documents scores",
                    (const void *const[]){ rerank->query, rerank->documents, rerank->scores });
    if (status != REEL_OK) return status;
    if (rerank->n_documents < 1)
        return err_set(err, REEL_E_ARGUMENT, "n_documents is %d; at least 1 is judged",
                       rerank->n_documents);
    for (int i = 0; i < rerank->n_documents; i++)
        if (!rerank->documents[i]) return err_set(err, REEL_E_ARGUMENT, "document %d is NULL", i);
    status = check_text("the query", rerank->query, err);
    if (status == REEL_OK && rerank->instruction)
        status = check_text("the instruction", rerank->instruction, err);
    for (int i = 0; status == REEL_OK && i < rerank->n_documents; i++) {
        char name[32];
        snprintf(name, sizeof name, "document %d", i);
        status = check_text(name, rerank->documents[i], err);
    }
    return status;
}

enum reel_status reel_session_rerank(struct reel_session *s, const struct reel_rerank *given,
                                     struct reel_error *err) {
    struct reel_rerank rerank;
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status == REEL_OK) status = err_if_null(err, "rerank", (const void *const[]){ given });
    if (status == REEL_OK) status = struct_read(&rerank, sizeof rerank, given, "reel_rerank", err);
    if (status == REEL_OK) status = check_rerank(&rerank, err);
    if (status != REEL_OK) return status;
    struct reranking r = { .session = s, .rerank = &rerank, .tok = s->model->model.tokenizer };
    session_begin(s);
    status = prepare(&r, err);
    if (status == REEL_OK)
        status = mem_zeroed(&r.lengths, (size_t)rerank.n_documents, sizeof *r.lengths,
                            "lengths of documents", err);
    for (int i = 0; status == REEL_OK && i < rerank.n_documents; i++)
        status = session_cancelled(s) ? err_set(err, REEL_E_CANCELLED, "cancelled")
                                      : add_document(&r, i, err);
    if (status == REEL_OK) {
        const struct embed_texts texts = { (const int32_t *)(const void *)r.ids.bytes, r.lengths,
                                           rerank.n_documents, score, &r };
        status = embed_texts_run(s, &texts, err);
    }
    mem_free(r.no);
    mem_free(r.yes);
    mem_free(r.lengths);
    buffer_release(&r.ids);
    buffer_release(&r.text);
    mem_free(r.after.ids);
    mem_free(r.before.ids);
    return status;
}

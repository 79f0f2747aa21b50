/* The merges of a SentencePiece vocabulary, which its files do not list: two tokens merge where the
 * text of both together is a token, and the one of the highest score is merged first. That is the
 * order of SentencePiece's own bpe_model.cc. Pairs of one score are merged from left to right, as
 * there: those that give one token, and tokens of equal score, such as the rows of spaces in
 * Llama's and Mistral's vocabularies. */
#include "base/memory.h"
#include "model/tokenizer_parts.h"
#include "model/tokenizer_utf8.h"

#include <math.h>
#include <stdlib.h>

/* SentencePiece's trainer makes tokens of at most 16 characters unless it is told otherwise. A file
 * of tokens as long as itself would otherwise keep the loader busy for hours. */
#define MAX_PIECE  1024
#define MAX_TEXT   (16u << 20) /* bytes of all tokens together */
#define MAX_PROBES 256

struct piece {
    const char *text;
    uint32_t at, n, id;
    float score;
};

struct pieces {
    const struct tokenizer_parts *parts;
    struct piece *by_text;  /* [n] */
    struct piece *by_score; /* [n] */
    uint32_t *slots;        /* [1 << bits] index into by_text, plus one */
    size_t n;
    unsigned bits;
};

static int order_scores(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_known(const struct pieces *p, const char *text, size_t n) {
    size_t mask = ((size_t)1 << p->bits) - 1;
    for (size_t i = word_hash(text, n) >> (64 - p->bits);; i = (i + 1) & mask) {
        if (p->slots[i] == 0) return false;
        const struct piece *piece = &p->by_text[p->slots[i] - 1];
        if (piece->n == n && memcmp(piece->text, text, n) == 0) return true;
    }
}

/* A table four times as large as what it holds has no long rows unless a file is made for it. */
static enum reel_status insert(struct pieces *p, uint32_t index, struct reel_error *err) {
    const struct piece *piece = &p->by_text[index];
    size_t mask = ((size_t)1 << p->bits) - 1;
    size_t i = word_hash(piece->text, piece->n) >> (64 - p->bits);
    for (int probes = 0; p->slots[i]; i = (i + 1) & mask)
        if (++probes > MAX_PROBES)
            return err_set(err, REEL_E_LIMIT, "%s: more than %d tokens with one hash",
                           p->parts->name, MAX_PROBES);
    p->slots[i] = index + 1;
    return REEL_OK;
}

/* What merging can meet: no control tokens, bytes or tokens that are found before merging. */
static enum reel_status collect(struct pieces *p, const float *scores, struct reel_error *err) {
    const struct tokenizer_parts *parts = p->parts;
    size_t total = 0;
    for (uint32_t id = 0; id < parts->n_tokens; id++) {
        const struct token_part *token = &parts->tokens[id];
        if (!(token->flags & TOKEN_PRESENT) || token->flags & (TOKEN_RAW | TOKEN_ADDED)) continue;
        if (isnan(scores[id]))
            return err_set(err, REEL_E_FORMAT,
                           "%s: the score of token %u, \"%.*s\", is NaN: it must be a number",
                           parts->name, id, (int)(token->n < 40 ? token->n : 40),
                           parts->text.bytes + token->at);
        if (token->n > MAX_PIECE || (total += token->n) > MAX_TEXT)
            return err_set(err, REEL_E_LIMIT,
                           "%s: token %u has %u bytes; at most %d are supported, and %u for all "
                           "tokens together",
                           parts->name, id, token->n, MAX_PIECE, MAX_TEXT);
        p->by_text[p->n++] =
            (struct piece){ parts->text.bytes + token->at, token->at, token->n, id, scores[id] };
    }
    memcpy(p->by_score, p->by_text, p->n * sizeof *p->by_text);
    qsort(p->by_score, p->n, sizeof *p->by_score, order_scores);
    enum reel_status status = REEL_OK;
    for (uint32_t i = 0; status == REEL_OK && i < p->n; i++)
        status = insert(p, i, err);
    return status;
}

/* Every way to cut the piece into two that are known. */
static enum reel_status add_cuts(struct tokenizer_parts *parts, const struct pieces *p,
                                 const struct piece *piece, uint32_t order,
                                 struct reel_error *err) {
    bool made = false;
    for (uint32_t k = 1; k < piece->n; k++) {
        if (((unsigned char)piece->text[k] & 0xc0) == 0x80) continue; /* inside a character */
        if (!is_known(p, piece->text, k) || !is_known(p, piece->text + k, piece->n - k)) continue;
        if (parts->n_merges >= TOKENIZER_MAX_TOKENS)
            return err_set(err, REEL_E_LIMIT, "%s: more than %d pairs of tokens that merge",
                           parts->name, TOKENIZER_MAX_TOKENS);
        enum reel_status status = parts_grow(&parts->merges, parts->n_merges + 1,
                                             &parts->merge_capacity, sizeof *parts->merges, err);
        if (status != REEL_OK) return status;
        parts->merges[parts->n_merges++] =
            (struct merge_part){ piece->at, k, piece->n - k, (uint32_t)parts->n_ranks, order };
        made = true;
    }
    if (made) parts->n_ranks++;
    return REEL_OK;
}

static enum reel_status add_all(struct tokenizer_parts *parts, const struct pieces *p,
                                struct reel_error *err) {
    enum reel_status status = REEL_OK;
    uint32_t order = 0;
    for (size_t i = 0; status == REEL_OK && i < p->n; i++) {
        if (i > 0 && p->by_score[i].score != p->by_score[i - 1].score) order++;
        status = add_cuts(parts, p, &p->by_score[i], order, err);
    }
    parts->ties = true;
    return status;
}

enum reel_status parts_add_scored_merges(struct tokenizer_parts *parts, const float *scores,
                                         struct reel_error *err) {
    struct pieces p = { .parts = parts, .bits = 2 };
    size_t n = parts->n_tokens;
    while (((size_t)1 << p.bits) < 4 * n)
        p.bits++;
    if (n == 0) return REEL_OK; /* building refuses it */
    enum reel_status status = mem_zeroed(&p.by_text, n, sizeof *p.by_text, "tokens", err);
    if (status == REEL_OK) status = mem_zeroed(&p.by_score, n, sizeof *p.by_score, "tokens", err);
    if (status == REEL_OK)
        status = mem_zeroed(&p.slots, (size_t)1 << p.bits, sizeof *p.slots, "tokens", err);
    if (status == REEL_OK) status = collect(&p, scores, err);
    if (status == REEL_OK) status = add_all(parts, &p, err);
    mem_free(p.slots);
    mem_free(p.by_score);
    mem_free(p.by_text);
    return status;
}

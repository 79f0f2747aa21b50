/* Text to ids: added tokens out of the pieces that may hold them, everything between as one run
 * through normalising, splitting and merging. */
#include "base/memory.h"
#include "model/tokenizer_added.h"
#include "model/tokenizer_bpe.h"
#include "model/tokenizer_nfc.h"
#include "model/tokenizer_spm_text.h"
#include "model/tokenizer_utf8.h"

#define ENCODE_MAX_BYTES (1u << 30)

struct encoder {
    const struct reel_tokenizer *tok;
    int32_t *ids;
    size_t n_ids, capacity;
    const char *run; /* text since the last added token: inside a piece, or `joined` */
    size_t run_bytes;
    struct buffer joined;
    struct buffer prefixed; /* SentencePiece: a text as merging sees it; or one after a space */
    bool begun;             /* something was encoded before the run */
    bool skips;             /* white space behind the last added token is left out */
    struct nfc_scratch nfc;
    struct nfc_scratch segment; /* text between added tokens, where more are looked for */
    struct bpe_scratch bpe;
};

static enum reel_status reserve_ids(struct encoder *e, size_t n, struct reel_error *err) {
    if (n <= e->capacity - e->n_ids) return REEL_OK;
    size_t capacity = e->n_ids + n + e->capacity / 2;
    int32_t *ids = mem_resize(e->ids, capacity * sizeof *ids);
    if (!ids) return err_memory(err, "token ids", capacity * sizeof *ids);
    e->ids = ids;
    e->capacity = capacity;
    return REEL_OK;
}

static enum reel_status encode_word(struct encoder *e, const unsigned char *word, size_t n,
                                    struct reel_error *err) {
    size_t made;
    enum reel_status status = reserve_ids(e, n, err);
    if (status != REEL_OK) return status;
    uint64_t slot = tables_word(e->tok, word, n);
    if (slot & WORD_WHOLE) {
        e->ids[e->n_ids++] = (int32_t)word_slot_id(slot);
        return REEL_OK;
    }
    status = bpe_word(e->tok, &e->bpe, word, n, e->ids + e->n_ids, &made, err);
    if (status == REEL_OK) e->n_ids += made;
    return status;
}

static enum reel_status encode_words(struct encoder *e, const char *text, size_t n_bytes,
                                     struct reel_error *err) {
    struct splitter s;
    const unsigned char *word;
    enum reel_status status = REEL_OK;
    splitter_start(&s, &e->tok->plan, text, n_bytes);
    for (size_t n; status == REEL_OK && (n = splitter_next(&s, &word)) > 0;)
        status = encode_word(e, word, n, err);
    return status;
}

static enum reel_status encode_spm(struct encoder *e, const char *text, size_t n_bytes,
                                   struct reel_error *err) {
    const enum cut_rule cut = (enum cut_rule)e->tok->head.cut;
    enum reel_status status = spm_text(e->tok, !e->begun, &e->prefixed, &text, &n_bytes, err);
    for (size_t n; status == REEL_OK && n_bytes > 0; text += n, n_bytes -= n) {
        n = spm_word(cut, text, n_bytes);
        status = encode_word(e, (const unsigned char *)text, n, err);
    }
    return status;
}

static enum reel_status flush(struct encoder *e, struct reel_error *err) {
    const char *text = e->run;
    size_t n = e->run_bytes;
    if (n == 0) return REEL_OK;
    enum reel_status status = REEL_OK;
    if (e->tok->head.nfc) status = nfc_text(&e->nfc, &text, &n, err);
    if (status == REEL_OK && e->tok->plan.prefix && *text != ' ') {
        e->prefixed.size = 0;
        status = buffer_append(&e->prefixed, " ", 1, err);
        if (status == REEL_OK) status = buffer_append(&e->prefixed, text, n, err);
        text = e->prefixed.bytes;
        n++;
    }
    if (status == REEL_OK)
        status = e->tok->head.kind == KIND_SENTENCEPIECE ? encode_spm(e, text, n, err)
                                                         : encode_words(e, text, n, err);
    e->begun = true;
    e->run_bytes = 0;
    e->joined.size = 0;
    return status;
}

/* Lengthens the run; only one that crosses pieces, or whose text does not stay, is copied. */
static enum reel_status add_text(struct encoder *e, const char *text, size_t n, bool stays,
                                 struct reel_error *err) {
    if (n == 0) return REEL_OK;
    if (e->run_bytes == 0 && stays) {
        e->run = text;
        e->run_bytes = n;
        return REEL_OK;
    }
    enum reel_status status = REEL_OK;
    if (e->joined.size == 0 && e->run_bytes)
        status = buffer_append(&e->joined, e->run, e->run_bytes, err);
    if (status == REEL_OK) status = buffer_append(&e->joined, text, n, err);
    e->run = e->joined.bytes;
    e->run_bytes = e->joined.size;
    return status;
}

static enum reel_status add_token(struct encoder *e, uint32_t id, struct reel_error *err) {
    enum reel_status status = flush(e, err);
    if (status == REEL_OK) status = reserve_ids(e, 1, err);
    if (status == REEL_OK) e->ids[e->n_ids++] = (int32_t)id;
    e->begun = true;
    return status;
}

/* Takes the white space that ends the run away. */
static void trim_run(struct encoder *e) {
    e->run_bytes -= added_spaces_before(e->run, e->run_bytes);
    if (e->joined.size) e->joined.size = e->run_bytes;
}

/* What is left of text when a token before it wants no white space behind it. */
static size_t skip_spaces(struct encoder *e, const char *text, size_t n) {
    size_t spaces = e->skips ? added_spaces_after(text, n) : 0;
    if (spaces < n) e->skips = false;
    return spaces;
}

static enum reel_status add_normalized(struct encoder *e, const char *text, size_t n,
                                       struct reel_error *err);

/* Text that may hold added tokens: those that are looked for as they stand, and between them those
 * that are looked for in normalised text. `from` bytes are passed over already. */
static enum reel_status add_control_text(struct encoder *e, const char *text, size_t n, size_t from,
                                         bool normalized, bool stays, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    struct added_match m = { .end = 0 };
    for (size_t at = 0; status == REEL_OK;) {
        bool found = added_next(e->tok, text, n, at, normalized, &m);
        unsigned flags = found ? e->tok->flags[m.id] : 0;
        size_t end = found ? m.start : n;
        if (flags & TOKEN_LSTRIP && end > from) end -= added_spaces_before(text + from, end - from);
        if (end > from)
            status = normalized ? add_text(e, text + from, end - from, stays, err)
                                : add_normalized(e, text + from, end - from, err);
        if (!found) break;
        if (flags & TOKEN_LSTRIP && (end == 0 || end == from)) trim_run(e);
        if (status == REEL_OK) status = add_token(e, m.id, err);
        at = from = m.end;
        if (flags & TOKEN_RSTRIP) from += added_spaces_after(text + from, n - from);
        e->skips = flags & TOKEN_RSTRIP && from == n;
    }
    return status;
}

static enum reel_status add_normalized(struct encoder *e, const char *text, size_t n,
                                       struct reel_error *err) {
    const char *before = text;
    if (!e->tok->has_normalized) return add_text(e, text, n, true, err);
    enum reel_status status = REEL_OK;
    if (e->tok->head.nfc) status = nfc_text(&e->segment, &text, &n, err);
    if (status != REEL_OK) return status;
    return add_control_text(e, text, n, 0, true, text == before, err);
}

static enum reel_status add_piece(struct encoder *e, const struct text_piece *piece,
                                  struct reel_error *err) {
    if (piece->n_bytes == 0) return REEL_OK; /* text may be NULL */
    size_t from = skip_spaces(e, piece->text, piece->n_bytes);
    if (piece->control)
        return add_control_text(e, piece->text, piece->n_bytes, from, false, true, err);
    return add_text(e, piece->text + from, piece->n_bytes - from, true, err);
}

static enum reel_status check_pieces(const struct text_piece *pieces, int n_pieces,
                                     struct reel_error *err) {
    size_t total = 0;
    for (int i = 0; i < n_pieces; i++) {
        size_t n = pieces[i].n_bytes;
        if (n > ENCODE_MAX_BYTES - total)
            return err_set(err, REEL_E_LIMIT, "a text of more than %u bytes", ENCODE_MAX_BYTES);
        size_t valid = utf8_valid_prefix(pieces[i].text, n);
        if (valid < n)
            return err_set(err, REEL_E_ARGUMENT, "the text is not UTF-8: byte 0x%02x at offset %zu",
                           (unsigned char)pieces[i].text[valid], total + valid);
        total += n;
    }
    return REEL_OK;
}

enum reel_status tokenizer_encode(const struct reel_tokenizer *tok, const struct text_piece *pieces,
                                  int n_pieces, int32_t **ids, size_t *n_ids,
                                  struct reel_error *err) {
    struct encoder e = { .tok = tok };
    *ids = NULL;
    *n_ids = 0;
    enum reel_status status = check_pieces(pieces, n_pieces, err);
    if (status == REEL_OK) status = reserve_ids(&e, 16, err);
    for (int i = 0; status == REEL_OK && i < n_pieces; i++)
        status = add_piece(&e, &pieces[i], err);
    if (status == REEL_OK) status = flush(&e, err);
    buffer_release(&e.joined);
    buffer_release(&e.prefixed);
    nfc_scratch_release(&e.nfc);
    nfc_scratch_release(&e.segment);
    bpe_scratch_release(&e.bpe);
    if (status != REEL_OK) {
        mem_free(e.ids);
        return status;
    }
    *ids = e.ids;
    *n_ids = e.n_ids;
    return REEL_OK;
}

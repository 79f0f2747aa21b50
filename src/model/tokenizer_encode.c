/* Text to ids: added tokens out of the pieces that may hold them, everything between as one run
 * through normalising, splitting and merging. */
#include "base/memory.h"
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
    struct nfc_scratch nfc;
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

/* Lengthens the run; only one that crosses pieces is copied. */
static enum reel_status add_text(struct encoder *e, const char *text, size_t n,
                                 struct reel_error *err) {
    if (n == 0) return REEL_OK;
    if (e->run_bytes == 0) {
        e->run = text;
        e->run_bytes = n;
        return REEL_OK;
    }
    enum reel_status status = REEL_OK;
    if (e->joined.size == 0) status = buffer_append(&e->joined, e->run, e->run_bytes, err);
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

/* First of the sorted added tokens [low, high) whose byte at `depth` is at least `byte`. All agree
 * on the bytes before; one that ends at depth sorts first. */
static uint32_t narrow(const struct reel_tokenizer *tok, uint32_t low, uint32_t high, size_t depth,
                       unsigned byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, id = tok->added[middle];
        size_t at = tok->offsets[id] + depth;
        bool below = at >= tok->offsets[id + 1] || (unsigned char)tok->text[at] < byte;
        if (below)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest added token that text [n] starts with; its length, or 0. */
static size_t match_added(const struct reel_tokenizer *tok, const char *text, size_t n,
                          uint32_t *id) {
    uint32_t low = 0, high = tok->head.n_added;
    size_t longest = 0;
    for (size_t depth = 0; depth < n && low < high; depth++) {
        unsigned byte = (unsigned char)text[depth];
        low = narrow(tok, low, high, depth, byte);
        high = narrow(tok, low, high, depth, byte + 1);
        if (low == high) break;
        uint32_t first = tok->added[low];
        if (tok->offsets[first + 1] - tok->offsets[first] == depth + 1) {
            *id = first;
            longest = depth + 1;
        }
    }
    return longest;
}

static enum reel_status add_control_text(struct encoder *e, const char *text, size_t n,
                                         struct reel_error *err) {
    enum reel_status status = REEL_OK;
    size_t start = 0;
    for (size_t i = 0; status == REEL_OK && i < n;) {
        uint32_t id = 0;
        size_t length = 0;
        if (e->tok->added_lead[(unsigned char)text[i]])
            length = match_added(e->tok, text + i, n - i, &id);
        if (length == 0) {
            i++;
            continue;
        }
        status = add_text(e, text + start, i - start, err);
        if (status == REEL_OK) status = add_token(e, id, err);
        i += length;
        start = i;
    }
    return status == REEL_OK ? add_text(e, text + start, n - start, err) : status;
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
    for (int i = 0; status == REEL_OK && i < n_pieces; i++) {
        const struct text_piece *piece = &pieces[i];
        status = piece->control ? add_control_text(&e, piece->text, piece->n_bytes, err)
                                : add_text(&e, piece->text, piece->n_bytes, err);
    }
    if (status == REEL_OK) status = flush(&e, err);
    buffer_release(&e.joined);
    buffer_release(&e.prefixed);
    nfc_scratch_release(&e.nfc);
    bpe_scratch_release(&e.bpe);
    if (status != REEL_OK) {
        mem_free(e.ids);
        return status;
    }
    *ids = e.ids;
    *n_ids = e.n_ids;
    return REEL_OK;
}

/* Laying out and checking the tables, and the questions answered from them alone. */
#include "model/tokenizer_tables.h"

#include "base/checked.h"
#include "base/memory.h"

static const char tables_magic[8] = "REELTOK";
static const uint8_t no_bytes[sizeof((struct tables_header *)0)->zero];
#define BYTE_ORDER_MARK 0x01020304u
#define ALIGNMENT       64

static bool place(size_t *end, size_t *at, size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes) || !size_add(*end, ALIGNMENT - 1, at)) return false;
    *at &= ~(size_t)(ALIGNMENT - 1);
    return size_add(*at, bytes, end);
}

bool tables_layout(const struct tables_header *head, struct tables_layout *at) {
    if (head->n_tokens > TOKENIZER_MAX_TOKENS || head->n_merges > TOKENIZER_MAX_TOKENS ||
        head->n_added > head->n_tokens || head->text_bytes > TOKENIZER_MAX_TEXT ||
        head->plan_bytes > SPLIT_MAX_BYTES)
        return false;
    if (head->merge_bits < 1 || head->merge_bits > 22) return false;
    if (head->word_bits < 1 || head->word_bits > 22) return false;
    at->total = sizeof *head;
    return place(&at->total, &at->around, 1, sizeof(struct around_text)) &&
           place(&at->total, &at->plan, head->plan_bytes, 1) &&
           place(&at->total, &at->offsets, (size_t)head->n_tokens + 1, 4) &&
           place(&at->total, &at->flags, head->n_tokens, 2) &&
           place(&at->total, &at->byte_ids, 256, 4) &&
           place(&at->total, &at->added, head->n_added, 4) &&
           place(&at->total, &at->merge_ids, head->n_merges, 4) &&
           place(&at->total, &at->orders, head->ties ? head->n_merges : 0, 4) &&
           place(&at->total, &at->merge_slots, (size_t)1 << head->merge_bits, 8) &&
           place(&at->total, &at->word_slots, (size_t)1 << head->word_bits, 8) &&
           place(&at->total, &at->text, (size_t)head->text_bytes, 1);
}

/* Four lanes, so that the multiplies overlap: a cached start reads every byte. */
uint64_t tables_checksum(const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    const uint64_t k = UINT64_C(0x9fb21c651e98df25);
    uint64_t lane[4] = { n, k, n ^ k, ~n }, part[4];
    for (; n >= sizeof part; p += sizeof part, n -= sizeof part) {
        memcpy(part, p, sizeof part);
        for (int i = 0; i < 4; i++) {
            lane[i] = (lane[i] ^ part[i]) * k;
            lane[i] ^= lane[i] >> 29;
        }
    }
    memset(part, 0, sizeof part);
    if (n) memcpy(part, p, n);
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        sum = (sum ^ lane[i] ^ part[i]) * k;
        sum ^= sum >> 32;
    }
    return sum;
}

static bool offsets_ok(const struct reel_tokenizer *tok) {
    const uint32_t *offsets = tok->offsets;
    bool ok = offsets[0] == 0 && offsets[tok->head.n_tokens] == tok->head.text_bytes;
    for (uint32_t i = 0; i < tok->head.n_tokens; i++)
        ok &= offsets[i] <= offsets[i + 1];
    return ok;
}

static bool ids_ok(const uint32_t *ids, uint32_t n, uint32_t n_tokens, bool none_allowed) {
    bool ok = true;
    for (uint32_t i = 0; i < n; i++)
        ok &= ids[i] < n_tokens || (none_allowed && ids[i] == TOKENIZER_NONE);
    return ok;
}

/* An empty slot must be left, or a look-up for something absent would go round for ever. */
static bool slots_ok(const struct reel_tokenizer *tok) {
    bool ok = true, merge_end = false, word_end = false;
    for (size_t i = 0; i < (size_t)1 << tok->head.merge_bits; i++) {
        uint64_t slot = tok->merge_slots[i];
        bool empty = slot == MERGE_EMPTY;
        merge_end |= empty;
        ok &= empty || (slot & 0xffffff) < tok->head.n_merges;
    }
    for (size_t i = 0; i < (size_t)1 << tok->head.word_bits; i++) {
        uint64_t slot = tok->word_slots[i];
        bool empty = slot == 0;
        word_end |= empty;
        ok &= empty || word_slot_id(slot) < tok->head.n_tokens;
    }
    return ok && merge_end && word_end;
}

/* The search for added tokens narrows a range: it needs their order. Ids must say ADDED, so that
 * each is listed for what it is. */
static bool added_ok(const struct reel_tokenizer *tok) {
    for (uint32_t i = 0; i < tok->head.n_added; i++) {
        size_t n, previous_n;
        const char *text = tokenizer_bytes(tok, (int32_t)tok->added[i], &n);
        if (!text || n == 0 || !(tok->flags[tok->added[i]] & TOKEN_ADDED)) return false;
        if (i == 0) continue;
        const char *previous = tokenizer_bytes(tok, (int32_t)tok->added[i - 1], &previous_n);
        int order = memcmp(previous, text, previous_n < n ? previous_n : n);
        if (order > 0 || (order == 0 && previous_n >= n)) return false;
    }
    return true;
}

static bool around_ok(const struct around_text *around, uint32_t n_tokens) {
    bool ok = around->n_before <= TOKENIZER_MAX_AROUND && around->n_after <= TOKENIZER_MAX_AROUND;
    for (uint32_t i = 0; ok && i < around->n_before; i++)
        ok = around->before[i] >= 0 && (uint32_t)around->before[i] < n_tokens;
    for (uint32_t i = 0; ok && i < around->n_after; i++)
        ok = around->after[i] >= 0 && (uint32_t)around->after[i] < n_tokens;
    return ok;
}

void tables_point(struct reel_tokenizer *tok, const void *start, const struct tables_layout *at) {
    const unsigned char *block = start;
    tok->plan_text = (const char *)block + at->plan;
    tok->around = (const struct around_text *)(const void *)(block + at->around);
    tok->offsets = (const uint32_t *)(const void *)(block + at->offsets);
    tok->flags = (const uint16_t *)(const void *)(block + at->flags);
    tok->byte_ids = (const uint32_t *)(const void *)(block + at->byte_ids);
    tok->added = (const uint32_t *)(const void *)(block + at->added);
    tok->merge_ids = (const uint32_t *)(const void *)(block + at->merge_ids);
    tok->orders = tok->head.ties ? (const uint32_t *)(const void *)(block + at->orders) : NULL;
    tok->merge_slots = (const uint64_t *)(const void *)(block + at->merge_slots);
    tok->word_slots = (const uint64_t *)(const void *)(block + at->word_slots);
    tok->text = (const char *)block + at->text;
}

void tables_fill_ascii(struct reel_tokenizer *tok) {
    for (int i = 0; i < 128; i++) {
        char c = (char)i;
        tok->ascii_ids[i] = tables_mergeable(tok, &c, 1);
    }
}

bool tables_attach(struct reel_tokenizer *tok, const void *block, size_t n_bytes,
                   const char *source) {
    struct tables_header *head = &tok->head;
    struct tables_layout at;
    if (n_bytes < sizeof *head) return false;
    memcpy(head, block, sizeof *head);
    if (memcmp(head->magic, tables_magic, sizeof tables_magic) != 0) return false;
    if (head->version != TOKENIZER_TABLES_VERSION || head->byte_order != BYTE_ORDER_MARK)
        return false;
    if (memcmp(head->source, source, SHA256_HEX) != 0) return false;
    if (memcmp(head->zero, no_bytes, sizeof no_bytes) != 0) return false;
    if (head->nfc > 1) return false;
    if (head->kind >= N_TOKENIZER_KINDS || head->prefix >= N_PREFIX_RULES ||
        head->cut >= N_CUT_RULES || head->prefix_new > 1 || head->strip > 1 || head->ties > 1)
        return false;
    if (!tables_layout(head, &at) || at.total != n_bytes || head->total_bytes != n_bytes)
        return false;
    const unsigned char *bytes = block;
    if (tables_checksum(bytes + sizeof *head, n_bytes - sizeof *head) != head->checksum)
        return false;
    tables_point(tok, bytes, &at);
    if (!offsets_ok(tok) || !slots_ok(tok) || !ids_ok(tok->byte_ids, 256, head->n_tokens, true) ||
        !ids_ok(tok->added, head->n_added, head->n_tokens, false) ||
        !ids_ok(tok->merge_ids, head->n_merges, head->n_tokens, false) || !added_ok(tok) ||
        !around_ok(tok->around, head->n_tokens))
        return false;
    for (uint32_t i = 0; i < head->n_added; i++)
        tok->has_normalized |= !!(tok->flags[tok->added[i]] & TOKEN_NORMALIZED);
    for (uint32_t i = 0; i < head->n_added; i++)
        tok->added_lead[(unsigned char)tok->text[tok->offsets[tok->added[i]]]] = true;
    tables_fill_ascii(tok);
    return true;
}

enum reel_status tables_compile(struct reel_tokenizer *tok, const char *name,
                                struct reel_error *err) {
    return split_plan_open(&tok->plan, tok->plan_text, tok->head.plan_bytes, name, err);
}

void tables_sign(struct tables_header *head, const char *source) {
    memcpy(head->magic, tables_magic, sizeof tables_magic);
    head->version = TOKENIZER_TABLES_VERSION;
    head->byte_order = BYTE_ORDER_MARK;
    memcpy(head->source, source, SHA256_HEX);
    head->checksum = tables_checksum((const unsigned char *)head + sizeof *head,
                                     (size_t)head->total_bytes - sizeof *head);
}

void tokenizer_close(struct reel_tokenizer *tok) {
    if (!tok) return;
    split_plan_release(&tok->plan);
    file_map_close(&tok->file);
    mem_free(tok->block);
    mem_free(tok);
}

void tokenizer_single(const struct reel_tokenizer *tok, const int32_t **before, size_t *n_before,
                      const int32_t **after, size_t *n_after) {
    const struct around_text *around = tok->around;
    *before = around->before;
    *n_before = around->n_before;
    *after = around->after;
    *n_after = around->n_after;
}

int tokenizer_size(const struct reel_tokenizer *tok) { return (int)tok->head.n_tokens; }

const char *tokenizer_kind_name(const struct reel_tokenizer *tok) {
    return tok->head.kind == KIND_SENTENCEPIECE ? "SentencePiece BPE" : "byte-level BPE";
}

const char *tokenizer_bytes(const struct reel_tokenizer *tok, int32_t id, size_t *n_bytes) {
    *n_bytes = 0;
    if (id < 0 || (uint32_t)id >= tok->head.n_tokens || !(tok->flags[id] & TOKEN_PRESENT))
        return NULL;
    *n_bytes = tok->offsets[id + 1] - tok->offsets[id];
    return tok->text + tok->offsets[id];
}

bool tokenizer_is_control(const struct reel_tokenizer *tok, int32_t id) {
    return id >= 0 && (uint32_t)id < tok->head.n_tokens && tok->flags[id] & TOKEN_CONTROL;
}

int32_t tokenizer_find(const struct reel_tokenizer *tok, const char *text, size_t n_bytes) {
    uint64_t slot = n_bytes ? tables_word(tok, text, n_bytes) : 0;
    return slot ? (int32_t)word_slot_id(slot) : -1;
}

int32_t tokenizer_find_added(const struct reel_tokenizer *tok, const char *text) {
    size_t n = strlen(text);
    for (uint32_t i = 0; i < tok->head.n_added; i++) {
        size_t have;
        const char *bytes = tokenizer_bytes(tok, (int32_t)tok->added[i], &have);
        if (have == n && memcmp(bytes, text, n) == 0) return (int32_t)tok->added[i];
    }
    return -1;
}

/* From what the files say to the tables: the checks that need all entries, then the layout. */
#include "base/memory.h"
#include "model/tokenizer_bpe.h"
#include "model/tokenizer_parts.h"

#include <stdlib.h>

/* A well-spread table at half load has no row of neighbours near this long; a file made to collide
 * would otherwise keep the loader busy for hours. */
#define MAX_PROBES 4096

struct builder {
    const struct tokenizer_parts *parts;
    struct reel_tokenizer *tok; /* its tables are writable here */
    struct tables_layout at;
    unsigned char *block;
};

static void *section(struct builder *b, size_t at) { return b->block + at; }

static enum reel_status crowded(const struct builder *b, const char *what, struct reel_error *err) {
    return err_set(err, REEL_E_LIMIT, "%s: more than %d %s with one hash", b->parts->name,
                   MAX_PROBES, what);
}

static const char *part_text(const struct builder *b, size_t id) {
    return b->parts->text.bytes + b->parts->tokens[id].at;
}

static uint8_t bits_for(size_t n) {
    uint8_t bits = 1;
    while (((size_t)1 << bits) < 2 * n)
        bits++; /* at most half full */
    return bits;
}

static enum reel_status check_complete(const struct tokenizer_parts *parts,
                                       struct reel_error *err) {
    if (parts->n_tokens == 0)
        return err_set(err, REEL_E_FORMAT, "%s: the vocabulary is empty", parts->name);
    for (size_t i = 0; i < parts->n_tokens; i++) {
        if (parts->tokens[i].flags) continue;
        size_t last = i;
        while (last + 1 < parts->n_tokens && !parts->tokens[last + 1].flags)
            last++;
        return err_set(err, REEL_E_FORMAT,
                       "%s: no token has id %zu (up to %zu): ids must be given without a hole",
                       parts->name, i, last);
    }
    return REEL_OK;
}

/* Ids around a text are those of tokens. */
static enum reel_status check_around(const struct tokenizer_parts *parts, struct reel_error *err) {
    const struct around_text *around = &parts->around;
    int32_t highest = -1;
    for (uint32_t i = 0; i < around->n_before; i++)
        if (around->before[i] > highest) highest = around->before[i];
    for (uint32_t i = 0; i < around->n_after; i++)
        if (around->after[i] > highest) highest = around->after[i];
    if (highest < 0 || (size_t)highest < parts->n_tokens) return REEL_OK;
    return err_set(err, REEL_E_FORMAT,
                   "%s: token id %d around a text is not below the %zu ids there are", parts->name,
                   (int)highest, parts->n_tokens);
}

/* A merge never crosses the place between something and a space when no token that merging gives
 * has such a place inside. Both sides of it are then merged as if the other were not there. */
static enum cut_rule cut_of(const struct tokenizer_parts *parts) {
    if (parts->kind != KIND_SENTENCEPIECE) return CUT_NOWHERE;
    if (parts->cut_spaces) return CUT_SPACES;
    for (size_t i = 0; i < parts->n_merges; i++) {
        const struct merge_part *merge = &parts->merges[i];
        const char *text = parts->text.bytes + merge->at;
        for (uint32_t k = 1; k < merge->left_n + merge->right_n; k++)
            if (text[k] == ' ' && text[k - 1] != ' ') return CUT_NOWHERE;
    }
    return CUT_WORDS;
}

static enum reel_status make_block(struct builder *b, struct reel_error *err) {
    const struct tokenizer_parts *parts = b->parts;
    struct tables_header *head = &b->tok->head;
    head->plan_bytes = (uint32_t)parts->plan.size;
    head->nfc = parts->nfc;
    head->kind = (uint8_t)parts->kind;
    head->prefix = (uint8_t)parts->prefix;
    head->prefix_new = parts->prefix_new;
    head->cut = (uint8_t)cut_of(parts);
    head->strip = parts->strip;
    head->ties = parts->ties;
    head->n_tokens = (uint32_t)parts->n_tokens;
    head->n_merges = (uint32_t)parts->n_ranks;
    for (size_t i = 0; i < parts->n_tokens; i++) {
        head->text_bytes += parts->tokens[i].n;
        if (parts->tokens[i].flags & TOKEN_ADDED) head->n_added++;
    }
    head->merge_bits = bits_for(parts->n_merges);
    head->word_bits = bits_for(parts->n_tokens);
    if (parts->plan.size > SPLIT_MAX_BYTES)
        return err_set(err, REEL_E_LIMIT, "%s: %zu bytes of pre-tokenizers, at most %u",
                       parts->name, parts->plan.size, SPLIT_MAX_BYTES);
    if (!tables_layout(head, &b->at))
        return err_set(err, REEL_E_LIMIT, "%s: %llu bytes of tokens, at most %u are supported",
                       parts->name, (unsigned long long)head->text_bytes, TOKENIZER_MAX_TEXT);
    head->total_bytes = b->at.total;
    enum reel_status status = mem_aligned(&b->tok->block, b->at.total, 1, "a tokenizer", err);
    if (status != REEL_OK) return status;
    b->block = b->tok->block;
    b->tok->block_bytes = b->at.total;
    tables_point(b->tok, b->block, &b->at);
    if (parts->plan.size) memcpy(section(b, b->at.plan), parts->plan.bytes, parts->plan.size);
    memcpy(section(b, b->at.around), &parts->around, sizeof parts->around);
    memset(section(b, b->at.merge_slots), 0xff, sizeof(uint64_t) << head->merge_bits);
    return REEL_OK;
}

static void fill_text(struct builder *b) {
    uint32_t *offsets = section(b, b->at.offsets);
    uint16_t *flags = section(b, b->at.flags);
    char *text = section(b, b->at.text);
    for (size_t i = 0; i < b->parts->n_tokens; i++) {
        const struct token_part *part = &b->parts->tokens[i];
        flags[i] = (uint16_t)part->flags;
        if (part->n) memcpy(text + offsets[i], part_text(b, i), part->n);
        offsets[i + 1] = offsets[i] + part->n;
    }
}

static enum reel_status insert_word(struct builder *b, size_t id, struct reel_error *err) {
    const struct reel_tokenizer *tok = b->tok;
    uint64_t *slots = section(b, b->at.word_slots);
    size_t n = tok->offsets[id + 1] - tok->offsets[id];
    const char *text = tok->text + tok->offsets[id];
    uint64_t known = tables_word(tok, text, n);
    if (known && tok->flags[id] & TOKEN_RAW) return REEL_OK; /* the merges' own token is found */
    if (known)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tokens %u and %zu are the same: \"%.*s\"; each must have its own text",
                       b->parts->name, word_slot_id(known), id, (int)(n < 40 ? n : 40), text);
    uint64_t hash = word_hash(text, n), mask = (UINT64_C(1) << tok->head.word_bits) - 1;
    uint64_t i = hash >> (64 - tok->head.word_bits);
    for (int probes = 0; slots[i]; i = (i + 1) & mask)
        if (++probes > MAX_PROBES) return crowded(b, "tokens", err);
    slots[i] = WORD_TAG(hash) | (id + 1);
    return REEL_OK;
}

/* Tokens in the byte alphabet first: where an added token has the same bytes, merges mean them. */
static enum reel_status insert_words(struct builder *b, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int raw = 0; raw < 2; raw++)
        for (size_t id = 0; status == REEL_OK && id < b->parts->n_tokens; id++) {
            unsigned flags = b->parts->tokens[id].flags;
            if (flags & TOKEN_PRESENT && !!(flags & TOKEN_RAW) == raw)
                status = insert_word(b, id, err);
        }
    return status;
}

static uint32_t find_word(const struct builder *b, const char *text, size_t n) {
    return tables_mergeable(b->tok, text, n);
}

static enum reel_status insert_merge(struct builder *b, size_t index, struct reel_error *err) {
    const struct merge_part *merge = &b->parts->merges[index];
    uint32_t rank = merge->rank;
    const char *text = b->parts->text.bytes + merge->at;
    size_t n = (size_t)merge->left_n + merge->right_n;
    uint32_t left = find_word(b, text, merge->left_n);
    uint32_t right = find_word(b, text + merge->left_n, merge->right_n);
    uint32_t both = find_word(b, text, n);
    if (left == TOKENIZER_NONE || right == TOKENIZER_NONE || both == TOKENIZER_NONE)
        return err_set(err, REEL_E_FORMAT,
                       "%s: merge %zu of \"%.*s\" and \"%.*s\": \"%.*s\" is not a token",
                       b->parts->name, index, (int)(merge->left_n < 40 ? merge->left_n : 40), text,
                       (int)(merge->right_n < 40 ? merge->right_n : 40), text + merge->left_n,
                       (int)(n < 80 ? n : 80), text);
    uint64_t *slots = section(b, b->at.merge_slots);
    uint64_t key = MERGE_KEY(left, right), mask = (UINT64_C(1) << b->tok->head.merge_bits) - 1;
    uint64_t i = merge_hash(key, b->tok->head.merge_bits);
    for (int probes = 0; slots[i] != MERGE_EMPTY; i = (i + 1) & mask) {
        if (slots[i] >> 24 == key)
            return err_set(err, REEL_E_FORMAT, "%s: merge %zu repeats merge %llu", b->parts->name,
                           index, (unsigned long long)(slots[i] & 0xffffff));
        if (++probes > MAX_PROBES) return crowded(b, "merges", err);
    }
    slots[i] = MERGE_SLOT(key, rank);
    ((uint32_t *)section(b, b->at.merge_ids))[rank] = both;
    if (b->parts->ties) ((uint32_t *)section(b, b->at.orders))[rank] = merge->order;
    return REEL_OK;
}

/* SentencePiece: the tokens that stand for bytes. */
static enum reel_status fill_fallback(struct builder *b, struct reel_error *err) {
    uint32_t *byte_ids = section(b, b->at.byte_ids);
    for (int i = 0; i < 256; i++)
        byte_ids[i] = TOKENIZER_NONE;
    for (uint32_t id = 0; id < b->parts->n_tokens; id++) {
        if (!(b->parts->tokens[id].flags & TOKEN_BYTE)) continue;
        unsigned char byte = (unsigned char)*part_text(b, id);
        if (byte_ids[byte] != TOKENIZER_NONE)
            return err_set(err, REEL_E_FORMAT, "%s: tokens %u and %u are both byte 0x%02x",
                           b->parts->name, byte_ids[byte], id, (unsigned)byte);
        byte_ids[byte] = id;
    }
    for (unsigned i = 0; i < 256; i++)
        if (byte_ids[i] == TOKENIZER_NONE)
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: no token stands for byte 0x%02x (\"<0x%02X>\"): SentencePiece "
                           "without byte fallback is not supported",
                           b->parts->name, i, i);
    return REEL_OK;
}

static enum reel_status fill_byte_ids(struct builder *b, struct reel_error *err) {
    uint32_t *byte_ids = section(b, b->at.byte_ids);
    tables_fill_ascii(b->tok);
    if (b->parts->kind == KIND_SENTENCEPIECE) return fill_fallback(b, err);
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        bool in_utf8 = i < 0xf5 && i != 0xc0 && i != 0xc1;
        byte_ids[i] = find_word(b, (const char *)&byte, 1);
        if (byte_ids[i] == TOKENIZER_NONE && in_utf8 && !b->parts->drops_unknown)
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: byte 0x%02x is no token, so that text could need \"unk_token\"; "
                           "reel does not support it",
                           b->parts->name, (unsigned)i);
    }
    return REEL_OK;
}

struct added_text {
    const char *text;
    uint32_t n, id;
};

static int compare_added(const void *a, const void *b) {
    const struct added_text *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    if (order) return order;
    return x->n < y->n ? -1 : x->n > y->n;
}

static enum reel_status fill_added(struct builder *b, struct reel_error *err) {
    size_t n = b->tok->head.n_added, k = 0;
    struct added_text *added;
    uint32_t *ids = section(b, b->at.added);
    enum reel_status status = mem_zeroed(&added, n, sizeof *added, "added tokens", err);
    if (status != REEL_OK) return status;
    for (uint32_t id = 0; id < b->parts->n_tokens; id++)
        if (b->parts->tokens[id].flags & TOKEN_ADDED)
            added[k++] = (struct added_text){ part_text(b, id), b->parts->tokens[id].n, id };
    qsort(added, n, sizeof *added, compare_added);
    for (size_t i = 0; i < n; i++) {
        ids[i] = added[i].id;
        if (status == REEL_OK && i && compare_added(&added[i - 1], &added[i]) == 0)
            status =
                err_set(err, REEL_E_FORMAT, "%s: added tokens %u and %u are the same: \"%.*s\"",
                        b->parts->name, added[i - 1].id, added[i].id,
                        (int)(added[i].n < 40 ? added[i].n : 40), added[i].text);
    }
    mem_free(added);
    return status;
}

/* Marks each word that merging gives back as one token: most words of a text are then one look-up.
 */
static enum reel_status mark_whole_words(struct builder *b, struct reel_error *err) {
    struct bpe_scratch scratch = { 0 };
    const struct reel_tokenizer *tok = b->tok;
    uint64_t *slots = section(b, b->at.word_slots);
    enum reel_status status = REEL_OK;
    int32_t *ids = NULL;
    size_t longest = 0;
    for (size_t id = 0; id < b->parts->n_tokens; id++)
        if (b->parts->tokens[id].n > longest) longest = b->parts->tokens[id].n;
    status = mem_zeroed(&ids, longest, sizeof *ids, "a long token", err);
    for (size_t i = 0; status == REEL_OK && i < (size_t)1 << tok->head.word_bits; i++) {
        if (slots[i] == 0) continue;
        uint32_t id = word_slot_id(slots[i]);
        const unsigned char *text = (const unsigned char *)tok->text + tok->offsets[id];
        size_t made;
        if (tok->flags[id] & TOKEN_RAW) continue;
        if (b->parts->ignore_merges) {
            slots[i] |= WORD_WHOLE;
            continue;
        }
        status =
            bpe_word(tok, &scratch, text, tok->offsets[id + 1] - tok->offsets[id], ids, &made, err);
        if (status == REEL_OK && made == 1 && (uint32_t)ids[0] == id) slots[i] |= WORD_WHOLE;
    }
    bpe_scratch_release(&scratch);
    mem_free(ids);
    return status;
}

enum reel_status tokenizer_build(struct reel_tokenizer **out, const struct tokenizer_parts *parts,
                                 const char *source, struct reel_error *err) {
    struct builder b = { .parts = parts };
    *out = NULL;
    enum reel_status status = check_complete(parts, err);
    if (status == REEL_OK) status = check_around(parts, err);
    if (status == REEL_OK) status = mem_zeroed(&b.tok, 1, sizeof *b.tok, "a tokenizer", err);
    if (status != REEL_OK) return status;
    status = make_block(&b, err);
    if (status == REEL_OK) {
        fill_text(&b);
        status = insert_words(&b, err);
    }
    for (size_t i = 0; status == REEL_OK && i < parts->n_merges; i++)
        status = insert_merge(&b, i, err);
    if (status == REEL_OK) status = fill_byte_ids(&b, err);
    if (status == REEL_OK) status = fill_added(&b, err);
    if (status == REEL_OK) status = mark_whole_words(&b, err);
    if (status == REEL_OK) {
        memcpy(b.block, &b.tok->head, sizeof b.tok->head);
        tables_sign((struct tables_header *)(void *)b.block, source);
        if (!tables_attach(b.tok, b.block, b.at.total, source))
            status = err_set(err, REEL_E_FORMAT,
                             "%s: the tables built from it do not hold together", parts->name);
        else
            status = tables_compile(b.tok, parts->name, err);
    }
    if (status != REEL_OK) {
        tokenizer_close(b.tok);
        return status;
    }
    *out = b.tok;
    return REEL_OK;
}

/* Byte pair merging: again and again the pair of lowest order (its rank, where the file has no
 * merges of equal order), the leftmost of equals.
 *
 * Byte-level BPE starts from the tokens of single bytes. SentencePiece starts from the tokens of
 * single characters; a character that is no token gives the tokens of its bytes, which no merge
 * takes.
 *
 * A short word looks through all its pairs each time, which for a few bytes beats any structure.
 * A long one keeps the pairs in a heap by order, then place.
 */
#include "model/tokenizer_bpe.h"

#include "base/memory.h"
#include "model/tokenizer_utf8.h"

void bpe_scratch_release(struct bpe_scratch *scratch) {
    mem_free(scratch->words);
    *scratch = (struct bpe_scratch){ 0 };
}

/* The tokens of a word before merging, at most n; the number of them. */
static size_t first_ids(const struct reel_tokenizer *tok, const unsigned char *word, size_t n,
                        uint32_t *id) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t byte_id = tok->byte_ids[word[i]];
        if (byte_id != TOKENIZER_NONE) id[count++] = byte_id;
    }
    return count;
}

/* The same for SentencePiece: `word` is valid UTF-8. */
static size_t first_characters(const struct reel_tokenizer *tok, const unsigned char *word,
                               size_t n, uint32_t *id) {
    size_t count = 0;
    for (size_t i = 0, length; i < n; i += length) {
        length = (size_t)utf8_length(word[i]);
        uint32_t whole =
            length == 1 ? tok->ascii_ids[word[i]] : tables_mergeable(tok, word + i, length);
        if (whole != TOKENIZER_NONE)
            id[count++] = whole;
        else
            count += first_ids(tok, word + i, length, id + count);
    }
    return count;
}

static size_t word_start(const struct reel_tokenizer *tok, const unsigned char *word, size_t n,
                         uint32_t *id) {
    return tok->head.kind == KIND_SENTENCEPIECE ? first_characters(tok, word, n, id)
                                                : first_ids(tok, word, n, id);
}

static size_t short_word(const struct reel_tokenizer *tok, const unsigned char *word, size_t n,
                         int32_t *ids) {
    uint32_t id[BPE_SHORT_WORD], order[BPE_SHORT_WORD];
    size_t count = word_start(tok, word, n, id);
    for (size_t i = 0; i + 1 < count; i++)
        order[i] = tables_order(tok, id[i], id[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (order[i] < order[best]) best = i;
        if (order[best] == TOKENIZER_NONE) break;
        id[best] = tables_merged(tok, id[best], id[best + 1], order[best]);
        count--;
        for (size_t i = best + 1; i < count; i++) {
            id[i] = id[i + 1];
            order[i - 1] = order[i]; /* the pair that starts here is looked up again below */
        }
        if (best + 1 < count) order[best] = tables_order(tok, id[best], id[best + 1]);
        if (best > 0) order[best - 1] = tables_order(tok, id[best - 1], id[best]);
    }
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)id[i];
    return count;
}

/* A long word's tokens as a list in place: entry i is the token that starts at the i-th byte. */
struct chain {
    const struct reel_tokenizer *tok;
    uint32_t *id, *next, *previous; /* [n] */
    uint32_t *order;                /* [n] of the pair that starts here; NONE when there is none */
    uint64_t *heap;                 /* [2 n] order << 32 | place */
    size_t n, heap_n;
    uint64_t work;
};

static void sift_down(struct chain *c, size_t i) {
    uint64_t moved = c->heap[i];
    for (size_t child; (child = 2 * i + 1) < c->heap_n; i = child, c->work++) {
        if (child + 1 < c->heap_n && c->heap[child + 1] < c->heap[child]) child++;
        if (c->heap[child] >= moved) break;
        c->heap[i] = c->heap[child];
    }
    c->heap[i] = moved;
}

static void heap_push(struct chain *c, uint64_t entry) {
    size_t i = c->heap_n++;
    for (; i > 0 && c->heap[(i - 1) / 2] > entry; i = (i - 1) / 2, c->work++)
        c->heap[i] = c->heap[(i - 1) / 2];
    c->heap[i] = entry;
}

static uint64_t heap_pop(struct chain *c) {
    uint64_t first = c->heap[0];
    c->heap[0] = c->heap[--c->heap_n];
    if (c->heap_n) sift_down(c, 0);
    return first;
}

#define CHAIN_END UINT32_MAX

static uint32_t pair_order(const struct chain *c, uint32_t at) {
    uint32_t next = c->next[at];
    return next == CHAIN_END ? TOKENIZER_NONE : tables_order(c->tok, c->id[at], c->id[next]);
}

static void look_again(struct chain *c, uint32_t at) {
    c->work++;
    c->order[at] = pair_order(c, at);
    if (c->order[at] != TOKENIZER_NONE) heap_push(c, (uint64_t)c->order[at] << 32 | at);
}

static void chain_fill(struct chain *c, const unsigned char *word, size_t n) {
    c->n = word_start(c->tok, word, n, c->id);
    for (uint32_t i = 0; i < c->n; i++) {
        c->next[i] = i + 1 < c->n ? i + 1 : CHAIN_END;
        c->previous[i] = i ? i - 1 : CHAIN_END;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        c->order[i] = pair_order(c, i);
        if (c->order[i] != TOKENIZER_NONE) c->heap[c->heap_n++] = (uint64_t)c->order[i] << 32 | i;
    }
    for (size_t i = c->heap_n / 2; i-- > 0;)
        sift_down(c, i);
}

/* An entry of the heap whose order is no longer its place's was overtaken by another merge. */
static void chain_merge(struct chain *c) {
    while (c->heap_n) {
        uint64_t entry = heap_pop(c);
        uint32_t at = (uint32_t)entry, order = (uint32_t)(entry >> 32);
        if (c->order[at] != order) continue;
        uint32_t gone = c->next[at], after = c->next[gone];
        c->id[at] = tables_merged(c->tok, c->id[at], c->id[gone], order);
        c->order[gone] = TOKENIZER_NONE;
        c->next[at] = after;
        if (after != CHAIN_END) c->previous[after] = at;
        look_again(c, at);
        if (c->previous[at] != CHAIN_END) look_again(c, c->previous[at]);
    }
}

static enum reel_status reserve(struct bpe_scratch *scratch, size_t n, struct reel_error *err) {
    const size_t per_byte = 4 * sizeof(uint32_t) + 2 * sizeof(uint64_t);
    if (n <= scratch->capacity) return REEL_OK;
    bpe_scratch_release(scratch);
    size_t capacity = n < 512 ? 512 : n + n / 2;
    scratch->words = mem_alloc(capacity * per_byte);
    if (!scratch->words) return err_memory(err, "a long word", capacity * per_byte);
    scratch->capacity = capacity;
    return REEL_OK;
}

enum reel_status bpe_word(const struct reel_tokenizer *tok, struct bpe_scratch *scratch,
                          const unsigned char *word, size_t n, int32_t *ids, size_t *n_ids,
                          struct reel_error *err) {
    *n_ids = 0;
    if (n <= BPE_SHORT_WORD) {
        *n_ids = short_word(tok, word, n, ids);
        return REEL_OK;
    }
    if (n > BPE_MAX_WORD)
        return err_set(err, REEL_E_LIMIT, "a word of %zu bytes, at most %u are supported", n,
                       BPE_MAX_WORD);
    enum reel_status status = reserve(scratch, n, err);
    if (status != REEL_OK) return status;
    struct chain c = { .tok = tok, .heap = (uint64_t *)(void *)scratch->words };
    c.id = scratch->words + 4 * scratch->capacity;
    c.next = c.id + scratch->capacity;
    c.previous = c.next + scratch->capacity;
    c.order = c.previous + scratch->capacity;
    chain_fill(&c, word, n);
    c.work += c.n;
    chain_merge(&c);
    scratch->work += c.work;
    for (uint32_t i = 0; c.n && i != CHAIN_END; i = c.next[i])
        ids[(*n_ids)++] = (int32_t)c.id[i];
    return REEL_OK;
}

/* The tables of a loaded tokenizer: one block of bytes, the same in memory and in a cache file.
 *
 *   header | sections, each on a 64-byte boundary, sizes following from the header's counts
 *
 * A block is checked once, when it is attached: after that every number in it can be trusted to
 * stay inside the block, whoever wrote it.
 */
#ifndef REEL_MODEL_TOKENIZER_TABLES_H
#define REEL_MODEL_TOKENIZER_TABLES_H

#include "base/sha256.h"
#include "model/tokenizer.h"
#include "model/tokenizer_split.h"

#include <string.h>

#define TOKENIZER_TABLES_VERSION 5
#define TOKENIZER_MAX_TEXT       (1u << 28) /* bytes of all tokens together */
#define TOKENIZER_NONE           UINT32_MAX
#define TOKENIZER_MAX_AROUND     8 /* ids that a post-processor puts on one side of a text */

enum token_flag {
    TOKEN_PRESENT = 1,   /* has text; only reserved ids of GGUF files have none */
    TOKEN_ADDED = 2,     /* found in text as it stands, before everything else */
    TOKEN_CONTROL = 4,   /* "special": not part of what a reader sees */
    TOKEN_RAW = 8,       /* its text is not written in the byte alphabet: no merge can give it */
    TOKEN_RESERVED = 16, /* listed without text */
    TOKEN_BYTE = 32,     /* SentencePiece: stands for one byte of a character that is no token */
    /* Of added tokens: */
    TOKEN_LSTRIP = 64,       /* takes the white space before it along */
    TOKEN_RSTRIP = 128,      /* takes the white space behind it along */
    TOKEN_SINGLE_WORD = 256, /* is found only where no letter or digit touches it */
    TOKEN_NORMALIZED = 512   /* is found in normalised text, after all others */
};

/* What merging starts from. Stored in cache files: append only. */
enum tokenizer_kind {
    KIND_BYTE_LEVEL,    /* the bytes of the words that a pattern cuts */
    KIND_SENTENCEPIECE, /* the characters of the whole text; a space is a character as any other */
    N_TOKENIZER_KINDS
};

/* SentencePiece: which texts get a space in front. A text here is what stands between two added
 * tokens. Stored in cache files. */
enum prefix_rule {
    PREFIX_NONE,
    PREFIX_EACH,  /* every text */
    PREFIX_FIRST, /* the one that starts at the beginning */
    N_PREFIX_RULES
};

/* SentencePiece: where a text is cut before merging. Stored in cache files. */
enum cut_rule {
    CUT_NOWHERE,
    CUT_WORDS,  /* before a row of spaces: no token has a space behind something else, so that no
                   merge could cross the cut and cutting changes nothing but the time */
    CUT_SPACES, /* before each space, as the file asks for */
    N_CUT_RULES
};

/* What the model's post-processor puts around a single text. */
struct around_text {
    uint32_t n_before, n_after;
    int32_t before[TOKENIZER_MAX_AROUND], after[TOKENIZER_MAX_AROUND];
};

struct tables_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    char source[SHA256_HEX]; /* of the files the tables were made from */
    uint8_t nfc;
    uint8_t merge_bits; /* log2 of the slots of each hash table */
    uint8_t word_bits;
    uint8_t kind;       /* enum tokenizer_kind; what follows is for SentencePiece */
    uint8_t prefix;     /* enum prefix_rule */
    uint8_t prefix_new; /* no space before a text that starts with one */
    uint8_t cut;        /* enum cut_rule */
    uint8_t strip;      /* a space that starts an answer is not shown */
    uint8_t ties;       /* whether `orders` is there */
    uint8_t zero[6];
    uint32_t n_tokens;
    uint32_t n_merges;
    uint32_t n_added;
    uint32_t plan_bytes;
    uint64_t text_bytes;
    uint64_t total_bytes;
    uint64_t checksum; /* of everything after the header */
};

/* A slot of the merge table: left id, right id and rank, 20 + 20 + 24 bits; all ones when empty. */
#define MERGE_EMPTY       UINT64_MAX
#define MERGE_KEY(l, r)   ((uint64_t)(l) << 20 | (uint64_t)(r))
#define MERGE_SLOT(k, rk) ((k) << 24 | (uint64_t)(rk))
/* A slot of the word table: 42 bits of the hash, whether the word is one token after merging, and
 * id + 1; 0 when empty. */
#define WORD_ID_BITS 21
#define WORD_WHOLE   (UINT64_C(1) << WORD_ID_BITS)
#define WORD_TAG(h)  ((h) & ~(WORD_WHOLE * 2 - 1))

struct reel_tokenizer {
    struct tables_header head;
    struct file_map file; /* the cache file the tables lie in, or */
    void *block;          /* the memory they were built in */
    size_t block_bytes;
    struct split_plan plan; /* compiled by tables_compile */
    const char *plan_text;  /* [plan_bytes] */
    const struct around_text *around;
    const uint32_t *offsets;     /* [n_tokens + 1], into text */
    const uint16_t *flags;       /* [n_tokens], enum token_flag */
    const uint32_t *byte_ids;    /* [256], NONE for a byte the vocabulary lacks */
    const uint32_t *added;       /* [n_added] ids, sorted by their bytes */
    const uint32_t *merge_ids;   /* [n_merges], what the merge of each rank gives */
    const uint32_t *orders;      /* [n_merges] or NULL: merges of one order go from left to right,
                                    whatever their rank */
    const uint64_t *merge_slots; /* [1 << merge_bits] */
    const uint64_t *word_slots;  /* [1 << word_bits] */
    const char *text;            /* [text_bytes] */
    bool has_normalized;         /* some added token is TOKEN_NORMALIZED */
    bool added_lead[256];        /* bytes an added token starts with */
    uint32_t ascii_ids[128];     /* SentencePiece: the token of a character, or NONE */
};

/* Where the sections lie; writable while the tables are built. */
struct tables_layout {
    size_t around, plan, offsets, flags, byte_ids, added, merge_ids, orders, merge_slots,
        word_slots, text, total;
};

/* False when the header's counts are outside their limits. */
bool tables_layout(const struct tables_header *head, struct tables_layout *at);

/* Points tok, whose header is filled, into a block it trusts. */
void tables_point(struct reel_tokenizer *tok, const void *block, const struct tables_layout *at);

/* Fills what identifies a block and its checksum; head is the start of the block. */
void tables_sign(struct tables_header *head, const char *source);

/* Points tok into block [n_bytes] and checks everything. `source` is the expected hash. False: not
 * a block this version can use. */
bool tables_attach(struct reel_tokenizer *tok, const void *block, size_t n_bytes,
                   const char *source);

/* Compiles how text is cut, of attached tables. `name` is the file, for messages. */
enum reel_status tables_compile(struct reel_tokenizer *tok, const char *name,
                                struct reel_error *err);

uint64_t tables_checksum(const void *bytes, size_t n);

static inline uint64_t merge_hash(uint64_t key, unsigned bits) {
    return (key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - bits);
}

/* Rank of the merge of two tokens, or NONE. */
static inline uint32_t tables_rank(const struct reel_tokenizer *tok, uint32_t left,
                                   uint32_t right) {
    uint64_t key = MERGE_KEY(left, right);
    uint64_t mask = (UINT64_C(1) << tok->head.merge_bits) - 1;
    for (uint64_t i = merge_hash(key, tok->head.merge_bits);; i = (i + 1) & mask) {
        uint64_t slot = tok->merge_slots[i];
        if (slot == MERGE_EMPTY)
            return TOKENIZER_NONE; /* first: a key of two largest ids looks so */
        if (slot >> 24 == key) return (uint32_t)(slot & 0xffffff);
    }
}

/* What says which merge comes first: the lowest, the leftmost of equals. NONE: no such merge. */
static inline uint32_t tables_order(const struct reel_tokenizer *tok, uint32_t left,
                                    uint32_t right) {
    uint32_t rank = tables_rank(tok, left, right);
    return tok->orders && rank != TOKENIZER_NONE ? tok->orders[rank] : rank;
}

/* What two tokens merge to; order is theirs. */
static inline uint32_t tables_merged(const struct reel_tokenizer *tok, uint32_t left,
                                     uint32_t right, uint32_t order) {
    return tok->merge_ids[tok->orders ? tables_rank(tok, left, right) : order];
}

static inline uint64_t word_hash(const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    const uint64_t k = UINT64_C(0xd6e8feb86659fd93);
    uint64_t h = n * k, part;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&part, p, 8);
        h = (h ^ part) * k;
        h ^= h >> 32;
    }
    for (part = 0; n > 0; n--)
        part = part << 8 | p[n - 1];
    h = (h ^ part) * k;
    h ^= h >> 32;
    return h * k;
}

/* The word table's slot for these bytes; 0 when they are no token. */
static inline uint64_t tables_word(const struct reel_tokenizer *tok, const void *bytes, size_t n) {
    uint64_t hash = word_hash(bytes, n);
    uint64_t mask = (UINT64_C(1) << tok->head.word_bits) - 1;
    for (uint64_t i = hash >> (64 - tok->head.word_bits);; i = (i + 1) & mask) {
        uint64_t slot = tok->word_slots[i];
        if (slot == 0) return 0;
        if (WORD_TAG(slot) != WORD_TAG(hash)) continue;
        uint32_t id = (uint32_t)(slot & (WORD_WHOLE - 1)) - 1, at = tok->offsets[id];
        if (tok->offsets[id + 1] - at == n && memcmp(tok->text + at, bytes, n) == 0) return slot;
    }
}

static inline uint32_t word_slot_id(uint64_t slot) {
    return (uint32_t)(slot & (WORD_WHOLE - 1)) - 1;
}

/* The token that merging means by these bytes, or NONE. */
static inline uint32_t tables_mergeable(const struct reel_tokenizer *tok, const void *bytes,
                                        size_t n) {
    uint64_t slot = tables_word(tok, bytes, n);
    if (slot == 0 || tok->flags[word_slot_id(slot)] & TOKEN_RAW) return TOKENIZER_NONE;
    return word_slot_id(slot);
}

/* Fills what is looked up so often that it has a table of its own, outside the block. */
void tables_fill_ascii(struct reel_tokenizer *tok);

#endif

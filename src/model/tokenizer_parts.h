/* A tokenizer as its files describe it, before tables are built: filled by one reader per format.
 */
#ifndef REEL_MODEL_TOKENIZER_PARTS_H
#define REEL_MODEL_TOKENIZER_PARTS_H

#include "base/buffer.h"
#include "model/gguf.h"
#include "model/tokenizer_tables.h"

#include <jansson.h>

struct token_part {
    uint32_t at; /* into text */
    uint32_t n;
    uint32_t flags; /* enum token_flag; 0 for an id not described yet */
};

/* Two tokens that merge: their bytes stand one after the other in text. Merges of one rank give one
 * token. The lowest order is merged first, and of merges of one order the leftmost. */
struct merge_part {
    uint32_t at, left_n, right_n, rank, order;
};

struct tokenizer_parts {
    const char *name; /* borrowed: the file, for messages */
    enum tokenizer_kind kind;
    struct buffer plan; /* tokenizer_split.h: how text is cut; not of SentencePiece */
    bool nfc;
    struct around_text around;
    bool ignore_merges; /* a word that is a token is that token, whatever merging gives */
    bool drops_unknown; /* a byte that is no token vanishes; otherwise it would need unk_token */
    enum prefix_rule prefix; /* this and the next four are for SentencePiece */
    bool prefix_new;         /* no space before a text that starts with one */
    bool normalizes;         /* spaces are written by normalizers, which added tokens can meet */
    bool cut_spaces;         /* merges cross no space */
    bool strip;              /* a space that starts an answer is not shown */
    struct buffer text;
    struct token_part *tokens; /* [n_tokens], index is the id */
    size_t n_tokens, token_capacity;
    struct merge_part *merges; /* [n_merges], by rank */
    size_t n_merges, merge_capacity, n_ranks;
    bool ties; /* order and rank may differ */
};

/* A vocabulary entry, written in the byte alphabet; for SentencePiece as its files write it, with
 * U+2581 for a space and "<0x0A>" for a byte. */
enum reel_status parts_add_word(struct tokenizer_parts *parts, int64_t id, const char *text,
                                size_t n, struct reel_error *err);

/* An added token, written as it stands in text. May repeat what is known of the id. */
enum reel_status parts_add_token(struct tokenizer_parts *parts, int64_t id, const char *text,
                                 size_t n, bool control, struct reel_error *err);

/* An id that a file lists but that has no text. */
enum reel_status parts_add_reserved(struct tokenizer_parts *parts, int64_t id,
                                    struct reel_error *err);

/* The next merge by rank. */
enum reel_status parts_add_merge(struct tokenizer_parts *parts, const char *left, size_t left_n,
                                 const char *right, size_t right_n, struct reel_error *err);

/* The same, written "left right". */
enum reel_status parts_add_merge_line(struct tokenizer_parts *parts, const char *line, size_t n,
                                      struct reel_error *err);

/* Puts an id before (or after) every single text, outside those that are there already. Whether the
 * id is a token is checked when tables are built. */
enum reel_status parts_add_around(struct tokenizer_parts *parts, int64_t id, bool after,
                                  struct reel_error *err);

void parts_release(struct tokenizer_parts *parts);

/* SentencePiece's files without merges: tokens merge where the text of both is a token, the one of
 * the highest score first, the leftmost of equals. scores is [n_tokens]; one that is not a number
 * is refused. */
enum reel_status parts_add_scored_merges(struct tokenizer_parts *parts, const float *scores,
                                         struct reel_error *err);

/* Builds tables from parts. */
enum reel_status tokenizer_build(struct reel_tokenizer **out, const struct tokenizer_parts *parts,
                                 const char *source, struct reel_error *err);

/* The readers. Each sets parts->name for its messages. `config` is tokenizer_config.json, NULL when
 * there is none: it may list added tokens that tokenizer.json lacks. */
enum reel_status parts_from_json(struct tokenizer_parts *parts, const char *name,
                                 const struct file_map *file, const char *config_name,
                                 const struct file_map *config, struct reel_error *err);
enum reel_status parts_from_vocab(struct tokenizer_parts *parts, const char *vocab_name,
                                  const struct file_map *vocab, const char *merges_name,
                                  const struct file_map *merges, const char *config_name,
                                  const struct file_map *config, struct reel_error *err);
enum reel_status parts_from_gguf(struct tokenizer_parts *parts, const struct gguf *gguf,
                                 struct reel_error *err);
/* tokenizer.model of SentencePiece. `config` is tokenizer_config.json, NULL when there is none. */
enum reel_status parts_from_spm(struct tokenizer_parts *parts, const char *name,
                                const struct file_map *file, const char *config_name,
                                const struct file_map *config, struct reel_error *err);
/* added_tokens.json beside it: an object of texts and ids, in folders of older versions. */
enum reel_status parts_from_added(struct tokenizer_parts *parts, const char *name,
                                  const struct file_map *file, struct reel_error *err);

/* Makes room for `needed` entries of `size` bytes; *array is some pointer's address. */
enum reel_status parts_grow(void *array, size_t needed, size_t *capacity, size_t size,
                            struct reel_error *err);

/* How tokenizer.json writes spaces and decodes, for a model with byte_fallback. */
enum reel_status parts_read_spm(struct tokenizer_parts *parts, const json_t *root,
                                struct reel_error *err);

/* The pipeline that GGUF files name in tokenizer.ggml.pre. *starts receives whether its models
 * begin every text with their begin-of-text token where the file does not say. */
enum reel_status parts_set_named(struct tokenizer_parts *parts, const char *name, size_t n,
                                 bool *starts, struct reel_error *err);

/* The pre_tokenizer of tokenizer.json, which must be there. */
enum reel_status parts_read_pre_tokenizer(struct tokenizer_parts *parts, const json_t *step,
                                          struct reel_error *err);

/* The post_processor of tokenizer.json; NULL and null add nothing. */
enum reel_status parts_read_post_processor(struct tokenizer_parts *parts, const json_t *post,
                                           struct reel_error *err);

/* Shared by the JSON readers. */
/* One expression, as Split with Isolated and ByteLevel would have it. */
enum reel_status parts_set_regex(struct tokenizer_parts *parts, const char *regex,
                                 struct reel_error *err);
enum reel_status parts_add_vocabulary(struct tokenizer_parts *parts, const json_t *vocab,
                                      struct reel_error *err);
enum reel_status parts_add_config_tokens(struct tokenizer_parts *parts, const json_t *config,
                                         struct reel_error *err);
enum reel_status parts_add_config_around(struct tokenizer_parts *parts, const json_t *config,
                                         bool after, const char *fallback, struct reel_error *err);
enum reel_status parts_add_described(struct tokenizer_parts *parts, int64_t id,
                                     const json_t *described, struct reel_error *err);

#endif

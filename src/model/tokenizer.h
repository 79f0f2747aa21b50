/* Text to ids and back: byte-level BPE (GPT-2 style) and SentencePiece's BPE with byte fallback.
 *
 *   byte-level      added-token split -> NFC (where the file asks for it) -> pre-tokeniser pattern
 *                   -> byte alphabet -> merges by rank
 *   SentencePiece   added-token split -> a space in front (where the file asks for it)
 *                   -> characters, or bytes of those that are no token -> merges by rank
 */
#ifndef REEL_MODEL_TOKENIZER_H
#define REEL_MODEL_TOKENIZER_H

#include "model/gguf.h"
#include "model/model_source.h"

#define TOKENIZER_MAX_TOKENS (1 << 20)

struct reel_tokenizer; /* immutable after loading; safe from any number of threads */

/* From a folder (tokenizer.json; or tokenizer.model; or vocab.json + merges.txt +
 * tokenizer_config.json) or, when gguf is given, from its metadata. cache_dir may be NULL;
 * otherwise a binary form, keyed by the SHA-256 of the source files, is read from there or written
 * there (failure to write is no failure to load). */
enum reel_status tokenizer_load(struct reel_tokenizer **out, const struct model_source *source,
                                const struct gguf *gguf, const char *cache_dir,
                                struct reel_error *err);
void tokenizer_close(struct reel_tokenizer *tok);

/* A run of text for encoding. Added tokens are recognised only inside a piece that allows it, never
 * across pieces; everything between two added tokens is encoded as one text, across pieces. */
struct text_piece {
    const char *text;
    size_t n_bytes;
    bool control; /* added tokens are recognised */
};

/* *ids (caller frees) receives *n_ids ids. Invalid UTF-8 is refused with its offset. */
enum reel_status tokenizer_encode(const struct reel_tokenizer *tok, const struct text_piece *pieces,
                                  int n_pieces, int32_t **ids, size_t *n_ids,
                                  struct reel_error *err);

/* The ids that the model's post-processor puts before and after a single text, as Hugging Face's
 * tokenizer(text) does: a begin-of-text token, an end token of an embedding model. Borrowed from
 * tok; often none. */
void tokenizer_single(const struct reel_tokenizer *tok, const int32_t **before, size_t *n_before,
                      const int32_t **after, size_t *n_after);

int tokenizer_size(const struct reel_tokenizer *tok);

/* "byte-level BPE" or "SentencePiece BPE". */
const char *tokenizer_kind_name(const struct reel_tokenizer *tok);

/* Bytes of an id, borrowed; NULL for an id without text (a hole, or one past the end). */
const char *tokenizer_bytes(const struct reel_tokenizer *tok, int32_t id, size_t *n_bytes);
bool tokenizer_is_control(const struct reel_tokenizer *tok, int32_t id); /* "special" in the file */
int32_t tokenizer_find(const struct reel_tokenizer *tok, const char *text, size_t n_bytes);
int32_t tokenizer_find_added(const struct reel_tokenizer *tok, const char *text);

/* Turns a stream of token bytes into whole UTF-8 characters. Invalid bytes become U+FFFD as the
 * reference decoder writes them; an incomplete tail is held back. Needs no release. */
struct detokenizer {
    unsigned char held[4];
    int n_held;
    bool each_byte; /* of SentencePiece: each byte of no character becomes a U+FFFD */
    bool strip;     /* the next byte is dropped if it is a space */
};

/* The start of a text made of this tokenizer's tokens. tok may be NULL. */
struct detokenizer detokenizer_start(const struct reel_tokenizer *tok);

/* Room that `out` needs for one token of n_bytes. */
#define DETOKENIZER_ROOM(n_bytes) (3 * ((n_bytes) + 4))

/* Adds bytes; writes what is certain to out (DETOKENIZER_ROOM bytes) and returns its length. */
size_t detokenizer_push(struct detokenizer *d, const char *bytes, size_t n_bytes, char *out);
/* Ends the stream: what was held becomes U+FFFD. out has room for 16 bytes. */
size_t detokenizer_finish(struct detokenizer *d, char *out);

#endif

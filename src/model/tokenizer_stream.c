/* Token bytes back to text, as they come. One state machine over bytes: what is held is always the
 * start of a valid character, so it never waits for more than three bytes.
 *
 * Broken bytes of byte-level BPE become U+FFFD as Python writes them: one for all that could have
 * become a character. Those of SentencePiece become one U+FFFD each, as Hugging Face's ByteFallback
 * decoder writes them. That decoder also takes back the whole characters in the same row of byte
 * tokens; here they are shown already and stay. */
#include "model/tokenizer_tables.h"
#include "model/tokenizer_utf8.h"

#include <string.h>

static size_t put_replacement(char *out) {
    memcpy(out, "\xef\xbf\xbd", 3);
    return 3;
}

struct detokenizer detokenizer_start(const struct reel_tokenizer *tok) {
    bool pieces = tok && tok->head.kind == KIND_SENTENCEPIECE;
    return (struct detokenizer){ .each_byte = pieces, .strip = pieces && tok->head.strip };
}

/* What is held will not become a character. */
static size_t give_up(struct detokenizer *d, char *out) {
    size_t n = 0;
    for (int i = 0; i < (d->each_byte ? d->n_held : d->n_held > 0); i++)
        n += put_replacement(out + n);
    d->n_held = 0;
    return n;
}

/* Whether the held bytes may go on with c. */
static bool goes_on(const struct detokenizer *d, unsigned char c) {
    return d->n_held == 1 ? utf8_second_ok(d->held[0], c) : (c & 0xc0) == 0x80;
}

static size_t push_byte(struct detokenizer *d, unsigned char c, char *out) {
    size_t n = d->n_held && !goes_on(d, c) ? give_up(d, out) : 0;
    bool dropped = d->strip && c == ' ';
    d->strip = false;
    if (dropped) return n;
    if (d->n_held == 0 && utf8_length(c) == 0) return n + put_replacement(out + n);
    d->held[d->n_held++] = c;
    if (d->n_held < utf8_length(d->held[0])) return n;
    memcpy(out + n, d->held, (size_t)d->n_held);
    n += (size_t)d->n_held;
    d->n_held = 0;
    return n;
}

size_t detokenizer_push(struct detokenizer *d, const char *bytes, size_t n_bytes, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += push_byte(d, (unsigned char)bytes[i], out + n);
    return n;
}

size_t detokenizer_finish(struct detokenizer *d, char *out) { return give_up(d, out); }

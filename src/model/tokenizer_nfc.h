/* Canonical composition (NFC), as far as the reference's version of Unicode knows it. */
#ifndef REEL_MODEL_TOKENIZER_NFC_H
#define REEL_MODEL_TOKENIZER_NFC_H

#include "base/buffer.h"

/* Working memory, kept from text to text. Starts zeroed. */
struct nfc_scratch {
    struct buffer text;   /* a normalised text that differs from its source */
    int32_t *code_points; /* of one stretch */
    size_t capacity;
};

/* *text and *n become the normalised text: the same pointer when nothing changes, otherwise memory
 * of scratch, good until its next use. *text is valid UTF-8. */
enum reel_status nfc_text(struct nfc_scratch *scratch, const char **text, size_t *n,
                          struct reel_error *err);

void nfc_scratch_release(struct nfc_scratch *scratch);

#endif

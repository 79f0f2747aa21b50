/* A small Llama model in Q4_1 as one GGUF file, tokenizer included: what people have, in miniature.
 */
#ifndef REEL_TESTS_QUANTISED_MODEL_H
#define REEL_TESTS_QUANTISED_MODEL_H

#include "support/model_bytes.h"

/* Two layers, hidden 64, two heads of 32, tied; ids are bytes, 256 of them, and "<|end|>". The
 * blocks' offsets are larger than their spread, so that bf16 is too coarse for the values. */
void quantised_gguf(struct bytes *b);

#endif

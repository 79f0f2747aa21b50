/* Tokenizers with the tokens that speech models add. */
#ifndef REEL_TESTS_SPEECH_TOKENIZER_H
#define REEL_TESTS_SPEECH_TOKENIZER_H

#include "base/buffer.h"

/* Qwen3's, and after its 26 added tokens the 36 of Qwen3-ASR, 151669 to 151704. False when the
 * fixture cannot be had. The caller releases the buffer. */
bool speech_tokenizer_qwen3(struct buffer *json);

/* The one of small_tokenizer.h; its added tokens are <|endoftext|> 261, <|im_start|> 262,
 * <|im_end|> 263, <|audio_start|> 264, <|audio_end|> 265, <|audio_pad|> 266 and <asr_text> 267,
 * which alone is not special. */
void speech_tokenizer_small(struct buffer *json);

#endif

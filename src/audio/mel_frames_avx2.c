/* mel_frames.h with AVX2. */
#define MEL_FRAMES mel_frames_avx2
#include "audio/mel_frames_body.h"

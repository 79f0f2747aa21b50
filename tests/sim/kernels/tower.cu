/* One of the audio tower's launches by itself: the step `which`. */
#include "encoder.cu"

enum { HALVES, WIDE1, WIDE2, STEM, NORM, ATTENTION };

KERNEL(READ_THREADS)
encoder_one(const PARAMETER struct encoder_args args, int which, int phase, int layer) {
    if (which == HALVES)
        encoder_halves(args, phase, layer);
    else if (which == WIDE1)
        encoder_wide1(args, phase, layer);
    else if (which == WIDE2)
        encoder_wide2(args, phase, layer);
    else if (which == STEM)
        encoder_stem(args, phase, layer);
    else if (which == NORM)
        encoder_norm(args, phase, layer);
    else
        encoder_attention(args, phase, layer);
}

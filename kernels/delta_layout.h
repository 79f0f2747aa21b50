/* Where the numbers of the Gated DeltaNets lie, for host and device. `nth` is the number of a layer among the
 * DeltaNets. A layer's channels are those of its convolution: q of all key heads, k of all key heads, v of all value
 * heads. */
#ifndef REEL_KERNELS_DELTA_LAYOUT_H
#define REEL_KERNELS_DELTA_LAYOUT_H

#include "tape.h"

struct delta_layout {
    int hidden;
    int key_heads, value_heads, key_dim, value_dim;
    int taps; /* of the convolution, the current position included */
};

TAPE_FN int delta_channels(const struct delta_layout *d) {
    return 2 * d->key_heads * d->key_dim + d->value_heads * d->value_dim;
}

/* ---- of the model ---- */

/* Returns the place of the first of the `hidden` weights that make a value head's a (for its decay) or b (for its
 * beta). */
TAPE_FN unsigned long long delta_gate(const struct delta_layout *d, int nth, int head, int is_b) {
    return ((unsigned long long)(nth * d->value_heads + head) * 2 + (unsigned)is_b) * (unsigned)d->hidden;
}

/* A layer's constants are [value heads] -exp(A_log), [value heads] dt_bias, [value dim] gains of the output's norm, and
 * from a multiple of four on the convolution's weights [channels][taps], oldest first. */
TAPE_FN int delta_bias_offset(const struct delta_layout *d) { return d->value_heads; }
TAPE_FN int delta_norm_offset(const struct delta_layout *d) { return 2 * d->value_heads; }
TAPE_FN int delta_taps_offset(const struct delta_layout *d) { return (2 * d->value_heads + d->value_dim + 3) / 4 * 4; }
/* Returns how many floats a layer's constants are, a multiple of four. */
TAPE_FN int delta_constants(const struct delta_layout *d) {
    return (delta_taps_offset(d) + delta_channels(d) * d->taps + 3) / 4 * 4;
}

/* ---- of a session ---- */

/* Returns the place of a state's column in [nth][value head][value column][key row]: a column's key rows are
 * neighbours. */
TAPE_FN unsigned long long delta_state(const struct delta_layout *d, int nth, int head, int column) {
    return ((unsigned long long)(nth * d->value_heads + head) * (unsigned)d->value_dim + (unsigned)column) *
           (unsigned)d->key_dim;
}

/* Returns the place of the oldest of a channel's taps - 1 past inputs in [nth][channel][taps - 1]. */
TAPE_FN unsigned long long delta_window(const struct delta_layout *d, int nth, int channel) {
    return ((unsigned long long)nth * (unsigned)delta_channels(d) + (unsigned)channel) * (unsigned)(d->taps - 1);
}

/* ---- of a launch with drafts ---- */

/* What a pass keeps of a draft (columns_delta.cuh), in floats: of each layer a part of each SM, which is for each of
 * its `turns` units of `unit` value columns k of the head, and then two numbers of each value column; behind the SMs'
 * parts the inputs of the layer's channels. All parts are multiples of four. */
TAPE_FN int delta_kept_part(const struct delta_layout *d, int turns, int unit) {
    return turns * (d->key_dim + 2 * unit);
}
TAPE_FN int delta_kept_layer(const struct delta_layout *d, int sms, int turns, int unit) {
    return sms * delta_kept_part(d, turns, unit) + (delta_channels(d) + 3) / 4 * 4;
}

#endif

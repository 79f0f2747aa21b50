/* Shows where a token's time goes. With T_PROFILE each block's first consumer warp writes the clock at every mark
 * (profile_marks.h) of every token to args.profile, u32 [n_tokens][P_SMS][PROFILE_STAMPS]. Without T_PROFILE the
 * functions are empty. The host (src/cuda/measure/profile.c) turns the stamps into tables and traces. */
#ifndef REEL_KERNELS_PROFILE_CUH
#define REEL_KERNELS_PROFILE_CUH

#include "profile_marks.h"
#include "shared.cuh"

enum { PROFILE_STAMPS = PROFILE_MARKS(M_LAYERS) };

DEV void profile_stamp(const struct worker *w, int at, u32 value) {
#if T_PROFILE
    if (w->warp == 0 && w->lane == 0)
        plain_store32(w->a->profile + ((size_t)w->token * P_SMS + (size_t)w->block) * PROFILE_STAMPS + at, value);
#else
    (void)w, (void)at, (void)value;
#endif
}
DEV void profile_token(const struct worker *w, enum profile_token_mark mark) {
    profile_stamp(w, (int)mark, clock_now());
    if (mark == MARK_TOKEN) { /* the clocks of SMs have nothing in common; the time in ns is common to all */
        const u64 ns = time_ns();
        profile_stamp(w, MARK_TIME_LOW, (u32)ns);
        profile_stamp(w, MARK_TIME_HIGH, (u32)(ns >> 32));
    }
}
DEV void profile_layer(const struct worker *w, enum profile_layer_mark mark) {
    profile_stamp(w, PROFILE_TOKEN_MARKS + w->layer * PROFILE_LAYER_MARKS + (int)mark, clock_now());
}

#endif

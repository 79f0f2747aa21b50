/* The marks of profile.cuh, for host and device. A mark is the moment at which what it names was over. */
#ifndef REEL_KERNELS_PROFILE_MARKS_H
#define REEL_KERNELS_PROFILE_MARKS_H

enum profile_token_mark {
    MARK_TOKEN,    /* the token began */
    MARK_TIME_LOW, /* globaltimer at that moment, ns */
    MARK_TIME_HIGH,
    MARK_EMBED,      /* h of the first layer is in registers */
    MARK_LAYERS,     /* the last layer is over */
    MARK_HEAD_INPUT, /* the last h is complete: the warp has waited for the last sums */
    MARK_HEAD,       /* all strips of this warp are done: weights and arithmetic */
    MARK_PICK,       /* the next id is known: the warp has waited for all SMs' best */
    PROFILE_TOKEN_MARKS = 8
};

enum profile_layer_mark {
    MARK_QKV_WEIGHTS,     /* the phase's tiles are in registers: the warp has waited for the ring */
    MARK_QKV_INPUT,       /* h is complete: the warp has waited for the sums of the layer before */
    MARK_QKV,             /* the products are with the epilogue */
    MARK_OUT_WEIGHTS,     /* taken before attention, to which the wait would add otherwise */
    MARK_ATTENTION_INPUT, /* q, k and v of the group are here */
    MARK_ATTENTION_OWN,   /* this SM's positions are done; when split, their result is published */
    MARK_ATTENTION,       /* the result is in shared memory */
    MARK_OUT,
    MARK_GATE_UP_WEIGHTS,
    MARK_GATE_UP_INPUT,
    MARK_GATE_UP,
    MARK_DOWN_WEIGHTS,
    MARK_DOWN_INPUT,
    MARK_DOWN,
    PROFILE_LAYER_MARKS,

    /* of a Gated DeltaNet, which has as many marks */
    MARK_MIX_WEIGHTS = MARK_QKV_WEIGHTS,
    MARK_MIX_INPUT = MARK_QKV_INPUT,
    MARK_MIX = MARK_QKV,
    MARK_DELTA_INPUT = MARK_ATTENTION_INPUT, /* q, k and v of the SM's value columns are here */
    MARK_DELTA_OWN = MARK_ATTENTION_OWN,     /* the SM has published its columns to the group */
    MARK_DELTA = MARK_ATTENTION              /* all of the group's columns are in shared memory */
};

/* How many marks one token has on one SM. */
#define PROFILE_MARKS(layers) (PROFILE_TOKEN_MARKS + (layers)*PROFILE_LAYER_MARKS)

#endif

/* The marks of profile.cuh, for host and device: the moment each of these was over. */
#ifndef REEL_KERNELS_PROFILE_MARKS_H
#define REEL_KERNELS_PROFILE_MARKS_H

enum profile_token_mark {
    MARK_TOKEN,    /* the token began */
    MARK_TIME_LOW, /* globaltimer at that moment, ns */
    MARK_TIME_HIGH,
    MARK_EMBED,      /* h of the first layer is in registers */
    MARK_LAYERS,     /* after the last layer */
    MARK_HEAD_INPUT, /* final h complete: waited for the last sums */
    MARK_HEAD,       /* all strips of this warp done: weights and arithmetic */
    MARK_PICK,       /* the next id is known: waited for all SMs' best */
    PROFILE_TOKEN_MARKS = 8
};

enum profile_layer_mark {
    MARK_QKV_WEIGHTS,     /* its tiles are in registers: waited for the ring */
    MARK_QKV_INPUT,       /* h is complete: waited for the sums of the layer before */
    MARK_QKV,             /* products handed to the epilogue */
    MARK_OUT_WEIGHTS,     /* taken before attention, whose length they would add to */
    MARK_ATTENTION_INPUT, /* q, k, v of the group gathered */
    MARK_ATTENTION_OWN,   /* attended to this SM's positions; when split, handed to the others */
    MARK_ATTENTION,       /* result in shared memory */
    MARK_OUT,
    MARK_GATE_UP_WEIGHTS,
    MARK_GATE_UP_INPUT,
    MARK_GATE_UP,
    MARK_DOWN_WEIGHTS,
    MARK_DOWN_INPUT,
    MARK_DOWN,
    PROFILE_LAYER_MARKS,

    /* of a Gated DeltaNet, which has as many */
    MARK_MIX_WEIGHTS = MARK_QKV_WEIGHTS,
    MARK_MIX_INPUT = MARK_QKV_INPUT,
    MARK_MIX = MARK_QKV,
    MARK_DELTA_INPUT = MARK_ATTENTION_INPUT, /* q, k and v of the SM's value columns gathered */
    MARK_DELTA_OWN = MARK_ATTENTION_OWN,     /* its columns handed to the group */
    MARK_DELTA = MARK_ATTENTION              /* all of the group's columns in shared memory */
};

/* Marks of one token on one SM. */
#define PROFILE_MARKS(layers) (PROFILE_TOKEN_MARKS + (layers)*PROFILE_LAYER_MARKS)

#endif

/* Settings of the GPU's plan and launches that experiments, tests and tuning change: what the text
 * "key=value,key=value" of reel_model_options.gpu_options says. */
#ifndef REEL_CUDA_TUNING_H
#define REEL_CUDA_TUNING_H

#include "cuda/driver/library.h"
#include "plan/plan.h"

struct cuda_tuning {
    struct plan_options plan;
    unsigned first_epoch;
    unsigned patience;   /* failed polls before a wait in a kernel gives up */
    int lead;            /* ids a launch may be ahead of its reader */
    int launch_ms;       /* a launch is sized to last about this long */
    int launch_tokens;   /* and has at most this many tokens; 0: no such limit */
    int hang_ms;         /* silence after which a launch counts as hung */
    int spin_us;         /* how long a reader spins for the next id before it sleeps */
    int nap_us;          /* how long it sleeps then, until it looks again */
    int prefill_from;    /* least positions that the prefill kernels read; fewer go through the
                            decode kernel; 0: all do */
    int short_from;      /* the same where one launch reads them */
    int short_positions; /* that may lie before 64 tokens which one launch reads, before fewer
                            tokens more; 0: none reads them */
    bool short_far;      /* one launch reads as few behind more positions, too */
    bool poison;         /* new KV caches and outputs are filled with NaN bytes */
    int narrow;          /* enum narrow_wish */
    bool tuned;          /* settings that reel_model_tune remembered are used */
    int profile;         /* tokens of a launch that leave time stamps; 0: compiled without */
    bool lineinfo;       /* machine code names the source's lines, for profilers */
    int absent;          /* a block that is compiled to leave at once, for tests of what the others
                            do then; -1: none */
    int load_threads;    /* that fill staging buffers; 0: by the cores there are */
    int stage_kb;        /* of one staging buffer */
    bool draft_int8;     /* the draft layer and its part of the head get 8 bits a weight */
    int columns_wait;    /* several sessions wait for their program, 2: for all of them */
    int kv_pool_mb;      /* of all pages of K and V; 0: what is free, less a reserve */
    struct cuda_folders folders; /* not settable by text: where libraries are looked for */
};

void cuda_tuning_defaults(struct cuda_tuning *tuning);

/* Changes what `text` names (NULL: nothing). An unknown key or a value out of range is
 * REEL_E_ARGUMENT and names what is allowed. */
enum reel_status cuda_tuning_parse(struct cuda_tuning *tuning, const char *text,
                                   struct reel_error *err);

struct reel_gpu_option;
/* Setting `index`, counted from 0; REEL_E_NOT_FOUND after the last. */
enum reel_status cuda_tuning_option(struct reel_gpu_option *option, int index,
                                    struct reel_error *err);

#endif

/* A backend without weights: logits are a hash of everything before them, so that any difference in
 * what was evaluated shows. It checks how the runtime calls it. Its vocabulary has texts that share
 * characters and stop strings between tokens. */
#ifndef REEL_TESTS_FAKE_BACKEND_H
#define REEL_TESTS_FAKE_BACKEND_H

#include "runtime/model_handle.h"
#include "runtime/sampler.h"

enum {
    FAKE_VOCAB = 70, /* no multiple of anything */
    FAKE_HIDDEN = 4,
    FAKE_CONTEXT = 2000,
    FAKE_KEEPS = 16, /* positions from one kept state to the next */
    /* ids 0 to 25 are the letters a to z */
    FAKE_AB = 26,      /* "ab" */
    FAKE_CDE = 27,     /* "cde" */
    FAKE_E_FIRST = 28, /* the first byte of "e" with an acute accent */
    FAKE_E_LAST = 29,
    FAKE_SPACE = 30,
    FAKE_END = 31,   /* a control token, the model's stop id */
    FAKE_THINK = 32, /* an added token that is text: "<think>" */
    FAKE_HOLE = 33   /* this and what follows have no text */
};

/* How the backend behaves; set before the model is opened, but for what is said to be live. */
struct fake_settings {
    bool decodes;              /* offers decode, always one id ahead of its reader */
    bool refuses_decode;       /* decode answers REEL_E_UNSUPPORTED */
    int columns;               /* of a pass of step; 0: it does not offer that */
    bool recurrent;            /* resume gives the end, or a multiple of FAKE_KEEPS before it */
    atomic_int n_steps;        /* live: calls of step so far; of all of them: */
    atomic_int n_passes;       /* live: passes */
    atomic_int most_of_a_pass; /* live: most columns of one */
    atomic_int fail_column;    /* live: the n-th column of a pass from now fails; 0: none */
    bool refuses_columns;      /* live: step answers REEL_E_UNSUPPORTED for each */
    bool embeds;               /* offers embed */
    atomic_int n_embeds;       /* live: passes so far; of the last one: */
    atomic_int n_embedded;     /* live: its texts */
    atomic_int fail_embed;     /* live: the n-th pass from now fails; 0: none */
    bool refuses_embed;        /* live: embed answers REEL_E_UNSUPPORTED */
    const int32_t *script; /* live: ids by position that get by far the largest logit, or NULL */
    int n_script;
    atomic_int fail_eval;            /* live: the n-th eval from now fails half way; 0: none */
    atomic_int n_evals;              /* live: calls so far */
    atomic_int n_positions;          /* live: positions evaluated so far */
    _Atomic(enum reel_output) asked; /* live: what the last call asked for */
    int eval_ms;        /* live: a chunk takes this long, looking at cancel all the time */
    int chunk;          /* live: positions of a chunk; 0: a call has one */
    int eval_positions; /* as in backend_info */
    bool shares;        /* likewise */
    bool queues;        /* likewise; a step then takes one pass's time more, in the queue */
    atomic_int n_evals_behind_steps; /* live: that began before a step was over; the other way: */
    atomic_int n_steps_behind_evals; /* live */
    atomic_int steps_inside, evals_inside;
    int prompt_slice;        /* as in reel_model_options */
    int cut_step;            /* likewise; the progress of a call is then told at its begin alone */
    atomic_int longest_eval; /* live: positions of the longest call so far */
    atomic_int n_prompt_evals;        /* live: calls of several positions */
    atomic_int n_inside, most_inside; /* live: calls that compute now, and at most at once */
    bool nan_logits;                  /* live */
};

/* A model over the fake backend. settings is borrowed. NULL when it cannot be made. */
struct reel_model *fake_model_open(struct fake_settings *settings, struct reel_error *err);
void fake_model_close(struct reel_model *handle);

/* The logits that follow these ids. */
void fake_logits(const int32_t *ids, int n, float *logits);
/* The vector after the final norm of their last one. */
void fake_hidden(const int32_t *ids, int n, float *hidden);

#endif

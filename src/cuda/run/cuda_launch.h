/* One launch: its epochs, waiting for its ids and its end, what happens when it fails. */
#ifndef REEL_CUDA_CUDA_LAUNCH_H
#define REEL_CUDA_CUDA_LAUNCH_H

#include "cuda/run/cuda_state.h"
#include "kernels/args.h"
#include "kernels/prefill_args.h"

/* Epochs that the host sets aside for a token, and for a launch besides. The kernel counts fewer,
 * one a layer and one for a token's end (kernels/decode.cu), so there are always enough. */
enum { EPOCHS_A_LAYER = 5, EPOCHS_A_TOKEN = 8, EPOCHS_A_LAUNCH = 16 };

/* Most tokens a launch may have: about tuning.launch_ms long, and few enough that no 16-bit epoch
 * comes round between the launch that wrote a word and the one that waits for it. */
int cuda_launch_tokens(struct backend *b);

/* A launch under way. */
struct cuda_run {
    struct backend_state *state;
    struct decode_mailbox *mailbox;       /* of the last of its kernels, whose end is awaited */
    const struct decode_mailbox *prefill; /* of one that reads a prompt, or NULL */
    int n_launches;                       /* 1, or 2: a prompt's, then the head of its last token */
    int n_tokens;
    bool decodes; /* picks ids: all its tokens have a head */
    int n_read;   /* ids taken from the mailbox */
    /* of a launch for several sessions, which have a mailbox each: [n_columns]; else 0 */
    struct backend_state *columns[ARGS_MAX_COLUMNS];
    int n_columns;
    double submitted_ms; /* when */
    double due_ms;       /* how long reading a prompt is expected to take, or a pass of several
                            columns; 0: not known */
    double behind_ms;    /* how long launches that came before were expected to take yet; 0 with
                            its first news */
    double news_ms;      /* when it last showed life */
    double looked_ms;    /* when the driver was last asked */
    int ahead;           /* launches that came before */
    bool is_waited_for;  /* the device has nothing to do until the host has taken what it makes, so
                            its reader does not sleep, which could end late */
    bool over;
    bool failed;
};

/* Fills in everything of args that does not depend on what is to be done. */
void cuda_args_start(const struct backend_state *s, struct decode_args *args);

/* Puts a launch into the device's queue: of the prefill kernel, of the decode kernel, or of both
 * with nothing between them; the other is NULL. Only one of a state at a time. */
enum reel_status cuda_submit(struct cuda_run *run, struct backend_state *s,
                             struct prefill_args *prefill, struct decode_args *decode,
                             struct reel_error *err);

/* The same for the decode kernel with a mailbox of the launch's own, at args->mailbox for the
 * device: several launches of a state may be in the queue then. */
enum reel_status cuda_submit_own(struct cuda_run *run, struct backend_state *s,
                                 struct decode_mailbox *mailbox, struct decode_args *decode,
                                 struct reel_error *err);

/* A pass over packed texts: what it uploads first, and its launches. */
struct cuda_pass {
    struct decode_mailbox *mailbox; /* its own: several passes of a state may be in the queue */
    struct packed_args *args;
    cu_address to;     /* receives */
    const void *words; /* n_bytes, pinned: they stay as they are until the pass is over */
    size_t n_bytes;
};
enum reel_status cuda_submit_pass(struct cuda_run *run, struct backend_state *s,
                                  const struct cuda_pass *pass, struct reel_error *err);

/* A launch for several sessions, run->columns, of which run->state is the first. */
struct cuda_column_launch {
    const struct cuda_function *function;
    const struct plan *plan; /* of so many columns */
    struct columns_args *args;
    struct decode_mailbox *mailbox; /* of the launch itself */
    cu_address words;
};
enum reel_status cuda_submit_columns(struct cuda_run *run, const struct cuda_column_launch *launch,
                                     struct reel_error *err);
/* Id n of a column, where it has come; *drafted (or NULL): it was a draft. */
bool cuda_column_id(struct cuda_run *run, int column, int n, int32_t *id, bool *drafted);
/* Whether the launch waits for the host to draw id n of a column, whose logits are in its state's
 * mapped memory. Then the id is given. */
bool cuda_column_asks(struct cuda_run *run, int column, int n);
void cuda_column_give(const struct cuda_run *run, int column, int n, int32_t id);
/* One turn of waiting for such a launch; *ended: it is over, and all its ids are there. */
enum reel_status cuda_columns_wait(struct cuda_run *run, bool *ended, struct reel_error *err);

/* The next id, waiting for it; -1 when the launch is over and all its ids have been read. Asks the
 * launch to stop when *cancel turns true (NULL: never), and goes on. */
enum reel_status cuda_next_id(struct cuda_run *run, const atomic_bool *cancel, int32_t *id,
                              struct reel_error *err);

/* Asks the launch to end after the token in hand, or waits for its end; ids not read are dropped.
 */
void cuda_stop(struct cuda_run *run);
enum reel_status cuda_finish(struct cuda_run *run, const atomic_bool *cancel,
                             struct reel_error *err);

/* When the launch, which is over or shows life, came to be the first of the queue. */
double cuda_began_ms(const struct cuda_run *run);

/* REEL_OK, or why nothing can run any more. */
enum reel_status cuda_alive(struct backend *b, struct reel_error *err);
/* The context is unusable from now on; `err` says why. Returns its status. */
enum reel_status cuda_lose(struct backend *b, struct reel_error *err);

#endif

/* Passes of several columns (kernels/columns.cu) of an opened model: compiles the kernel for 2, 4
 * or 8 columns and launches it over sessions' states. For tests, on the fake GPU, and for
 * tools/columns_bench.c, on a real one. */
#ifndef REEL_TESTS_COLUMNS_RIG_H
#define REEL_TESTS_COLUMNS_RIG_H

#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_state.h"
#include "kernels/args.h"

struct columns_rig {
    struct backend *b;
    struct plan plan;
    struct cu_module *module;
    struct cuda_function function;
    cu_address words, table;        /* table: u32 [PLAN_MOST_COLUMNS][vocab], for penalties */
    struct decode_mailbox *mailbox; /* of launches */
    cu_address mailbox_address;
    uint32_t epoch;
    bool looks;   /* the host reads the mailbox while a launch runs, as cuda_step does; for tests of
                     what it then finds */
    bool stamped; /* the kernel leaves time stamps (kernels/profile.cuh) */
    cu_address stamps; /* of up to COLUMNS_STAMPED passes */
    double launch_ms;  /* of the last launch, */
    int n_passes; /* and its passes; with `looks` what the mailbox said when it first had an end */
};

enum { COLUMNS_STAMPED = 64 };

/* What one session does in a launch. */
struct columns_job {
    struct backend_state *state; /* NULL: the column is idle */
    int position;                /* of `id` */
    int32_t id;
    int n_tokens;           /* at most, up to MAILBOX_IDS - 1 */
    int most_drafts;        /* of a pass: so many columns follow the session's first one */
    const int32_t *guesses; /* [n_tokens + most_drafts] what is expected behind `id`, -1 nothing; of
                               as many as a mailbox holds */
    const struct sampling_args *sampling; /* NULL: the best; bias is the device's, seen is replaced
                                             where penalties are on */
    int32_t stop_id;                      /* -1: none */
    int stop_after;  /* the host wants no more ids than about so many; 0: all */
    bool host_draws; /* each id: the best of the logits; with `looks`, and without sampling */
    /* filled in */
    int32_t *ids; /* [n_tokens] */
    int n_made, n_evaluated, n_drafted, n_right;
    int n_told; /* ids that the mailbox has had: those made, unless the kernel said too much */
    enum decode_end end;
    uint64_t asked;  /* the last question of its column that the host saw; 0: none */
    double asked_ms; /* when, in this process's time on the processors; before: of the launch */
    double late_ms;  /* what makes an answer late: some passes */
    int n_looks;     /* how often the host has looked since the question */
};

/* As if the GPU had just so little shared memory that parts of what `columns` columns need share
 * their place, or that their ring holds one row of the head's units and a part of another. False:
 * there is no such size. */
enum columns_crowd { CROWD_NONE, CROWD_OVERLAID, CROWD_ODD_RING };
bool columns_rig_crowd(struct backend *b, int columns, bool follows, enum columns_crowd crowd);

/* columns: 1, 2, 4 or 8. follows: jobs may have drafts. cache_dir: NULL, or where compiled
 * kernels are kept. stamped: see above; a launch then has at most COLUMNS_STAMPED passes. A failure
 * leaves nothing to close. */
enum reel_status columns_rig_open(struct columns_rig *r, struct backend *b, int columns,
                                  bool follows, const char *cache_dir, bool stamped,
                                  struct reel_error *err);
/* The stamps of the last launch's n passes: [n][SMs][profile_stamps()], for mem_free. */
enum reel_status columns_rig_stamps(const struct columns_rig *r, int n, uint32_t **stamps,
                                    struct reel_error *err);
/* One launch of n jobs, which have no more columns than the rig; columns beyond are idle. */
enum reel_status columns_rig_run(struct columns_rig *r, struct columns_job *jobs, int n,
                                 int n_passes, bool ends_early, struct reel_error *err);
void columns_rig_close(struct columns_rig *r);

#endif

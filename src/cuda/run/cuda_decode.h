/* Tokens that the device picks itself: what a launch is told of a session that decodes, and what
 * becomes of its ids. cuda_decode launches for one session, cuda_step.c for several. */
#ifndef REEL_CUDA_CUDA_DECODE_H
#define REEL_CUDA_CUDA_DECODE_H

#include "kernels/args.h"
#include "runtime/backend.h"

struct cuda_run;

/* A session that decodes, for one call of cuda_decode or of cuda_step. */
struct cuda_decoding {
    struct backend_state *s;
    const struct backend_decode *d;
    int position;         /* of `id` */
    int32_t id;           /* delivered, or given; not yet evaluated */
    int n_made;           /* delivered */
    bool stopped;         /* by on_id */
    bool enough;          /* as its callback says: the launch at hand is the last one */
    bool drafts;          /* the next launch is to take some: the one at hand ends */
    double delivered_ms;  /* when the last id was; 0: none was yet */
    double guess_from_ms; /* when the draft layer was asked last */
    bool asks;            /* drafts are asked for between launches, as was last heard */
    bool changes;         /* the launch before took drafts, the one at hand takes none */
    const struct backend_batch *batch; /* which may have enough as well; or NULL */
};

enum reel_status cuda_decode(struct backend_state *s, const struct backend_decode *decode,
                             struct reel_error *err);

/* What follows is for launches of several sessions. */

enum reel_status cuda_decoding_begin(struct cuda_decoding *g, struct backend_state *s,
                                     const struct backend_decode *d, struct reel_error *err);
/* No launch can add an id. */
bool cuda_decoding_is_over(const struct cuda_decoding *g);
/* One launch for this session alone, of `most` tokens at most; delivers what it makes. */
enum reel_status cuda_decoding_launch(struct cuda_decoding *g, int most, struct reel_error *err);
/* Fills in what a launch of `most` tokens at most is told, but not `start`; takes the pages. */
enum reel_status cuda_decoding_args(struct cuda_decoding *g, int most, struct decode_args *args,
                                    struct reel_error *err);
/* `run` made the id and may still run; NULL: the host did. */
void cuda_decoding_deliver(struct cuda_decoding *g, struct cuda_run *run, int32_t id);
/* Draws the next id on the host, from the logits in the state's mapped memory, without delivering
 * it. */
enum reel_status cuda_decoding_draw(const struct cuda_decoding *g, int32_t *id,
                                    struct reel_error *err);
/* One token through the layers, whose id the host draws. */
enum reel_status cuda_decoding_evaluate(struct cuda_decoding *g, struct reel_error *err);
/* Does what the way a launch ended asks for, as the session's mailbox has it. shown: logits that
 * the host has to draw from are in mapped memory, not in `out`. */
enum reel_status cuda_decoding_settle(struct cuda_decoding *g, bool shown, struct reel_error *err);

#endif

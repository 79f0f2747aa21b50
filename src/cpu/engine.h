/* What the fast path holds for one opened model, and its two ways through the layers:
 *   decode.c   one position of one state or of several, the columns of a pass: weights are read
 *              once, straight from the file or from panels
 *   prefill.c  up to T_CHUNK positions at once: weights are unpacked once for all of them
 * Each is one region of the thread pool, its phases parted by barriers. Rounding: the residual
 * stream and what a phase does inside are float32; what enters the KV cache is bf16; what enters a
 * product is bf16, or twice as precise where the weights are blocks (cpu_vector in kernels.h). */
#ifndef REEL_CPU_ENGINE_H
#define REEL_CPU_ENGINE_H

#include "base/thread_pool.h"
#include "cpu/attention.h"
#include "cpu/delta.h"
#include "cpu/panels.h"
#include "cpu/recurrent.h"
#include "cpu/tile.h"
#include "model/model_config.h"
#include "plan/memory_plan.h"
#include "runtime/backend.h"

#define T_CHUNK MEMORY_PLAN_CHUNK

/* At most this many pieces of a long context are attended to apart and merged. */
#define ATTENTION_SPLITS 64

_Static_assert(MOST_COLUMNS <= T_CHUNK, "columns take the rows of a prompt's scratch");

/* first .. last - 1 of something */
struct piece {
    int first, last;
};

/* The pieces of a phase that makes rows of a product; see engine_row_pieces. */
struct row_pieces {
    int rows, least; /* least: rows of the smallest piece */
    int shares;      /* a piece is what is left, divided by this */
    int n;           /* pieces in all */
    int at;          /* of the piece that starts at `next` */
    int next;
    struct piece piece; /* taken last */
};

/* Memory that one thread writes. */
struct worker {
    int thread;
    struct cpu_vector vector;   /* the phase's input, rounded */
    float *values;              /* f32 [longest vector] */
    uint16_t *q;                /* bf16 [attention_rows, head_dim] */
    uint16_t *k, *v;            /* bf16 [head_dim] */
    struct attention attention; /* its scratch pointers */
    struct tile_scratch tile;
    float *delta; /* scratch of delta_prefill */
};

struct engine {
    const struct model_config *config;
    const struct weights *weights;
    struct kernels kernels;
    struct thread_pool *pool;
    struct kv_shape kv_shape; /* of the caches that runs have */
    int q_dim, kv_dim, group; /* group: query heads of one KV head */
    int q_step;               /* from a head's query in a row of q to the next's */
    int mixed_dim;            /* what a mixer makes, the larger kind's */
    int projected_dim;        /* all that a mixer's input is multiplied to, the larger kind's */
    int longest;              /* largest vector that enters a product */
    bool blocks; /* some product's weights are blocks or codes: inputs need `seconds` */
    const struct draft_weights *draft; /* of the engine of a draft layer; NULL: of another */
    const int *taps;  /* [DRAFT_TAPS] layers in front of which runs keep x; NULL: they do not */
    bool hidden_is_x; /* what runs keep of a position is x before the final norm */
    bool pool_is_lent;
    int attention_rows;       /* query rows that one attention call takes at most */
    float attention_scale;    /* 1 / sqrt(head_dim) */
    float *inv;               /* f32 [rotary_dim / 2] rotation frequencies */
    float *q_scale, *k_scale; /* f32 [delta.key_dim], see delta.h */

    /* Shared by the threads of a region, for one region at a time. */
    float *x;         /* f32 [T_CHUNK, hidden] residual stream */
    float *cos, *sin; /* f32 [T_CHUNK, rotary_dim / 2] */
    float *projected; /* f32 [T_CHUNK, projected_dim] q, k, v, or qkv, z, b, a of a DeltaNet */
    float *mixed;     /* f32 [T_CHUNK, mixed_dim] the mixer's output */
    /* Decoding's, for each column. */
    float *y;     /* f32 [MOST_COLUMNS, hidden] a product before it is added to x */
    float *gated; /* f32 [MOST_COLUMNS, 2, intermediate] gate, becoming the gated product, and up */
    float *partial; /* f32 [MOST_COLUMNS, ATTENTION_SPLITS, n_heads, v_width + 2]: out, max, sum */
    struct cpu_columns columns;              /* a phase's inputs, when there are several columns */
    struct cpu_vector vectors[MOST_COLUMNS]; /* that it names */
    uint16_t *rows;                          /* bf16 [T_CHUNK, row_stride] inputs of a product */
    uint16_t *seconds;                    /* [T_CHUNK, row_stride] with `blocks`: see tile_input */
    float *factors;                       /* f32 [row_stride / BLOCK, 2, T_CHUNK], likewise */
    uint16_t *gated_rows, *gated_seconds; /* the same for the last product of a layer */
    float *gated_factors;
    uint16_t *queries; /* bf16 [n_kv_heads, T_CHUNK, group, head_dim] */
    size_t row_stride, sums_stride;
    size_t delta_floats;         /* of one worker's delta scratch */
    struct worker *workers;      /* [threads] */
    struct panel_weights packed; /* what `weights` is, where the kernels want panels */
    void *memory;
    size_t memory_bytes;
};

/* Rows of a run that are consecutive positions of one text. */
struct run_text {
    int row, n;   /* rows row .. row + n - 1 */
    int position; /* of the first of them in its text */
    int slot;     /* of the text's position 0 in the cache: a multiple of PANEL_LANES */
    float *out;   /* f32 [hidden] after the final norm of the last row; NULL: not wanted */
};

/* A run of positions: of the session's one text, or of several that do not see each other. */
struct engine_run {
    struct engine *engine;
    struct kv_cache *kv;
    struct recurrent *recurrent;
    int position, n;     /* n is at most T_CHUNK */
    int row;             /* of the engine's scratch that its first position takes */
    int rotation_offset; /* added to a position where it becomes an angle */
    int n_drafts;        /* columns of a pass behind this one that are drafts of its state */
    int nth_draft;       /* of its state, from 1 on, where this column is a draft; else 0 */
    /* [n_texts] that fill the rows in order, or NULL: one text, of which the run begins at
     * `position`. With texts, `position` and `output` have no meaning. */
    const struct run_text *texts;
    int n_texts;
    const int32_t *ids;      /* [n], or NULL */
    const float *embeddings; /* f32 [n, hidden], or NULL */
    const float *biases; /* f32 [n, projected_dim] added to what the mixers' inputs are multiplied
                            to; or NULL */
    enum reel_output output;
    float *out;    /* where this run's output goes */
    float *hidden; /* f32 [n, hidden] receives what is behind the final norm, not rounded; with the
                      engine's taps [n, DRAFT_TAPS, hidden] x in front of them; or NULL */
    const atomic_bool *cancel; /* or NULL: thread 0 looks at it before every layer of a prompt */
    bool cancelled;            /* thread 0 alone reads and writes it */
};

/* kernels is copied. config and weights are borrowed until release. */
enum reel_status engine_open(struct engine *engine, const struct model_config *config,
                             const struct weights *weights, const struct kernels *kernels,
                             enum kv_form kv, int n_threads, struct reel_error *err);
/* The engine of a draft layer, on the threads of another engine, which outlives it: `config` and
 * `weights` are those of draft_model.h. Its runs have embeddings, which draft_layer.c makes. */
enum reel_status engine_open_draft(struct engine *engine, const struct model_config *config,
                                   const struct weights *weights, const struct engine *other,
                                   struct reel_error *err);
void engine_release(struct engine *engine);

/* Evaluates the run; run->cancelled says whether it was ended early. */
void engine_evaluate(struct engine_run *run);

/* Runs of one position each with logits for output: one pass. What each of them gives is what
 * engine_evaluate would. */
struct engine_pass {
    struct engine_run *columns; /* [n]; column i has row i */
    int n;                      /* 1 to MOST_COLUMNS; with 1, any output */
    /* Some are of one state: its columns stand one behind the other, each one position further.
     * The first has their number in n_drafts, and the recurrent state ends behind it: what the
     * others would make of that is kept (delta_drafts.h). Otherwise all are of different states. */
    bool consecutive;
    bool last_only; /* only the last column's output is asked for, any output */
};
void engine_decode(struct engine_pass *pass);

/* The bodies of the two regions. */
void decode_region(void *pass, int thread, int n_threads);
void prefill_region(void *run, int thread, int n_threads);

/* ---- shared by the two ----------------------------------------------------------------------- */

/* x = the embedding of id i of the run; its angles, which are those of `position`. */
void engine_enter(const struct engine_run *run, int i, int position);

/* Norms (with qk_norm) and rotates one head in place, by the angles of row i. */
void engine_turn_head(const struct engine *engine, float *head, const float *norm, int i);

/* The matrices that a layer's normed input goes through, in the order of their rows in `projected`;
 * returns how many. */
#define MAX_PROJECTIONS 4
int engine_projections(const struct layer_weights *layer,
                       const struct matrix *parts[MAX_PROJECTIONS]);

/* Multiplies head `head` of attention's output at row i with its gate, if any. */
void engine_gate_head(const struct engine *engine, int i, int head, float *out);

/* One value head of a DeltaNet layer and its values at row i. */
struct delta_head engine_delta_head(const struct engine *engine, const struct recurrent *r,
                                    const struct layer_weights *layer, int head);
struct delta_rows engine_delta_rows(const struct engine *engine, int i, int head);

/* out [all value heads] = norm of each head of mixed, times silu of its gate, at row i. */
void engine_gated_norm(const struct engine *engine, const struct delta_weights *w, int i,
                       float *out);

/* Channels [p.first, p.last) of the convolution over the positions of the run and its drafts, in
 * place in `projected`; the window moves on, by what is owed and by the positions of the run. */
void engine_convolve(const struct engine_run *run, const struct layer_weights *layer,
                     struct piece p);

/* Of row `row` of a run x in front of `layer`, where that is one of the taps. */
void engine_keep_tap(const struct engine_run *run, const struct layer_weights *layer, int row);

/* A phase: final norm of x, then hidden or logits of one position. */
void engine_output(const struct engine_run *run, struct worker *worker, const float *x, float *out);

/* How a phase's rows, each `row_bytes` of weights, are cut into pieces: the same for all threads.
 * take: the next of them for this thread, in pieces->piece; false when all are taken. */
struct row_pieces engine_row_pieces(const struct engine *engine, int rows, size_t row_bytes);
bool engine_take_rows(const struct engine *engine, const struct worker *worker,
                      struct row_pieces *pieces);

#endif

/* What host and device tell each other: the arguments of a launch, and the mailbox, which lies in memory that both
 * see. Host and device both compile this file, so all types in it have a fixed size. */
#ifndef REEL_KERNELS_ARGS_H
#define REEL_KERNELS_ARGS_H

#include "tape.h"

enum { ARGS_MAX_STOP_IDS = 32, ARGS_MAX_COLUMNS = 8, ARGS_MOST_GPUS = 8, MAILBOX_IDS = 1024, MAILBOX_GUESSES = 64 };
/* In a word of mailbox->ids: the id was a draft that proved right, so it took no pass of its own. */
#define MAILBOX_DRAFTED 0x80000000u

/* Values of args.abort. A block that runs out of patience (docs/GLOSSARY.md) claims the word, describes the fault in
 * the mailbox, and only then stores ABORT_LEAVE, at which all blocks stop waiting. The order matters: a block that
 * leaves publishes garbage, and whoever reads an id made of garbage must find the fault described already. */
enum { ABORT_NONE, ABORT_CLAIMED, ABORT_LEAVE };

/* What a wait in a kernel may be for; a fault report names it. Each line is WAIT(name, 1 if the wait compares the
 * epochs of exchanged words (docs/GLOSSARY.md), text for people). */
#define WAIT_KINDS(WAIT)                                                                                               \
    WAIT(WAIT_NONE, 0, "nothing")                                                                                      \
    /* rings: consumers wait for a full slot; producers for a free one, for room under the cap, or                     \
     * for the previous token's end */                                                                                 \
    WAIT(WAIT_WEIGHTS, 0, "a slot of the weight ring")                                                                 \
    WAIT(WAIT_ROOM, 0, "room in the weight ring")                                                                      \
    WAIT(WAIT_KV, 0, "a slot of the K/V ring")                                                                         \
    WAIT(WAIT_KV_ROOM, 0, "room in the K/V ring")                                                                      \
    /* decoding's exchanges */                                                                                         \
    WAIT(WAIT_QKV, 1, "the group's q, k and v")                                                                        \
    WAIT(WAIT_ATTENTION, 1, "the group's partial attention")                                                           \
    WAIT(WAIT_OUT_SUM, 1, "the sums of the output projection")                                                         \
    WAIT(WAIT_GATED, 1, "the group's gated values")                                                                    \
    WAIT(WAIT_DOWN_SUM, 1, "the sums of the down projection")                                                          \
    WAIT(WAIT_BEST, 1, "the other SMs' best logits")                                                                   \
    WAIT(WAIT_PICK, 1, "the other SMs' sampling candidates")                                                           \
    /* prefill's ring */                                                                                               \
    WAIT(WAIT_STAGE, 0, "a stage of activations")                                                                      \
    /* exchanges of short prompts */                                                                                   \
    WAIT(WAIT_X, 1, "the normed activations")                                                                          \
    WAIT(WAIT_SSQ, 1, "the norm's sums of squares")                                                                    \
    /* exchanges of a DeltaNet */                                                                                      \
    WAIT(WAIT_MIX, 1, "the group's q, k and v of a DeltaNet")                                                          \
    WAIT(WAIT_DELTA, 1, "the group's value columns of a DeltaNet")                                                     \
    /* of short prompts behind many positions */                                                                       \
    WAIT(WAIT_ATTENDED, 1, "the group's attention")                                                                    \
    /* of several columns */                                                                                           \
    WAIT(WAIT_LOOKED, 0, "the look of K and V's producer at the columns")

#define WAIT_NAME(name, is_exchange, text) name,
enum wait_kind { WAIT_KINDS(WAIT_NAME) N_WAIT_KINDS };
#undef WAIT_NAME

/* Why a launch ended. */
enum decode_end {
    DECODE_RUNNING,
    DECODE_ALL_TOKENS, /* n_tokens went through the layers */
    DECODE_STOP_ID,    /* the last id made is one of stop_ids */
    DECODE_STOPPED,    /* the host asked for it, or fell more than `lead` ids behind */
    DECODE_HOST_PICKS, /* the device's sampler cannot settle this token: its logits are in
                          args.logits */
    DECODE_NO_ID,      /* no logit is a number */
    DECODE_WAITS       /* no end: a column of several, in the kernel alone. The host draws its id */
};

/* The mailbox lies in memory that host and device both see. The device writes the fields up to `pad`, the host writes
 * the rest. Each field is one aligned word, written once per meaning. */
struct decode_mailbox {
    unsigned long long ids[MAILBOX_IDS]; /* id n of the launch is at n % MAILBOX_IDS: id | MAILBOX_DRAFTED or 0 |
                                            (n + 1) << 32 */
    unsigned int n_made;                 /* ids that the launch made; valid when `end` is set */
    unsigned int n_evaluated;            /* tokens that went through the layers; valid when `end` is set */
    unsigned int end;                    /* enum decode_end; a launch without a fault writes it last */
    /* A wait that gave up. The first block that runs out of patience describes its wait here. */
    unsigned int fault;      /* 1: the fields below describe a fault */
    unsigned int fault_wait; /* enum wait_kind */
    unsigned int fault_token, fault_layer, fault_block, fault_warp;
    unsigned int fault_want, fault_have; /* epochs wanted and found; of a ring: parity wanted, barrier's address */
    unsigned int n_drafted;              /* drafts that passes of the launch looked at; valid when `end` is set */
    unsigned int asks; /* n + 1: the host is to draw id n of a column, whose logits are in columns_args.shown */
    unsigned int pad[3];

    volatile unsigned int stop;        /* not 0: the host wants the launch to end after the token at hand */
    volatile unsigned int taken;       /* how many ids the host has read */
    volatile unsigned long long given; /* what the host has drawn for id n: id | (n + 1) << 32 */
    /* What the host expects at a position, at position % MAILBOX_GUESSES: id | (position + 1) << 32. The kernel reads
     * them once in a pass. A guess that came too late, or was wrong, costs nothing but its column. */
    volatile unsigned long long guesses[MAILBOX_GUESSES];
};

struct sampling_args {
    float temperature;  /* 0: only penalties and bias count, the rest is ignored */
    float top_p, min_p; /* 0: off */
    int top_k;          /* 0: off */
    float repetition, presence, frequency;
    int adjust; /* 1: `seen` or `bias` holds something, or the host draws the ids of a column */
    unsigned long long seed;
    unsigned int *seen; /* [vocab]: 0x80000000 if the session holds the id, plus how often it was generated; the launch
                           updates it */
    const float *bias;  /* f32 [vocab] or NULL */
};

/* Weights and memory of the Gated DeltaNet layers. All pointers are NULL where the model has no such layer.
 * delta_layout.h says where in them each value lies. */
struct delta_args {
    const unsigned short *gates; /* bf16 [delta layers][value heads][a, b][hidden] */
    const float *constants;      /* f32 [delta layers]: decays, norm and taps */
    float *state;                /* f32 [delta layers][value heads][value dim][key dim] */
    float *window;               /* f32 [delta layers][channels][M_TAPS - 1], oldest first */
};

enum { ARGS_TAPS = 3 }; /* of a model (draft_head.cuh) */

struct decode_args {
    /* the model */
    const unsigned char *tape;
    const unsigned short *embedding; /* bf16 [vocab, hidden]; NULL for a tied model, whose rows are in the tapes */
    const float *norms;              /* f32 [layers][attn, ffn][hidden], then final [hidden] */
    const float *qkv_vectors;  /* M_QK_NORM: gains, f32 [attention layers][q, k][head_dim]. M_QKV_BIAS: biases, f32
                                  [attention layers][rows of q, then k, then v]; with M_GIVEN_BIASES those of each
                                  token, [n_tokens][rows]. P_KV_GIVEN: behind these the file's scales, f32
                                  [attention layers][kv_heads][K, V]. NULL: the model has nothing of it */
    const float *rope;         /* f32 [rotary_dim / 2]: inverse frequencies */
    unsigned long long *words; /* memory of the exchanges, P_WORDS words */
    /* the session */
    const unsigned long long *kv_pages; /* [pages of the session]: where each page of K and V lies, see kv_layout.h */
    struct delta_args delta;
    /* this launch */
    int position;            /* of the first token */
    int n_tokens;            /* that the launch takes through the layers, at least 1 */
    int n_given;             /* the first n_given tokens are given, at least 1; the kernel picks the rest */
    const int *ids;          /* [n_given], device memory, or NULL */
    const float *embeddings; /* f32 [n_given, hidden], or NULL */
    const float *start;      /* f32 [hidden] or NULL: what the layers made of the first token, which has been
                                through them already; its K and V are in the cache */
    int head_from;           /* first token for which the head is computed; n_tokens: for none */
    int pick;                /* 1: the kernel picks ids from token head_from = n_given - 1 on */
    float *logits;           /* f32 [n_tokens - head_from or 1 when picking, vocab], or NULL */
    float *hidden;           /* f32 [n_tokens - hidden_from, hidden] after the final norm, with M_GIVEN_BIASES
                                before it, or NULL */
    int hidden_from;
    int split_from;                   /* from this position on, the SMs of a group split attention between them */
    unsigned int epoch;               /* the first epoch this launch may use; see epoch_next */
    unsigned int patience;            /* failed polls before a wait gives up; below 2^31 */
    unsigned int lead;                /* ids the device may be ahead of mailbox->taken */
    int cap_layers, cap_head, cap_kv; /* most slots in flight from memory, at least 1 */
    struct decode_mailbox *mailbox;
    unsigned int *abort;   /* in device memory, 0 before the launch; at ABORT_LEAVE every wait gives up */
    unsigned int *profile; /* see profile.cuh, or NULL */
    int n_stop_ids;
    int stop_ids[ARGS_MAX_STOP_IDS];
    struct sampling_args sampling;
    unsigned int *guess; /* M_DRAFT: gets the launch's first id, for launches behind it; or NULL */
    float *taps;         /* P_TAPS: f32 [n_tokens, ARGS_TAPS, hidden], see draft_head.cuh; or NULL */
};

/* Several GPUs that share a model: each has a launch, with arguments of its own, and this besides. Blocks are counted
 * through all GPUs. A GPU's block is told apart by its number there, from which everything else follows: its group, its
 * tape, its rows of the head. On each GPU `tape` of the other arguments is where the first GPU's tapes would begin, if
 * they lay before its own. */
struct gpu_args {
    int gpu; /* this one */
    /* bytes from a word of this GPU's exchanges to the same word of each other GPU */
    long long peers[ARGS_MOST_GPUS - 1];
    const unsigned char *tape[ARGS_MOST_GPUS]; /* of each GPU, as above */
    unsigned int *abort[ARGS_MOST_GPUS];       /* of each GPU; who gives up claims the first */
};

/* The last parameter of a kernel whose blocks on several GPUs wait for each other, and its address or, with one GPU,
 * 0. */
#if P_GPUS > 1
#define GPUS_PARAMETER , const PARAMETER struct gpu_args gpus
#define GPUS_POINTER   (&gpus)
#else
#define GPUS_PARAMETER
#define GPUS_POINTER 0
#endif

/* One launch of columns.cu (docs/BATCHES.md). Each column is told what a launch of decode.cu for its session alone
 * would be told, and has a mailbox of its own, in which ids, counts and the end mean the same.
 *
 * A column with n_tokens = 0 is idle; its other numbers must be those of a column that is not. Each column's words lie
 * P_WORDS words behind those of the column before. epoch, patience, split_from, abort and the caps are the same in all
 * columns. start, hidden_from and profile are NULL or 0, and so is hidden without P_LEAVES; pick is 1, and head_from is
 * n_given - 1. A wait that gives up is described in the mailbox of one of the columns.
 *
 * Where the host has to draw an id, since the device's sampler cannot settle it or because of `asks`, the column waits:
 * passes go on without it, until the host has read its logits and given the id. With P_FOLLOWS it is over instead.
 *
 * With P_FOLLOWS a column may follow the column before it: then both are of one session, and its token stands at the
 * next position. Such tokens are drafts (docs/SPECULATION.md), and a session's drafts may be fewer than its columns.
 * The kernel picks at each position as it would without drafts, and goes on as long as the next column's draft is what
 * it picked: so a pass makes an id, and one more for each draft that was right. Drafts of the first pass are given,
 * those of later ones are what the host has written to `guesses` of the session's mailbox. The arguments of a column
 * that follows are those of the session's first column; its penalties and biases are not used.
 *
 * With P_LEAVES each column whose token goes through the layers leaves what they made of it, before the final norm, at
 * its `hidden`, f32 [hidden]; with P_TAPS it leaves its taps there, f32 [ARGS_TAPS, hidden]; in each pass at the same
 * place. And drafts of the first pass may be ids that launches before this one make: `guessed` then has what they
 * leave in `guess`, of which each is a draft, if it is an id. */
struct columns_args {
    int n_passes;                   /* that the launch makes at most */
    unsigned int follows;           /* with P_FOLLOWS, a bit for each column: it follows the column before it */
    int draft[ARGS_MAX_COLUMNS];    /* of a column that follows: its id in the first pass, or -1 */
    unsigned int asks;              /* without P_FOLLOWS, a bit for each column: the host draws all its ids; its logits
                                       go to `shown`, and sampling.adjust says that they are wanted */
    float *shown[ARGS_MAX_COLUMNS]; /* without P_FOLLOWS: f32 [vocab] in memory that both see, where a column leaves the
                                       logits of an id that the host is to draw */
    int ends_early;                 /* 1: the launch ends as soon as a column is over that was not idle */
    struct decode_mailbox *mailbox; /* gets n_evaluated, the passes made, and `end` once the launch is over */
    struct decode_args column[ARGS_MAX_COLUMNS];
    const unsigned int *guessed; /* with P_LEAVES: in place of each `draft` that is not -1, the first column's follower
                                    first; or NULL */
    const int *meant;            /* [n_meant] the id that each of those ids means, or NULL: itself */
    int n_meant;
};

enum { WIND_THREADS = 256 }; /* of a block of wind.cu */

/* One launch of wind.cu, which puts some rows of one matrix from a staging buffer onto the tapes. */
struct wind_args {
    unsigned char *tape;
    const unsigned char *rows; /* [n_rows][tile_staged_bytes] */
    int phase, layer;          /* enum tape_phase; the head's layer is 0 */
    int first_row;             /* counted through all matrices of the phase: q, k, v; or q, k, v, z; or gate, up */
    int n_rows, columns;
    int first_sm, n_sms; /* that this GPU has; `tape` is where SM 0's tape would begin */
    struct tape_shape shape;
};

#endif

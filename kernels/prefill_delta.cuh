/* Reading a prompt: Gated DeltaNets, in chunks of 64 tokens (docs/MODEL_qwen35.md). Four steps lie between the
 * products of mix and out:
 *
 *   conv    convolution, silu and norms make q, k, v as blocks; x makes the gates
 *   chunk   what a chunk's tokens do to each other, whatever the state is: w, u, asked
 *   chain   takes the state through the chunks: what each chunk begins with (states), and what each token teaches
 *           the state (learned)
 *   answer  makes o of asked, states and learned, norms it, multiplies by silu(z): the activations that out reads
 *
 * G is the running sum of the logarithms of decays in a chunk, S the state. All matrices are of one value head:
 *
 *   M = I + strictly lower(beta_i (k_i . k_j) e^(G_i - G_j)),  T = 1 / M
 *   w = T (beta e^G k),  u = T (beta v),  asked = lower((q_i . k_j) e^(G_i - G_j))
 *   learned = u - w S,  o = e^G q S + asked learned,  S <- e^G_n S + k^T (e^(G_n - G) learned)
 *
 * Rounding: q, k, v are bf16, as transformers has them. What tensor cores multiply them with has two bf16 terms, 16
 * significant bits: T, learned, asked, and S in chain (w S). w has one term. So has S in answer (q S), as o is
 * rounded after it. Sums, T and S themselves are float32.
 *
 * Operands lie as blocks or as quad tiles. A block is 8 rows of 8 bf16, 128 bytes; matrices_load brings blocks as they
 * are or turned (transposed). A quad tile is an operand of 16 by 16, lane by lane as mma wants it. Tokens beyond the
 * last one, to a whole chunk, have zeros as input and decay nothing, so they leave S and all other tokens as they
 * are. */
#ifndef REEL_KERNELS_PREFILL_DELTA_CUH
#define REEL_KERNELS_PREFILL_DELTA_CUH

#include "delta_layout.h"
#include "delta_math.cuh"
#include "mma.cuh"
#include "prefill_shared.cuh"

enum {
    CHUNK_BLOCKS = DELTA_CHUNK / 8, /* of 8 tokens */
    CHUNK_TILES = DELTA_CHUNK / 16,
    CHUNKS_MOST = P_PREFILL_TOKENS / DELTA_CHUNK,
    KEY_BLOCKS = M_KEY_DIM / 8,
    KEY_TILES = M_KEY_DIM / 16,
    VALUE_TILES = (M_VALUE_DIM + 15) / 16,
    VALUE_BLOCKS = 2 * VALUE_TILES,      /* columns beyond the head's are zeros */
    MATRIX_BYTES = 128,                  /* a block */
    KEYS_BYTES = CHUNK_BYTES(M_KEY_DIM), /* of a chunk */
    VALUES_BYTES = CHUNK_BYTES(M_VALUE_DIM),
    U_BYTES = VALUE_TILES * CHUNK_BLOCKS * LANES * 16,
    LEARNED_BYTES = VALUE_TILES * 2 * CHUNK_TILES * BF16_TILE_BYTES,
    STATE_BYTES = VALUE_TILES * KEY_TILES * BF16_TILE_BYTES,
    HEAD_KEYS = M_VALUE_HEADS / M_KEY_HEADS /* value heads that share a key head */
};
#if M_KEY_DIM % 16 || M_KEY_DIM > 128 || M_VALUE_DIM % 8 || M_VALUE_DIM > 128
#error "key size: a multiple of 16, value size: of 8, both up to 128"
#endif
#define DELTA_LOG2_E 1.44269504f

DEV float exp_of(float x) { return exp2_approx(x * DELTA_LOG2_E); }

/* ---- whose numbers ---- */

DEV struct delta_layout delta_shape(void) {
    struct delta_layout d;
    d.hidden = M_HIDDEN, d.taps = M_TAPS;
    d.key_heads = M_KEY_HEADS, d.value_heads = M_VALUE_HEADS, d.key_dim = M_KEY_DIM, d.value_dim = M_VALUE_DIM;
    return d;
}

DEV const float *delta_numbers(const struct prompt_worker *r, int nth) {
    const struct delta_layout d = delta_shape();
    return r->w.a->delta.constants + (size_t)nth * (size_t)delta_constants(&d);
}

/* With several GPUs each has the heads of its own groups, and counts these heads and their channels from 0. The model's
 * and the session's numbers are those of all heads. Below: what a GPU's value head or channel is there. On one GPU that
 * is the same, and macros: a call of such a function, too, had ptxas make other code. */
#if P_GPUS > 1
DEV int model_head(const struct prompt_worker *r, int head) { return r->a->gpus.gpu * GPU_VALUE_HEADS + head; }
DEV int model_channel(const struct prompt_worker *r, int channel) {
    enum { KEYS = GPU_KEY_HEADS * M_KEY_DIM, VALUES = GPU_VALUE_HEADS * M_VALUE_DIM };
    const int gpu = r->a->gpus.gpu, before = channel < 2 * KEYS ? channel / KEYS * KEYS : 2 * KEYS;
    return P_GPUS * before + gpu * (channel < 2 * KEYS ? KEYS : VALUES) + channel - before;
}
#else
#define model_head(r, head)       (head)
#define model_channel(r, channel) (channel)
#endif

DEV int delta_chunks(const struct prompt_worker *r) { return (r->n_tokens + DELTA_CHUNK - 1) / DELTA_CHUNK; }

/* Where a head's chunk begins. A chunk has `bytes` bytes, and a head's chunks follow one another. */
DEV size_t chunk_at(int head, int chunk, size_t bytes) { return (size_t)(head * CHUNKS_MOST + chunk) * bytes; }

/* All threads make the barrier of the `copies` copies that this block asks for itself, and wait for the launch before.
 * After this the block may read what other launches made, by copies too. */
DEV void copies_start(u64 *full, int copies) {
    if (thread_index() == 0) {
        mbar_init(full, copies * FILL_LANES);
        mbar_init_done();
    }
    block_sync();
    previous_over();
    fence_copies();
}
/* A warp waits for the copies that its block asked for itself. No block ends while its copies are under way, not even
 * in a launch that gave up. */
DEV void copies_wait(struct prompt_worker *r, smem full, u32 parity) {
    if (r->w.lane == 0) {
        mbar_wait(&r->w, full, parity, WAIT_STAGE);
        copy_wait(full, parity);
    }
    warp_sync();
}

/* ---- two terms ---- */

/* Two floats rounded to bf16, and what rounding left over, as bf16 again. */
struct terms {
    u32 rounded, rest;
};
DEV struct terms terms_of(float low, float high) {
    struct terms t;
    t.rounded = bf16_pair(low, high);
    t.rest = bf16_rest(t.rounded, low, high);
    return t;
}

/* d += A B to some 16 significant bits. a is A rounded and A's rest; b0 and b1 are the two words of B. */
DEV void terms_mma(float *d, const struct quad *a, struct terms b0, struct terms b1) {
    tile_mma(d, a[0], b0.rounded, b1.rounded);
    tile_mma(d, a[1], b0.rounded, b1.rounded);
    tile_mma(d, a[0], b0.rest, b1.rest);
}

/* ---- blocks in shared memory ---- */

/* This lane's row for matrices_load, which loads a tile of 16 by 16 as an A operand. `width` blocks lie side by side;
 * lanes 8 i to 8 i + 7 have the block at (row + i % 2, column + i / 2). */
DEV smem tile_rows(smem blocks, int width, int row, int column, int lane) {
    return blocks + (u32)(((row + lane / 8 % 2) * width + column + lane / 16) * MATRIX_BYTES + lane % 8 * 16);
}
/* As tile_rows, but rows and columns change places: two B operands of 16 by 8, one above the other. Loaded turned, it
 * is an A operand. */
DEV smem tile_columns(smem blocks, int width, int row, int column, int lane) {
    return blocks + (u32)(((row + lane / 16) * width + column + lane / 8 % 2) * MATRIX_BYTES + lane % 8 * 16);
}

#endif

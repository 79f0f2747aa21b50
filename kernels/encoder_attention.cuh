/* Layer norms and attention of the audio tower.
 *
 *   norm        in: h   out: x. A warp norms a token at a time.
 *   attention   in: qkv   out: attended. A token sees all tokens of its own window. A warp has 16 queries of a head. It
 *               loads keys and values from memory as operands, since a window has few: seven warps of a block have
 *               queries of the same window and head, so most loads come out of L1. */
#ifndef REEL_KERNELS_ENCODER_ATTENTION_CUH
#define REEL_KERNELS_ENCODER_ATTENTION_CUH

#include "encoder_product.cuh"
#include "mma.cuh"

/* which: ENC_NORM1, ENC_NORM2, ENC_LAST_NORM */
DEV void norm_phase(struct prompt_worker *r, int which, int layer) {
    enum { PAIRS = A_HIDDEN / 2, TURNS = (PAIRS + LANES - 1) / LANES };
    const struct encoder_args *a = encoder_of(r);
    const float *gain = encoder_numbers(r, which, layer), *bias = gain + A_HIDDEN;
    NO_UNROLL
    for (int t = r->w.block * READ_WARPS + r->w.warp; t < r->n_tokens; t += (int)block_count() * READ_WARPS) {
        const u32 *h = (const u32 *)a->h + (size_t)t * A_HIDDEN;
        float v[TURNS][2], sum = 0, squares = 0;
        UNROLL
        for (int i = 0; i < TURNS; i++) {
            const int pair = i * LANES + r->w.lane;
            v[i][0] = pair < PAIRS ? bits_float(plain_load32(h + 2 * pair)) : 0;
            v[i][1] = pair < PAIRS ? bits_float(plain_load32(h + 2 * pair + 1)) : 0;
            sum += v[i][0] + v[i][1];
        }
        const float mean = xor_sum(sum, 1, LANES) * (1.0f / A_HIDDEN);
        UNROLL
        for (int i = 0; i < TURNS; i++) {
            if (i * LANES + r->w.lane >= PAIRS) continue;
            v[i][0] -= mean, v[i][1] -= mean;
            squares += v[i][0] * v[i][0] + v[i][1] * v[i][1];
        }
        const float scale = rsqrt_approx(xor_sum(squares, 1, LANES) * (1.0f / A_HIDDEN) + 1e-5f);
        UNROLL
        for (int i = 0; i < TURNS; i++) {
            const int pair = i * LANES + r->w.lane;
            if (pair >= PAIRS) continue;
            const float low = v[i][0] * scale * const_loadf(gain + 2 * pair) + const_loadf(bias + 2 * pair);
            const float high = v[i][1] * scale * const_loadf(gain + 2 * pair + 1) + const_loadf(bias + 2 * pair + 1);
            plain_store32((u32 *)(a->x + activation_at(a->room, t, 2 * pair)), bf16_pair(low, high));
        }
    }
}

/* ---- attention ---- */

enum {
    A_HEAD = A_HIDDEN / A_HEADS,
    HEAD_TILES = A_HEAD / TILE_K,
    KEY_ATOMS = (A_WINDOW + 7) / 8,  /* of 8 keys */
    KEY_TILES = (KEY_ATOMS + 1) / 2, /* of 16 */
    QUERY_TILES = (A_WINDOW + 15) / 16,
    ROW = 3 * A_HIDDEN
};

/* Two entries of a token's row of q, k or v, whichever `from` points at; 0 beyond the n tokens of the window. */
DEV u32 qkv_pair(const u16 *from, int token, int n, int entry) {
    return token < n ? cached_load32((const u32 *)(from + (size_t)token * ROW + entry)) : 0;
}

/* Attends with the 16 queries from `first` on. from: row 0 of the window, this head's first entry of q. n: tokens of
 * the window. window_token: its first token. */
DEV void queries_attend(struct prompt_worker *r, const u16 *from, int n, int first, int window_token, int head) {
    const struct encoder_args *a = encoder_of(r);
    const int lane = r->w.lane, row = first + lane / 4, pair = lane % 4 * 2;
    float s[2 * KEY_TILES][4], o[A_HEAD / 8][4], most[2] = { -3e38f, -3e38f }, sum[2] = { 0, 0 };
    struct quad q[HEAD_TILES];
    UNROLL
    for (int i = 0; i < HEAD_TILES; i++) {
        const int entry = i * TILE_K + pair;
        q[i].x = qkv_pair(from, row, n, entry), q[i].y = qkv_pair(from, row + 8, n, entry);
        q[i].z = qkv_pair(from, row, n, entry + 8), q[i].w = qkv_pair(from, row + 8, n, entry + 8);
    }
    UNROLL
    for (int j = 0; j < 2 * KEY_TILES; j++) {
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
        UNROLL
        for (int i = 0; i < HEAD_TILES; i++) {
            const u16 *k = from + A_HIDDEN;
            const int key = 8 * j + lane / 4, entry = i * TILE_K + pair;
            tile_mma(s[j], q[i], qkv_pair(k, key, n, entry), qkv_pair(k, key, n, entry + 8));
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            if (8 * j + pair + i % 2 >= n) s[j][i] = -3e38f;
            most[i / 2] = max_float(most[i / 2], s[j][i]);
        }
    }
    const float scale = 1.44269504f * rsqrt_approx((float)A_HEAD);
    UNROLL
    for (int i = 0; i < 2; i++)
        most[i] = xor_max(most[i], 1, 4);
    UNROLL
    for (int j = 0; j < 2 * KEY_TILES; j++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            s[j][i] = exp2_approx((s[j][i] - most[i / 2]) * scale);
            sum[i / 2] += s[j][i];
        }
    }
    UNROLL
    for (int i = 0; i < 2; i++)
        sum[i] = rcp_approx(xor_sum(sum[i], 1, 4));
    UNROLL
    for (int c = 0; c < A_HEAD / 8; c++)
        o[c][0] = o[c][1] = o[c][2] = o[c][3] = 0;
    UNROLL
    for (int j = 0; j < KEY_TILES; j++) {
        struct quad p;
        p.x = bf16_pair(s[2 * j][0], s[2 * j][1]), p.y = bf16_pair(s[2 * j][2], s[2 * j][3]);
        p.z = bf16_pair(s[2 * j + 1][0], s[2 * j + 1][1]), p.w = bf16_pair(s[2 * j + 1][2], s[2 * j + 1][3]);
        UNROLL
        for (int c = 0; c < A_HEAD / 8; c++) {
            u32 v[2];
            UNROLL
            for (int i = 0; i < 2; i++) {
                /* one column's entries of two tokens */
                const int key = 16 * j + 8 * i + pair, entry = 8 * c + lane / 4, even = entry & ~1;
                const u32 low = qkv_pair(from + 2 * A_HIDDEN, key, n, even),
                          high = qkv_pair(from + 2 * A_HIDDEN, key + 1, n, even);
                v[i] = entry % 2 ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;
            }
            tile_mma(o[c], p, v[0], v[1]);
        }
    }
    UNROLL
    for (int c = 0; c < A_HEAD / 8; c++) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int token = row + 8 * i, column = head * A_HEAD + 8 * c + pair;
            if (token >= n) continue;
            plain_store32((u32 *)(a->attended + activation_at(a->room, window_token + token, column)),
                          bf16_pair(o[c][2 * i] * sum[i], o[c][2 * i + 1] * sum[i]));
        }
    }
}

DEV void attention_phase(struct prompt_worker *r) {
    const struct encoder_args *a = encoder_of(r);
    const int windows = (r->n_tokens + A_WINDOW - 1) / A_WINDOW, n_items = windows * A_HEADS * QUERY_TILES;
    NO_UNROLL
    for (int item = r->w.block * READ_WARPS + r->w.warp; item < n_items; item += (int)block_count() * READ_WARPS) {
        const int tile = item % QUERY_TILES, head = item / QUERY_TILES % A_HEADS;
        const int token = item / QUERY_TILES / A_HEADS * A_WINDOW, left = r->n_tokens - token;
        const int n = left < A_WINDOW ? left : A_WINDOW;
        if (tile * 16 < n) queries_attend(r, a->qkv + (size_t)token * ROW + head * A_HEAD, n, tile * 16, token, head);
    }
}

#endif

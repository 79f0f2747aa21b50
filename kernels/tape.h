/* The tape map: where each weight lies. One pure function, compiled for host and device, used by
 * winding, by the embedding look-up of tied models, by the plan's checker and by tests.
 *
 * A tape is one SM's weights in the order it consumes them: n_layers times (qkv, out, gate_up,
 * down), then its share of the head. It is a sequence of tiles of 16 rows by 16 columns (k), 512
 * bytes each, in the order of mma.m16n8k16's A operand: lane 4 (r % 8) + (k % 8) / 2 holds at
 * 16 bytes a lane the pairs (r, k), (r + 8, k), (r, k + 8), (r + 8, k + 8).
 *
 * SMs stand in n_groups groups of group_sms. A group owns a slice of the heads and of the
 * intermediate size. qkv and gate_up are split by rows inside the group; out and down take the
 * group's slice of k and split the rows inside the group, so each SM makes partial sums. The head
 * deals row tiles out to all SMs in turn. */
#ifndef REEL_KERNELS_TAPE_H
#define REEL_KERNELS_TAPE_H

#if defined(__CUDACC__)
#define TAPE_FN __device__ static __forceinline__
#else
#define TAPE_FN static inline
#endif

enum tape_phase { TAPE_QKV, TAPE_OUT, TAPE_GATE_UP, TAPE_DOWN, TAPE_HEAD, TAPE_N_PHASES };

enum { TILE_ROWS = 16, TILE_K = 16, TILE_BYTES = 512 };

/* One phase on one SM. Tile i of warp w lies at (i * warps + w) * TILE_BYTES; warp w takes row part
 * w / k_parts and k part w % k_parts; its tiles run over its row tiles first, then over k. The
 * head has row_parts = k_parts = 0: its row tiles belong to one warp each, in units of head_unit
 * tiles of k, unit (round, q, warp) after unit. */
struct tape_segment {
    int rows;               /* a SM's, before padding to whole tiles; the head: 0 */
    int row_tiles, k_tiles; /* of a SM; the head: most row tiles of a SM */
    int row_parts, k_parts; /* row_parts * k_parts = warps */
    int warp_rows, warp_k;  /* row tiles and k tiles of one warp */
    unsigned bytes, offset; /* offset in the layer's part of the tape */
};

struct tape_shape {
    int n_groups, group_sms, n_sms; /* n_sms = n_groups * group_sms */
    int warps;
    int n_layers;
    int hidden, vocab;
    int group_q, group_kv;  /* q rows and k rows (the same number of v rows) of a group */
    int group_intermediate; /* even; the last group's may reach beyond the model's */
    int intermediate;
    int head_unit; /* k tiles a warp takes of the head in one go; divides its k_tiles */
    struct tape_segment segment[TAPE_N_PHASES];
    unsigned layer_bytes;
    unsigned long long sm_bytes; /* of one SM's tape: the stride between SMs */
};

/* Byte of (r, k) inside its tile. */
TAPE_FN unsigned tape_in_tile(int r, int k) {
    unsigned lane = (unsigned)(r % 8 * 4 + k % 8 / 2),
             reg = (unsigned)(k % 16 / 8 * 2 + r % 16 / 8);
    return lane * 16 + reg * 4 + (unsigned)(k % 2) * 2;
}

/* Byte of the tile (row tile r, k tile k) of a SM inside its segment. */
TAPE_FN unsigned tape_tile(const struct tape_shape *s, const struct tape_segment *g, int r, int k) {
    int warp = r / g->warp_rows * g->k_parts + k / g->warp_k;
    int i = k % g->warp_k * g->warp_rows + r % g->warp_rows;
    return (unsigned)(i * s->warps + warp) * TILE_BYTES;
}

/* Row tiles of the head that SM `sm` has. */
TAPE_FN int tape_head_tiles(const struct tape_shape *s, int sm) {
    int all = (s->vocab + TILE_ROWS - 1) / TILE_ROWS;
    return all > sm ? (all - sm - 1) / s->n_sms + 1 : 0;
}

/* Byte of the head's tile (tile n of this SM, k tile k) inside its segment. The last round has
 * fewer strips than warps. */
TAPE_FN unsigned long long tape_head_tile(const struct tape_shape *s, int sm, int n, int k) {
    int units = s->segment[TAPE_HEAD].k_tiles / s->head_unit;
    int round = n / s->warps, left = tape_head_tiles(s, sm) - round * s->warps;
    int strips = left < s->warps ? left : s->warps;
    unsigned long long unit = (unsigned long long)round * (unsigned)(units * s->warps) +
                              (unsigned)(k / s->head_unit * strips + n % s->warps);
    return (unit * (unsigned)s->head_unit + (unsigned)(k % s->head_unit)) * TILE_BYTES;
}

/* Local row of a SM's gate row `pair`, or of the up row it belongs to: a tile holds 8 gate rows and
 * their up rows below them, so that one thread of a matrix product gets both. */
TAPE_FN int tape_pair_row(int pair, int is_up) { return pair / 8 * 16 + is_up * 8 + pair % 8; }

/* Byte of weight (row, k) of a phase's matrix of one layer, from the start of all tapes. Rows count
 * through the phase's matrices one after the other: q, k, v; gate, up. */
TAPE_FN unsigned long long tape_locate(const struct tape_shape *s, int phase, int layer, int row,
                                       int k) {
    const struct tape_segment *g = &s->segment[phase];
    int group, local, sm;
    if (phase == TAPE_HEAD) {
        int tile = row / TILE_ROWS;
        sm = tile % s->n_sms;
        return (unsigned long long)sm * s->sm_bytes +
               (unsigned long long)s->n_layers * s->layer_bytes +
               tape_head_tile(s, sm, tile / s->n_sms, k / TILE_K) + tape_in_tile(row, k);
    }
    if (phase == TAPE_QKV) {
        int q_rows = s->group_q * s->n_groups, kv_rows = s->group_kv * s->n_groups;
        if (row < q_rows) {
            group = row / s->group_q, local = row % s->group_q;
        } else {
            int r = (row - q_rows) % kv_rows, is_v = (row - q_rows) / kv_rows;
            group = r / s->group_kv;
            local = s->group_q + is_v * s->group_kv + r % s->group_kv;
        }
        sm = local / g->rows, local %= g->rows;
    } else if (phase == TAPE_GATE_UP) {
        int pairs = g->rows / 2, is_up = row >= s->intermediate;
        int i = row - is_up * s->intermediate;
        group = i / s->group_intermediate, i %= s->group_intermediate;
        sm = i / pairs, local = tape_pair_row(i % pairs, is_up);
    } else {
        int slice = phase == TAPE_OUT ? s->group_q : s->group_intermediate;
        group = k / slice, k %= slice;
        sm = row / g->rows, local = row % g->rows;
    }
    return (unsigned long long)(group * s->group_sms + sm) * s->sm_bytes +
           (unsigned long long)layer * s->layer_bytes + g->offset +
           tape_tile(s, g, local / TILE_ROWS, k / TILE_K) + tape_in_tile(local, k);
}

#endif

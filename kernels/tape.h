/* The tape map: where each weight lies. One pure function, compiled for host and device, used by
 * winding, by the embedding look-up of tied models, by the plan's checker and by tests.
 *
 * A tape is one SM's weights in the order it consumes them: for each layer qkv, or mix where the
 * layer is a Gated DeltaNet, then out, gate_up, down; and behind the layers its share of the head.
 * It is a sequence of tiles of 16 rows by 16 columns (k); what a tile is says tile_format.h. All
 * tiles of a segment have the same format, those of another segment may have another.
 *
 * SMs stand in n_groups groups of group_sms. A group owns a slice of the heads and of the
 * intermediate size. qkv, mix and gate_up are split by rows inside the group; out and down take the
 * group's slice of k and split the rows inside the group, so each SM makes partial sums. The head
 * deals row tiles out to all SMs in turn. */
#ifndef REEL_KERNELS_TAPE_H
#define REEL_KERNELS_TAPE_H

#include "tile_format.h"

/* A layer has qkv or mix, in the same place, and the three behind qkv. */
#define TAPE_PHASES(PHASE) /* number, name, as P_ constants have it */                                                 \
    PHASE(TAPE_QKV, "qkv", "QKV")                                                                                      \
    PHASE(TAPE_OUT, "out", "OUT")                                                                                      \
    PHASE(TAPE_GATE_UP, "gate_up", "GATE_UP")                                                                          \
    PHASE(TAPE_DOWN, "down", "DOWN")                                                                                   \
    PHASE(TAPE_HEAD, "head", "HEAD")                                                                                   \
    PHASE(TAPE_MIX, "mix", "MIX")

#define TAPE_PHASE_NUMBER(phase, name, prefix) phase,
enum tape_phase { TAPE_PHASES(TAPE_PHASE_NUMBER) TAPE_N_PHASES };
#undef TAPE_PHASE_NUMBER

/* Layers whose kind a shape can tell; those beyond are attention. */
enum { TAPE_KINDS = 128 };

/* One phase on one SM. Tile i of warp w is the segment's tile i * warps + w; warp w takes row part
 * w / k_parts and k part w % k_parts; its tiles run over its row tiles first, then over k. The
 * head has row_parts = k_parts = 0: its row tiles belong to one warp each, in units of head_unit
 * tiles of k, unit (round, q, warp) after unit. */
struct tape_segment {
    int rows;               /* a SM's, before padding to whole tiles; the head: 0 */
    int row_tiles, k_tiles; /* of a SM; the head: most row tiles of a SM */
    int row_parts, k_parts; /* row_parts * k_parts = warps */
    int warp_rows, warp_k;  /* row tiles and k tiles of one warp */
    unsigned bytes, offset; /* offset in an attention layer's part of the tape; mix: 0 */
    int format;             /* enum tile_format */
};

struct tape_shape {
    int n_groups, group_sms, n_sms; /* n_sms = n_groups * group_sms */
    int warps;
    int n_layers;
    int hidden, vocab;
    int group_q, group_kv;      /* q rows and k rows (the same number of v rows) of a group */
    int gate_dim;               /* entries of a head, which has as many gates as queries; 0: no gates */
    int group_key, group_value; /* of mix: q rows (the same number of k rows) and v rows (of z) */
    int group_intermediate;     /* even; the last group's may reach beyond the model's */
    int intermediate;
    int head_unit; /* k tiles a warp takes of the head in one go; divides its k_tiles */
    struct tape_segment segment[TAPE_N_PHASES];
    unsigned long long delta_layers[2]; /* bit l % 64 of [l / 64]: layer l is a DeltaNet */
    unsigned layer_bytes, delta_bytes;  /* of an attention layer and of a DeltaNet */
    unsigned long long layers_bytes;    /* of all of them: where the head begins */
    unsigned long long sm_bytes;        /* of one SM's tape: the stride between SMs, whole tiles of
                                           every segment's format */
};

/* ---- layers ---- */

TAPE_FN int tape_is_delta(const struct tape_shape *s, int layer) {
    return layer < TAPE_KINDS && (s->delta_layers[layer / 64] >> layer % 64 & 1);
}

TAPE_FN int tape_ones(unsigned long long x) {
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}

/* DeltaNets before layer `end`. */
TAPE_FN int tape_deltas(const struct tape_shape *s, int end) {
    const unsigned long long below = end % 64 ? ~0ull >> (64 - end % 64) : 0;
    if (end >= TAPE_KINDS) return tape_ones(s->delta_layers[0]) + tape_ones(s->delta_layers[1]);
    if (end < 64) return tape_ones(s->delta_layers[0] & below);
    return tape_ones(s->delta_layers[0]) + tape_ones(s->delta_layers[1] & below);
}

/* Layers of its kind before this one: where its keys and values, or its state, lie. */
TAPE_FN int tape_nth(const struct tape_shape *s, int layer) {
    const int deltas = tape_deltas(s, layer);
    return tape_is_delta(s, layer) ? deltas : layer - deltas;
}

/* Where a layer begins in an SM's tape. */
TAPE_FN unsigned long long tape_layer_offset(const struct tape_shape *s, int layer) {
    const int deltas = tape_deltas(s, layer);
    return (unsigned long long)deltas * s->delta_bytes + (unsigned long long)(layer - deltas) * s->layer_bytes;
}

/* Where a phase begins in a layer. */
TAPE_FN unsigned tape_phase_offset(const struct tape_shape *s, int phase, int layer) {
    const unsigned more = tape_is_delta(s, layer) ? s->delta_bytes - s->layer_bytes : 0;
    return s->segment[phase].offset + (phase == TAPE_MIX ? 0 : more);
}

/* ---- tiles ---- */

/* Byte of the tile (row tile r, k tile k) of a SM inside its segment. */
TAPE_FN unsigned tape_tile(const struct tape_shape *s, const struct tape_segment *g, int r, int k) {
    int warp = r / g->warp_rows * g->k_parts + k / g->warp_k;
    int i = k % g->warp_k * g->warp_rows + r % g->warp_rows;
    return (unsigned)(i * s->warps + warp) * tile_bytes(g->format);
}

/* Row tiles of the head that SM `sm` has. */
TAPE_FN int tape_head_tiles(const struct tape_shape *s, int sm) {
    int all = (s->vocab + TILE_ROWS - 1) / TILE_ROWS;
    return all > sm ? (all - sm - 1) / s->n_sms + 1 : 0;
}

/* Byte of the head's tile (tile n of this SM, k tile k) inside its segment. The last round has
 * fewer strips than warps. */
TAPE_FN unsigned long long tape_head_tile(const struct tape_shape *s, int sm, int n, int k) {
    const struct tape_segment *g = &s->segment[TAPE_HEAD];
    int units = g->k_tiles / s->head_unit;
    int round = n / s->warps, left = tape_head_tiles(s, sm) - round * s->warps;
    int strips = left < s->warps ? left : s->warps;
    unsigned long long unit =
        (unsigned long long)round * (unsigned)(units * s->warps) + (unsigned)(k / s->head_unit * strips + n % s->warps);
    return (unit * (unsigned)s->head_unit + (unsigned)(k % s->head_unit)) * tile_bytes(g->format);
}

/* Local row of a SM's gate row `pair`, or of the up row it belongs to: a tile holds 8 gate rows and
 * their up rows below them, so that one thread of a matrix product gets both. */
TAPE_FN int tape_pair_row(int pair, int is_up) { return pair / 8 * 16 + is_up * 8 + pair % 8; }

/* ---- weights ---- */

/* A row of a phase's matrices as the group that owns it counts: rows of its q, gates, k, v; or of
 * its q, k, v, z. */
struct tape_row {
    int group, local;
};

/* Row i of a matrix of which each group has `share` rows, behind `before` others of the group. */
TAPE_FN struct tape_row tape_share(int i, int share, int before) {
    const struct tape_row r = { i / share, before + i % share };
    return r;
}

TAPE_FN struct tape_row tape_qkv_row(const struct tape_shape *s, int row) {
    const int q_rows = s->group_q * s->n_groups, kv_rows = s->group_kv * s->n_groups;
    const int gates = s->gate_dim ? s->group_q : 0, first = s->gate_dim ? 2 * q_rows : q_rows;
    if (row >= first) {
        const int r = row - first, is_v = r >= kv_rows;
        return tape_share(is_v ? r - kv_rows : r, s->group_kv, s->group_q + gates + is_v * s->group_kv);
    }
    if (gates == 0) return tape_share(row, s->group_q, 0);
    /* head by head its queries, then its gates */
    const int head = row / (2 * s->gate_dim), i = row % (2 * s->gate_dim);
    return tape_share(head * s->gate_dim + i % s->gate_dim, s->group_q, i >= s->gate_dim ? gates : 0);
}

TAPE_FN struct tape_row tape_mix_row(const struct tape_shape *s, int row) {
    const int keys = s->group_key * s->n_groups, values = s->group_value * s->n_groups;
    if (row < 2 * keys) {
        const int is_k = row >= keys;
        return tape_share(is_k ? row - keys : row, s->group_key, is_k * s->group_key);
    }
    const int r = row - 2 * keys, is_z = r >= values;
    return tape_share(is_z ? r - values : r, s->group_value, 2 * s->group_key + is_z * s->group_value);
}

/* Byte of the grain (tile_format.h) that has weight (row, k) of a phase's matrix of one layer, from
 * the start of all tapes. Rows count
 * through the phase's matrices one after the other: q, k, v, where q may be queries and gates head
 * by head; q, k, v, z; gate, up. */
TAPE_FN unsigned long long tape_locate(const struct tape_shape *s, int phase, int layer, int row, int k) {
    const struct tape_segment *g = &s->segment[phase];
    int group, local, sm;
    if (phase == TAPE_HEAD) {
        int tile = row / TILE_ROWS;
        sm = tile % s->n_sms;
        return (unsigned long long)sm * s->sm_bytes + s->layers_bytes +
               tape_head_tile(s, sm, tile / s->n_sms, k / TILE_K) + tile_grain_at(g->format, row, k);
    }
    if (phase == TAPE_QKV || phase == TAPE_MIX) {
        const struct tape_row r = phase == TAPE_MIX ? tape_mix_row(s, row) : tape_qkv_row(s, row);
        group = r.group, sm = r.local / g->rows, local = r.local % g->rows;
    } else if (phase == TAPE_GATE_UP) {
        int pairs = g->rows / 2, is_up = row >= s->intermediate;
        int i = row - is_up * s->intermediate;
        group = i / s->group_intermediate, i %= s->group_intermediate;
        sm = i / pairs, local = tape_pair_row(i % pairs, is_up);
    } else {
        int slice = phase == TAPE_DOWN ? s->group_intermediate : tape_is_delta(s, layer) ? s->group_value : s->group_q;
        group = k / slice, k %= slice;
        sm = row / g->rows, local = row % g->rows;
    }
    return (unsigned long long)(group * s->group_sms + sm) * s->sm_bytes + tape_layer_offset(s, layer) +
           tape_phase_offset(s, phase, layer) + tape_tile(s, g, local / TILE_ROWS, k / TILE_K) +
           tile_grain_at(g->format, local, k);
}

#endif

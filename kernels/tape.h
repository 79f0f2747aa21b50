/* The tape map says where each weight lies. It is one pure function, tape_locate, compiled for host and device.
 * Winding uses it (wind.cu), as do the embedding look-up of tied models, the plan's checker and tests.
 *
 * A tape is one SM's weights in the order in which the SM consumes them. For each layer it has four segments: qkv, or
 * mix where the layer is a Gated DeltaNet, then out, gate_up and down. Behind the layers lies the SM's share of the
 * head. A tape is a sequence of tiles of 16 rows by 16 columns, or by several times 16; the columns are called k, and
 * 16 of them a k tile, also where a tile has more than one. tile_format.h says what a tile is. All tiles of a segment
 * have the same format; another segment may have another format.
 *
 * SMs stand in n_groups groups of group_sms SMs. A group owns a slice of the heads and of the intermediate size. The
 * SMs of a group split the rows of qkv, mix and gate_up between them. For out and down a group takes its slice of k and
 * its SMs split the rows, so the sums that an SM makes are partial. The head's row tiles are dealt out to all SMs in
 * turn. */
#ifndef REEL_KERNELS_TAPE_H
#define REEL_KERNELS_TAPE_H

#include "tile_format.h"

/* The phases that have weights. A layer has either qkv or mix, in the same place, then out, gate_up and down. */
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

/* How many layers a shape can tell the kind of. All layers beyond are attention layers. */
enum { TAPE_KINDS = 128 };

/* One phase's weights on one SM. Warp w takes row part w / k_parts and k part w % k_parts. Its tiles run over its row
 * tiles first, then over k, and its tile i is the segment's tile i * warps + w.
 *
 * Of a segment with `half` the last row tile has at most 8 rows, and a tile of it has two k tiles of these: half tiles.
 * So nothing is read for 8 rows that are not there. A warp's tiles are those of two k tiles of all other row tiles,
 * then a half tile, then those of the next two. Such a segment has one row part.
 *
 * The head is different and has row_parts = k_parts = 0. Each of its row tiles belongs to one warp, which takes it in
 * units of head_unit tiles of k. The units of all warps lie in the order [round][q][warp], where q counts the units of
 * a row tile and each round gives a row tile to every warp. */
struct tape_segment {
    int rows;               /* of one SM, before padding to whole tiles; head: 0 */
    int row_tiles, k_tiles; /* of one SM; head: the most row tiles that an SM has */
    int row_parts, k_parts; /* row_parts * k_parts = warps */
    int warp_rows, warp_k;  /* row tiles and k tiles of one warp; whole tiles */
    unsigned bytes, offset; /* offset: in an attention layer's part of the tape; mix: 0 */
    int format;             /* enum tile_format */
    int half;               /* 1: the last row tile is of half tiles; bf16 alone */
};

struct tape_shape {
    int n_groups, group_sms, n_sms; /* n_sms = n_groups * group_sms */
    int warps;
    int n_layers;
    int hidden, vocab;
    int group_q, group_kv;      /* rows of a group: of q; of k, and as many of v */
    int gate_dim;               /* entries of a head, which has a gate for each entry of q; 0: no gates */
    int group_key, group_value; /* rows of a group in mix: of q, and as many of k; of v, and as many of z */
    int group_intermediate;     /* even; the last group's share may reach beyond the model's size */
    int intermediate;
    int head_unit; /* tiles that a warp takes of the head in one go; they divide the head's */
    struct tape_segment segment[TAPE_N_PHASES];
    unsigned long long delta_layers[2]; /* bit l % 64 of [l / 64] is 1: layer l is a DeltaNet */
    unsigned layer_bytes, delta_bytes;  /* of an attention layer and of a DeltaNet */
    unsigned long long layers_bytes;    /* of all layers: where the head begins */
    unsigned long long sm_bytes;        /* of one SM's tape and so the stride between SMs; a whole
                                           number of tiles in the formats of out and down */
};

/* ---- layers ---- */

TAPE_FN int tape_is_delta(const struct tape_shape *s, int layer) {
    return layer < TAPE_KINDS && (s->delta_layers[layer / 64] >> layer % 64 & 1);
}

/* How many bits of x are 1. */
TAPE_FN int tape_ones(unsigned long long x) {
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}

/* How many DeltaNets are before layer `end`. */
TAPE_FN int tape_deltas(const struct tape_shape *s, int end) {
    const unsigned long long below = end % 64 ? ~0ull >> (64 - end % 64) : 0;
    if (end >= TAPE_KINDS) return tape_ones(s->delta_layers[0]) + tape_ones(s->delta_layers[1]);
    if (end < 64) return tape_ones(s->delta_layers[0] & below);
    return tape_ones(s->delta_layers[0]) + tape_ones(s->delta_layers[1] & below);
}

/* How many layers of the same kind are before this one. Keys and values, or the states, are stored by this number. */
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

/* Where in its segment the tile (row tile r, k tile k) of an SM begins, in bytes. */
TAPE_FN unsigned tape_tile(const struct tape_shape *s, const struct tape_segment *g, int r, int k) {
    int warp = r / g->warp_rows * g->k_parts + k / g->warp_k;
    int i = k % g->warp_k / TILE_PARTS(g->format) * g->warp_rows + r % g->warp_rows;
    if (g->half) {
        const int full = g->warp_rows - 1, twos = k % g->warp_k / 2;
        i = twos * (2 * full + 1) + (r == full ? 2 * full : k % 2 * full + r);
    }
    return (unsigned)(i * s->warps + warp) * tile_bytes(g->format);
}

/* How many row tiles of the head SM `sm` has. */
TAPE_FN int tape_head_tiles(const struct tape_shape *s, int sm) {
    int all = (s->vocab + TILE_ROWS - 1) / TILE_ROWS;
    return all > sm ? (all - sm - 1) / s->n_sms + 1 : 0;
}

/* Where a strip of the head, that is a row tile, lies in the head's segment, in bytes: its first unit, and from a unit
 * to the next one. The last round may have fewer strips than there are warps. */
struct tape_strip {
    unsigned long long at;
    unsigned step;
};
/* Of row tile n of this SM. */
TAPE_FN struct tape_strip tape_head_strip(const struct tape_shape *s, int sm, int n) {
    const struct tape_segment *g = &s->segment[TAPE_HEAD];
    const int units = g->k_tiles / TILE_PARTS(g->format) / s->head_unit;
    const unsigned unit_bytes = (unsigned)s->head_unit * tile_bytes(g->format);
    const int round = n / s->warps, left = tape_head_tiles(s, sm) - round * s->warps;
    const int strips = left < s->warps ? left : s->warps;
    struct tape_strip strip;
    strip.at = ((unsigned long long)round * (unsigned)(units * s->warps) + (unsigned)(n % s->warps)) * unit_bytes;
    strip.step = (unsigned)strips * unit_bytes;
    return strip;
}
/* Where in a strip the tile of k tile k begins. */
TAPE_FN unsigned long long tape_strip_tile(const struct tape_shape *s, unsigned step, int k) {
    const int format = s->segment[TAPE_HEAD].format, tile = k / TILE_PARTS(format);
    return (unsigned long long)(unsigned)(tile / s->head_unit) * step +
           (unsigned)(tile % s->head_unit) * tile_bytes(format);
}
/* Where in the head's segment the tile (row tile n of this SM, k tile k) begins, in bytes. */
TAPE_FN unsigned long long tape_head_tile(const struct tape_shape *s, int sm, int n, int k) {
    const struct tape_strip strip = tape_head_strip(s, sm, n);
    return strip.at + tape_strip_tile(s, strip.step, k);
}

/* Which local row of an SM is its gate row `pair`, or the up row that belongs to it. A tile holds 8 gate rows and below
 * them their 8 up rows, so that one thread of a matrix product gets both. */
TAPE_FN int tape_pair_row(int pair, int is_up) { return pair / 8 * 16 + is_up * 8 + pair % 8; }

/* ---- weights ---- */

/* A row of a phase's matrices, in the count of the group that owns it: first the group's rows of q, then those of its
 * gates, k and v; in mix of q, k, v and z. */
struct tape_row {
    int group, local;
};

/* Row i of a matrix of which each group has `share` rows; in a group they follow `before` rows of other matrices. */
TAPE_FN struct tape_row tape_share(int i, int share, int before) {
    const struct tape_row r = { i / share, before + i % share };
    return r;
}

/* Row `row` of q, gates, k and v, as tape_locate counts it. */
TAPE_FN struct tape_row tape_qkv_row(const struct tape_shape *s, int row) {
    const int q_rows = s->group_q * s->n_groups, kv_rows = s->group_kv * s->n_groups;
    const int gates = s->gate_dim ? s->group_q : 0, first = s->gate_dim ? 2 * q_rows : q_rows;
    if (row >= first) {
        const int r = row - first, is_v = r >= kv_rows;
        return tape_share(is_v ? r - kv_rows : r, s->group_kv, s->group_q + gates + is_v * s->group_kv);
    }
    if (gates == 0) return tape_share(row, s->group_q, 0);
    /* the matrix has, head by head, the head's queries and then its gates */
    const int head = row / (2 * s->gate_dim), i = row % (2 * s->gate_dim);
    return tape_share(head * s->gate_dim + i % s->gate_dim, s->group_q, i >= s->gate_dim ? gates : 0);
}

/* Row `row` of q, k, v and z of a DeltaNet, as tape_locate counts it. */
TAPE_FN struct tape_row tape_mix_row(const struct tape_shape *s, int row) {
    const int keys = s->group_key * s->n_groups, values = s->group_value * s->n_groups;
    if (row < 2 * keys) {
        const int is_k = row >= keys;
        return tape_share(is_k ? row - keys : row, s->group_key, is_k * s->group_key);
    }
    const int r = row - 2 * keys, is_z = r >= values;
    return tape_share(is_z ? r - values : r, s->group_value, 2 * s->group_key + is_z * s->group_value);
}

/* How many columns of a phase's matrices lie together in an SM's tapes: all of them, or a group's slice of them in out
 * and down. */
TAPE_FN int tape_slice(const struct tape_shape *s, int phase, int layer, int columns) {
    if (phase == TAPE_DOWN) return s->group_intermediate;
    if (phase == TAPE_OUT) return tape_is_delta(s, layer) ? s->group_value : s->group_q;
    return columns;
}

/* A weight's tile, in bytes from the start of all tapes, and its row and column: those of an SM, of which the tile's
 * own are the rest of a division by the tile's rows and columns. */
struct tape_place {
    unsigned long long tile;
    int row, k;
};

/* Where weight (row, k) of a phase in a layer lies. Rows are counted through all matrices of the phase, one after the
 * other: q, k, v, where q may hold queries and gates head by head; q, k, v, z in mix; gate, up. */
TAPE_FN struct tape_place tape_place(const struct tape_shape *s, int phase, int layer, int row, int k) {
    const struct tape_segment *g = &s->segment[phase];
    struct tape_place place;
    int group, local, sm;
    if (phase == TAPE_HEAD) {
        int tile = row / TILE_ROWS;
        sm = tile % s->n_sms;
        place.tile =
            (unsigned long long)sm * s->sm_bytes + s->layers_bytes + tape_head_tile(s, sm, tile / s->n_sms, k / TILE_K);
        place.row = row, place.k = k;
        return place;
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
        const int slice = tape_slice(s, phase, layer, 0);
        group = k / slice, k %= slice;
        sm = row / g->rows, local = row % g->rows;
    }
    place.tile = (unsigned long long)(group * s->group_sms + sm) * s->sm_bytes + tape_layer_offset(s, layer) +
                 tape_phase_offset(s, phase, layer) + tape_tile(s, g, local / TILE_ROWS, k / TILE_K);
    place.row = local, place.k = k;
    if (g->half && local / TILE_ROWS == g->row_tiles - 1) { /* tile_format.h, half tiles */
        place.row = local % 8 + k / 8 % 2 * 8;
        place.k = k / TILE_K % 2 * 8 + k % 8;
    }
    return place;
}

/* Where the grain (tile_format.h) begins that holds weight (row, k) of a phase in a layer, in bytes from the start of
 * all tapes. */
TAPE_FN unsigned long long tape_locate(const struct tape_shape *s, int phase, int layer, int row, int k) {
    const struct tape_place place = tape_place(s, phase, layer, row, k);
    return place.tile + tile_grain_at(s->segment[phase].format, place.row, place.k);
}

#endif

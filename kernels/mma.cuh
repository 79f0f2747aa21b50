/* Products of a tile (tile_format.h), and the loads of their operands. The tensor cores compute them; shuffles and FMA
 * do so on sm_75, whose tensor cores do not know bf16. A lane's share of a tile is the one that mma.m16n8k16 asks for.
 *
 * With G_COPY >= 1 there is mma of bf16 (sm_80 and newer), with G_WGMMA also wgmma (sm_90a alone). */
#ifndef REEL_KERNELS_MMA_CUH
#define REEL_KERNELS_MMA_CUH

#include "decode_layout.h" /* COLUMN_SETS */
#include "reduce.cuh"
#include "sync.cuh"

#if !defined(REEL_SIM)

#if G_COPY >= 1
/* d += A B, where A is one tile and B is 16 by 8. Let c = 2 (lane % 4). The lane has column lane / 4 of B: rows c and
 * c + 1 in b0, rows c + 8 and c + 9 in b1. It has columns c and c + 1 of d: row lane / 4 in d[0] and d[1], row
 * lane / 4 + 8 in d[2] and d[3]. */
DEV void tile_mma(float d[4], struct quad a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
/* The same of integers of 8 bits, four to a word: A is 16 by 32 and B 32 by 8. The lane has of A, for c = 4 (lane % 4),
 * columns c to c + 3 of row lane / 4 in a.x and of row lane / 4 + 8 in a.y, and columns c + 16 to c + 19 of these rows
 * in a.z and a.w; of B, of column lane / 4, rows c to c + 3 in b0 and c + 16 to c + 19 in b1. */
DEV void tile_mma_s8(int d[4], struct quad a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
/* The same with 16 columns of A, c to c + 3 of the rows in a0 and a1, and 16 rows of B. */
DEV void tile_mma_s8_half(int d[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}
DEV u32 bf16_pair(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
#else
DEV float pair_dot(float sum, u32 a, u32 b) {
    return fmaf(bf16_high(a), bf16_high(b), fmaf(bf16_low(a), bf16_low(b), sum));
}
/* Each lane fetches the four lanes' shares of its rows and of its two columns. */
DEV void tile_mma(float d[4], struct quad a, u32 b0, u32 b1) {
    const int lane = (int)(thread_index() % 32), row = lane & ~3, column = lane % 4 * 8;
    UNROLL
    for (int j = 0; j < 4; j++) {
        const u32 x = shuffle(a.x, row + j), y = shuffle(a.y, row + j);
        const u32 z = shuffle(a.z, row + j), w = shuffle(a.w, row + j);
        UNROLL
        for (int c = 0; c < 2; c++) {
            const u32 p = shuffle(b0, column + 4 * c + j), q = shuffle(b1, column + 4 * c + j);
            d[c] = pair_dot(pair_dot(d[c], x, p), z, q);
            d[2 + c] = pair_dot(pair_dot(d[2 + c], y, p), w, q);
        }
    }
}
DEV u32 bf16_round(float x) {
    const u32 bits = float_bits(x);
    return x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
DEV u32 bf16_pair(float low, float high) { return bf16_round(low) | bf16_round(high) << 16; }
#endif

/* ---- products of a tile with 64 tokens of a stage ---- */

/* d[8][4] += A B. A is one tile in registers, 16 rows by 16 k. B is the 16 k from 16 * k on (k < 4) of 64 tokens: 8
 * atoms (prefill_args.h) of activations in shared memory, from a multiple of 1,024 bytes on. d[j] is what tile_mma
 * makes for the tokens 8 j to 8 j + 7. warp_panel_mma computes only the first `atoms` of d, and perhaps one more. */
#if G_COPY >= 1
DEV void warp_panel_mma(float *d, struct quad a, smem b, int k, int atoms) {
    const int lane = (int)(thread_index() % 32), row = lane % 8, chunk = 2 * k + lane / 8 % 2;
    /* lanes 0 to 15 name the rows of 8 tokens, 8 lanes for each half of k; the other lanes those of the next 8 */
    const smem from = b + (u32)(lane / 16 * 1024 + row * 128 + (chunk ^ row) * 16);
    UNROLL
    for (int j = 0; j < 8; j += 2) {
        if (j >= atoms) break;
        u32 w, x, y, z;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w), "=r"(x), "=r"(y), "=r"(z)
                     : "r"(from + (u32)j * 1024)
                     : "memory");
        tile_mma(d + 4 * j, a, w, x);
        tile_mma(d + 4 * j + 4, a, y, z);
    }
}
#endif

/* panel_mma computes the same. On sm_90a the four warps of a warpgroup work at it together, each with a tile of its own
 * and with the same B. The product is then under way until panels_wait, which is given all d: nothing may touch the
 * tiles, d and B till then. atom_mma does so for 8 tokens; its d[4] goes to atom_wait after panels_wait.
 * panel_mma_first does not read d and puts the product in its place. */
#if G_WGMMA
DEV void panels_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/* Where B lies: start; 1,024 bytes from 8 tokens to the next; swizzle of 128 bytes, for which the leading
 * offset means nothing. */
DEV u64 panels_descriptor(smem b, int k) {
    return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16 | (u64)((b & 0x3ffffu) >> 4) + (u64)(2 * k);
}
/* ONTO is "1" and D "+f" where the product is added to d, "0" and "=f" where it takes d's place. */
#define PANEL_MMA(D, ONTO)                                                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "                                               \
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"             \
                 "%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, " ONTO ", 1, 1, 0;"                        \
                 : D(d[0]), D(d[1]), D(d[2]), D(d[3]), D(d[4]), D(d[5]), D(d[6]), D(d[7]), D(d[8]), D(d[9]), D(d[10]), \
                   D(d[11]), D(d[12]), D(d[13]), D(d[14]), D(d[15]), D(d[16]), D(d[17]), D(d[18]), D(d[19]), D(d[20]), \
                   D(d[21]), D(d[22]), D(d[23]), D(d[24]), D(d[25]), D(d[26]), D(d[27]), D(d[28]), D(d[29]), D(d[30]), \
                   D(d[31])                                                                                            \
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(panels_descriptor(b, k)))
DEV void panel_mma(float *d, struct quad a, smem b, int k) { PANEL_MMA("+f", "1"); }
DEV void panel_mma_first(float *d, struct quad a, smem b, int k) { PANEL_MMA("=f", "0"); }
#undef PANEL_MMA
DEV void atom_mma(float *d, struct quad a, smem b, int k) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(panels_descriptor(b, k)));
}
DEV void atom_wait(float *d) { asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory"); }
DEV void panels_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DEV void panels_wait(float (*d)[32], int n) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    UNROLL
    for (int i = 0; i < 32 * n; i++) /* so the compiler reads none of them before the wait */
        asm volatile("" : "+f"(d[i / 32][i % 32])::"memory");
}
/* Makes the n operands live till here: products under way read their registers. */
DEV void panels_keep(struct quad *a, int n) {
    UNROLL
    for (int i = 0; i < n; i++)
        asm volatile("" : "+r"(a[i].x), "+r"(a[i].y), "+r"(a[i].z), "+r"(a[i].w)::"memory");
}
#elif G_COPY >= 1
DEV void panels_keep(struct quad *a, int n) { (void)a, (void)n; }
DEV void panels_begin(void) {}
DEV void panels_commit(void) {}
DEV void panels_wait(float (*d)[32], int n) { (void)d, (void)n; }
DEV void panel_mma(float *d, struct quad a, smem b, int k) { warp_panel_mma(d, a, b, k, 8); }
DEV void panel_mma_first(float *d, struct quad a, smem b, int k) {
    UNROLL
    for (int i = 0; i < 32; i++)
        d[i] = 0;
    panel_mma(d, a, b, k);
}
DEV void atom_mma(float *d, struct quad a, smem b, int k) { (void)d, (void)a, (void)b, (void)k; } /* TAIL_TOKENS is 0 */
DEV void atom_wait(float *d) { (void)d; }
#endif

/* Loads four 8 by 8 matrices of 16-bit values from shared memory. Lanes 8 i to 8 i + 7 name the rows of matrix i, 16
 * bytes each. For even c, lane 4 r + c / 2 gets (r, c) and (r, c + 1) of each matrix, or of its transpose from
 * matrices_load_turned. */
#if G_COPY >= 1
DEV struct quad matrices_load(smem row) {
    struct quad v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row)
                 : "memory");
    return v;
}
DEV struct quad matrices_load_turned(smem row) {
    struct quad v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row)
                 : "memory");
    return v;
}
#endif

#endif

/* ---- made of the above, the same on both sides ---- */

/* Transposes an 8 by 8 matrix of 16-bit values, of which lane 4 r + c / 2 holds (r, c) and (r, c + 1) for even c. */
DEV u32 transpose8(u32 v) {
#if defined(REEL_SIM)
    const int lane = (int)(thread_index() % LANES), odd = lane / 4 % 2;
    const u32 a = shuffle(v, lane % 4 * 8 + lane / 8), b = shuffle(v, lane % 4 * 8 + 4 + lane / 8);
    return odd ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
#else
    u32 t;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
    return t;
#endif
}
#if defined(REEL_SIM)
DEV struct quad matrices_load_turned(smem row) {
    struct quad v = matrices_load(row);
    v.x = transpose8(v.x), v.y = transpose8(v.y), v.z = transpose8(v.z), v.w = transpose8(v.w);
    return v;
}
#endif

/* Adds a tile times one vector to d. Every column of B is the vector (b0 and b1 depend on lane % 4 alone). d[0] has row
 * lane / 4 and d[2] row lane / 4 + 8; they are complete after tile_product_end. */
#if defined(REEL_SIM) || G_COPY == 0
DEV float tile_share(float sum, u32 a, u32 b, u32 c, u32 d) {
    return sum + ((bf16_low(a) * bf16_low(b) + bf16_high(a) * bf16_high(b)) +
                  (bf16_low(c) * bf16_low(d) + bf16_high(c) * bf16_high(d)));
}
DEV void tile_product(float d[4], struct quad a, u32 b0, u32 b1) {
    d[0] = tile_share(d[0], a.x, b0, a.z, b1);
    d[2] = tile_share(d[2], a.y, b0, a.w, b1);
}
DEV void tile_product_end(float d[4]) {
    d[0] = xor_sum(d[0], 1, 4);
    d[2] = xor_sum(d[2], 1, 4);
}
#else
DEV void tile_product(float d[4], struct quad a, u32 b0, u32 b1) { tile_mma(d, a, b0, b1); }
DEV void tile_product_end(float d[4]) { (void)d; }
#endif

/* Adds a tile times a vector that is the sum of two halves, at x and at x + low. The even columns of B take one half
 * and the odd ones the other, at no cost. After tile_product_end d[0] + d[1] is complete, and d[2] + d[3]. */
DEV void tile_product_split(float d[4], struct quad a, const u32 *x, int low, int lane) {
#if defined(REEL_SIM) || G_COPY == 0
    const struct pair p = *(const struct pair *)x, q = *(const struct pair *)(x + low);
    (void)lane;
    tile_product(d, a, p.low, p.high);
    tile_product(d, a, q.low, q.high);
#else
    const struct pair p = *(const struct pair *)(x + (lane & 4 ? low : 0));
    tile_mma(d, a, p.low, p.high);
#endif
}

#if defined(P_COLUMNS) && P_COLUMNS > 1
/* ---- products of a tile with several columns (docs/BATCHES.md) ----
 *
 * x is a k tile of B fragments as decode_layout.h lays them out: at 8 words for each column of B, of which lane % 4 has
 * two. tile_columns_split multiplies normed vectors: columns 2 c and 2 c + 1 of B are the two halves of a set's c-th
 * column, and the sets lie set_words apart. tile_columns multiplies vectors that are bf16. d has COLUMN_SUMS floats.
 * tile_split_sum is what column lane % 4 of a set got in row lane / 4 + 8 i, after tile_columns_fold and
 * tile_columns_end. tile_plain_sum is what column (2 (lane % 4) + j) % P_COLUMNS got, after tile_columns_end. */
#if defined(REEL_SIM) || G_COPY == 0
enum { COLUMN_SUMS = 4 * P_COLUMNS };
DEV void tile_columns_split(float *d, struct quad a, const u32 *x, int set_words, int lane) {
    enum { OF_SET = P_COLUMNS / COLUMN_SETS(P_COLUMNS) };
    UNROLL
    for (int c = 0; c < P_COLUMNS; c++) {
        const u32 *from = x + c / OF_SET * set_words + c % OF_SET * 16 + lane % 4 * 2;
        const struct pair p = *(const struct pair *)from, q = *(const struct pair *)(from + 8);
        tile_product(d + 4 * c, a, p.low, p.high);
        tile_product(d + 4 * c, a, q.low, q.high);
    }
}
DEV void tile_columns(float *d, struct quad a, const u32 *x, int lane) {
    UNROLL
    for (int c = 0; c < P_COLUMNS; c++) {
        const struct pair p = *(const struct pair *)(x + c * 8 + lane % 4 * 2);
        tile_product(d + 4 * c, a, p.low, p.high);
    }
}
DEV void tile_columns_end(float *d) {
    UNROLL
    for (int c = 0; c < P_COLUMNS; c++)
        tile_product_end(d + 4 * c);
}
DEV float column_sum(const float *d, int column, int i) {
    float sum = 0;
    UNROLL
    for (int c = 0; c < P_COLUMNS; c++)
        sum = c == column ? d[4 * c + 2 * i] : sum;
    return sum;
}
DEV float tile_split_sum(const float *d, int set, int i, int lane) {
    enum { OF_SET = P_COLUMNS / COLUMN_SETS(P_COLUMNS) };
    return column_sum(d, set * OF_SET + lane % 4 % OF_SET, i);
}
DEV float tile_plain_sum(const float *d, int j, int i, int lane) {
    return column_sum(d, (2 * (lane % 4) + j) % P_COLUMNS, i);
}
#else
enum { COLUMN_SUMS = 4 * COLUMN_SETS(P_COLUMNS) };
DEV void tile_columns_split(float *d, struct quad a, const u32 *x, int set_words, int lane) {
    enum { OF_SET = P_COLUMNS / COLUMN_SETS(P_COLUMNS) };
    const u32 *from = x + lane / 4 % (2 * OF_SET) * 8 + lane % 4 * 2;
    UNROLL
    for (int set = 0; set < COLUMN_SETS(P_COLUMNS); set++) {
        const struct pair p = *(const struct pair *)(from + set * set_words);
        tile_mma(d + 4 * set, a, p.low, p.high);
    }
}
DEV void tile_columns(float *d, struct quad a, const u32 *x, int lane) {
    const struct pair p = *(const struct pair *)(x + lane / 4 % P_COLUMNS * 8 + lane % 4 * 2);
    tile_mma(d, a, p.low, p.high);
}
DEV void tile_columns_end(float *d) { (void)d; }
DEV float tile_split_sum(const float *d, int set, int i, int lane) { return (void)lane, d[4 * set + 2 * i]; }
DEV float tile_plain_sum(const float *d, int j, int i, int lane) { return (void)lane, d[2 * i + j]; }
#endif

/* Adds up the two halves. */
DEV void tile_columns_fold(float *d) {
    UNROLL
    for (int i = 0; i < COLUMN_SUMS; i += 4)
        d[i] += d[i + 1], d[i + 2] += d[i + 3];
}
#endif

#endif

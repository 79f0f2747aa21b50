/* Matrices with planes (model/matrix.h): part of kernels_body.h, which includes this file.
 *
 * A row is worked on in steps of BLOCK columns. A step's codes become floats, each exactly what its
 * code is worth before the scale. They meet a vector's values, and the scale multiplies what each
 * half of a step comes to, so that groups of 16 columns need no other way than larger ones. A zero
 * point is taken off a step's sum, as block formats add their minimum. The order of a row's sums is
 * that of body_dot_blocks, and it is the same for one vector and several.
 *
 * Scales stay in memory as narrow as they are. A row's are widened into a table first, some hundred
 * at a time: that costs little, as a group has one for at least 16 columns.
 *
 * Codes with an order of their columns or with groups that are neither 16 columns nor whole steps
 * go through matrix_codes_f32, a step at a time: right, and slow. */

enum codes {
    CODES_BYTES,       /* integers of 8 bits, in groups of whole steps */
    CODES_NIBBLES,     /* integers of 4 bits, likewise */
    CODES_SMALL_BYTES, /* in groups of half a step */
    CODES_SMALL_NIBBLES,
    CODES_E4M3,
    CODES_NAMES,  /* 4 bits that name one of 16 integers of 8 bits */
    CODES_TABLE,  /* of 16 floats */
    CODES_PLAINLY /* by matrix_codes_f32, which knows the scales, too */
};

/* What is the same for all rows of a matrix. */
struct codes_format {
    enum codes codes;
    int group;        /* columns of a scale: 16, or a multiple of BLOCK */
    float unit;       /* what the steps' floats are too small by, a power of two */
    float table[16];  /* of CODES_TABLE */
    int8_t names[16]; /* of CODES_NAMES */
};

/* Where a matrix has one value for all columns, a group has this many. */
#define CODES_WHOLE_ROW (1 << 30)

/* Codes of whole bytes. */
ALWAYS_INLINE bool codes_are_bytes(const enum codes codes) {
    return codes == CODES_BYTES || codes == CODES_SMALL_BYTES || codes == CODES_E4M3;
}
/* A zero point is taken off a step's sum, by the sum of its values, or off each code. */
ALWAYS_INLINE bool codes_have_minima(const enum codes codes) {
    return codes == CODES_BYTES || codes == CODES_NIBBLES;
}
ALWAYS_INLINE bool codes_have_zeros(const enum codes codes) {
    return codes == CODES_SMALL_BYTES || codes == CODES_SMALL_NIBBLES;
}

ALWAYS_INLINE int codes_group(const struct matrix *w, const struct matrix_plane *p) {
    return !p->data || p->columns >= w->columns ? CODES_WHOLE_ROW : p->columns;
}

ALWAYS_INLINE enum codes codes_of(const struct matrix *w, int group) {
    const struct matrix_planes *p = w->planes;
    const bool small = group == BLOCK / 2;
    if (p->order || (!small && group % BLOCK != 0)) return CODES_PLAINLY;
    if (p->form == MATRIX_E4M3) return CODES_E4M3;
    if (p->form == MATRIX_E2M1) return CODES_NAMES;
    if (p->form == MATRIX_TABLE) return CODES_TABLE;
    if (p->zeros.data && codes_group(w, &p->zeros) != group) return CODES_PLAINLY;
    if (p->bits == 8) return small ? CODES_SMALL_BYTES : CODES_BYTES;
    return small ? CODES_SMALL_NIBBLES : CODES_NIBBLES;
}

BODY void codes_format(const struct matrix *w, struct codes_format *f) {
    const struct matrix_planes *p = w->planes;
    f->group = codes_group(w, &p->scales);
    if (!p->scales.data && p->form == MATRIX_INTEGERS) f->group = codes_group(w, &p->zeros);
    f->codes = codes_of(w, f->group);
    f->unit = f->codes == CODES_E4M3 ? 256 : f->codes == CODES_NAMES ? 0.5f : 1;
    for (int i = 0; i < 16 && f->codes == CODES_NAMES; i++)
        f->names[i] = (int8_t)(2 * e2m1_to_f32(i));
    if (f->codes == CODES_TABLE) memcpy(f->table, p->table, sizeof f->table);
}

/* ---- planes ---- */

/* What e4m3 is worth, divided by 256: its bits are those of a half of that size. NaN becomes
 * 480 / 256, which callers see to. */
#ifndef HAVE_V_FROM_E4M3
ALWAYS_INLINE vf v_from_e4m3(const uint8_t *p) {
    vb b;
    memcpy(&b, p, sizeof b);
    const vi wide = __builtin_convertvector(__builtin_convertvector(b, vs), vi);
    const vu bits = ((vu)wide & 0x80000000u) | ((vu)wide & 0x7f) << 20;
    return (vf)bits * 0x1p112f;
}
#endif

ALWAYS_INLINE float plane_value(enum plane_type type, const unsigned char *p) {
    float value;
    switch (type) {
    case PLANE_F32:
        memcpy(&value, p, sizeof value);
        return value;
    case PLANE_F16:
        return block_half(p);
    case PLANE_BF16:
        return bf16_to_f32((uint16_t)(p[0] | p[1] << 8));
    case PLANE_E4M3:
        return e4m3_to_f32(*p);
    case PLANE_E8M0: {
        const uint32_t bits = *p == 0 ? 0x400000u : *p == 255 ? 0x7fc00000u : (uint32_t)*p << 23;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    default:
        return (float)*p;
    }
}

ALWAYS_INLINE size_t plane_bytes(enum plane_type type) {
    return type == PLANE_F32 ? 4 : type == PLANE_F16 || type == PLANE_BF16 ? 2 : 1;
}

/* LANES values. */
ALWAYS_INLINE vf plane_values(enum plane_type type, const unsigned char *p) {
    if (type == PLANE_F32) return body_elements(DTYPE_F32, p);
    if (type == PLANE_F16) return body_elements(DTYPE_F16, p);
    if (type == PLANE_BF16) return body_elements(DTYPE_BF16, p);
    vb b;
    memcpy(&b, p, sizeof b);
    const vi wide = __builtin_convertvector(__builtin_convertvector(b, vs), vi) & 255;
    if (type == PLANE_U8) return __builtin_convertvector(wide, vf);
    if (type == PLANE_E4M3)
        return v_select((wide & 127) == 127, v_set(NAN), v_from_e4m3(p) * 256.0f);
    const vf power = v_select(wide == 0, v_set(0x1p-127f), (vf)(wide << 23));
    return v_select(wide == 255, v_set(NAN), power);
}

ALWAYS_INLINE void widen_plane_of(enum plane_type type, const unsigned char *p, int n, float factor,
                                  float *out) {
    const size_t bytes = plane_bytes(type);
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(out + i, plane_values(type, p + bytes * (size_t)i) * factor);
    for (; i < n; i++)
        out[i] = plane_value(type, p + bytes * (size_t)i) * factor;
}

/* out[i] = (value of group first + i) * factor, for row r */
BODY void widen_plane(const struct matrix_plane *p, int r, int first, int n, float factor,
                      float *out) {
    if (!p->data) {
        for (int i = 0; i < n; i++)
            out[i] = factor;
        return;
    }
    const unsigned char *from =
        p->data + (size_t)(r / p->rows) * p->row_bytes + plane_bytes(p->type) * (size_t)first;
    switch (p->type) {
    case PLANE_F32:
        widen_plane_of(PLANE_F32, from, n, factor, out);
        break;
    case PLANE_F16:
        widen_plane_of(PLANE_F16, from, n, factor, out);
        break;
    case PLANE_BF16:
        widen_plane_of(PLANE_BF16, from, n, factor, out);
        break;
    case PLANE_E4M3:
        widen_plane_of(PLANE_E4M3, from, n, factor, out);
        break;
    case PLANE_E8M0:
        widen_plane_of(PLANE_E8M0, from, n, factor, out);
        break;
    case PLANE_U8:
        widen_plane_of(PLANE_U8, from, n, factor, out);
        break;
    }
}

/* ---- a piece of a row ---- */

enum {
    CODES_PIECE = 4096, /* columns whose scales are widened at a time */
    CODES_GROUPS = CODES_PIECE / (BLOCK / 2) + 1 + LANES /* and what whole vectors write */
};

/* Columns [first, last) of row r, first a multiple of BLOCK. Its tables have an entry for each
 * step, or for each half of one where groups are that small. */
struct codes_piece {
    const struct matrix *w;
    const unsigned char *codes; /* of column 0 */
    int r, first, last;
    unsigned char rest[BLOCK]; /* codes of a step that the piece ends within, zeros behind them */
    float scales[CODES_GROUPS];
    float zeros[CODES_GROUPS];  /* zero points */
    float minima[CODES_GROUPS]; /* - zero point * scale */
};

/* table[step] = groups[the group that the step belongs to]; `group` is that of the first. Vectors
 * are stored whole: what they write too much, the next group's write again. */
ALWAYS_INLINE void spread_groups(const struct codes_format *f, const struct codes_piece *p,
                                 int group, const float *groups, float *table) {
    const int steps = (p->last - p->first + BLOCK - 1) / BLOCK;
    for (int step = 0, g = 0; step < steps; g++) {
        const bool last = f->group >= p->last - group * f->group - g * f->group;
        const int end = last ? steps : ((group + g + 1) * f->group - p->first) / BLOCK;
        for (int i = step; i < end; i += LANES)
            v_store(table + i, v_set(groups[g]));
        step = end;
    }
}

BODY void take_piece(const struct matrix *w, const struct codes_format *f, int r, int first,
                     int last, struct codes_piece *p) {
    const struct matrix_planes *planes = w->planes;
    const size_t bits = (size_t)planes->bits, end = (size_t)last / BLOCK * BLOCK;
    p->w = w;
    p->codes = w->data + (size_t)r * w->row_bytes;
    p->r = r;
    p->first = first;
    p->last = last;
    if (end < (size_t)last) {
        memset(p->rest, 0, sizeof p->rest);
        memcpy(p->rest, p->codes + end * bits / 8, (((size_t)last - end) * bits + 7) / 8);
    }
    if (f->codes == CODES_PLAINLY) return;
    const int group = first / f->group, n = (last - 1) / f->group - group + 1;
    const bool spread = f->group > BLOCK, zeros = planes->form == MATRIX_INTEGERS;
    float groups[2][CODES_PIECE / BLOCK + 1 + LANES];
    float *s = spread ? groups[0] : p->scales, *z = spread ? groups[1] : p->zeros;
    widen_plane(&planes->scales, r, group, n, planes->factor * f->unit, s);
    s[n] = 0; /* of a half step behind the row's end */
    if (spread) spread_groups(f, p, group, s, p->scales);
    if (!zeros) return;
    if (planes->zeros.data) {
        widen_plane(&planes->zeros, r, group, n, 1, z);
        z[n] = 0;
        if (spread) spread_groups(f, p, group, z, p->zeros);
    }
    const int entries = (last - first - 1) / (f->group < BLOCK ? f->group : BLOCK) + 1;
    for (int i = 0; i <= entries; i += LANES) {
        if (!planes->zeros.data) v_store(p->zeros + i, v_set((float)planes->zero));
        v_store(p->minima + i, -(v_load(p->zeros + i) * v_load(p->scales + i)));
    }
}

/* The way of a loop through the steps of a piece. */
struct codes_at {
    const unsigned char *codes; /* this step's */
    int k, stop;                /* its first column, and where its codes' memory ends */
    size_t step;                /* since the piece's first */
};

ALWAYS_INLINE size_t codes_offset(const enum codes codes, int k) {
    return codes_are_bytes(codes) ? (size_t)k : (size_t)k / 2;
}

ALWAYS_INLINE struct codes_at codes_begin(const enum codes codes, const struct codes_piece *p) {
    return (struct codes_at){ p->codes + codes_offset(codes, p->first), p->first,
                              p->last / BLOCK * BLOCK, 0 };
}

/* Whether a loop up to at->stop follows: first over whole steps, then over the rest. */
ALWAYS_INLINE bool codes_go_on(const struct codes_piece *p, struct codes_at *at) {
    if (at->k >= p->last) return false;
    if (at->k == at->stop) {
        at->codes = p->rest;
        at->stop = p->last;
    }
    return true;
}

ALWAYS_INLINE void codes_next(const enum codes codes, struct codes_at *at) {
    at->codes += codes_offset(codes, BLOCK);
    at->k += BLOCK;
    at->step++;
}

/* ---- a step ---- */

#ifndef HAVE_V_FROM_U8
ALWAYS_INLINE vf v_from_u8(const uint8_t *p) {
    vb b;
    memcpy(&b, p, sizeof b);
    const vi wide = __builtin_convertvector(__builtin_convertvector(b, vs), vi) & 255;
    return __builtin_convertvector(wide, vf);
}
#endif
#ifndef HAVE_V_FROM_U4
/* LANES codes of 4 bits, the first in the lowest bits. */
_Static_assert(LANES == 4, "the place of a code goes by a factor of a half's size");
ALWAYS_INLINE vf v_from_u4(const uint8_t *p) {
    const uint32_t all = p[0] | (uint32_t)p[1] << 8;
    const vi apart = (vi)(all - (vu){ 0 }) & (vi){ 0xf, 0xf0, 0xf00, 0xf000 };
    return __builtin_convertvector(apart, vf) * (vf){ 1, 0x1p-4f, 0x1p-8f, 0x1p-12f };
}
#endif
#ifndef HAVE_V_LOOKUP_U4
/* table [16] at LANES codes of 4 bits */
ALWAYS_INLINE vf v_lookup_u4(const float *table, const uint8_t *p) {
    float lane[LANES];
    for (int i = 0; i < LANES; i++)
        lane[i] = table[p[i / 2] >> i % 2 * 4 & 15];
    return v_load(lane);
}
#endif

#ifndef HAVE_STEP_LOOKUP
/* names [16] at the BLOCK codes of a step */
ALWAYS_INLINE void step_lookup(const int8_t *names, const uint8_t *p, int8_t *q) {
    for (int i = 0; i < BLOCK; i++)
        q[i] = names[p[i / 2] >> i % 2 * 4 & 15];
}
#endif

/* What a step's codes become before vectors are filled from it. */
union codes_step {
    _Alignas(64) float plain[BLOCK]; /* of CODES_PLAINLY */
    int8_t q[BLOCK];                 /* of CODES_NAMES */
};

/* Of CODES_PLAINLY: a step's weights, zeros behind the piece's end. */
BODY void codes_plainly(const struct codes_piece *p, int k, float *values) {
    const int n = p->last - k < BLOCK ? p->last - k : BLOCK;
    memset(values + n, 0, (size_t)(BLOCK - n) * sizeof *values);
    matrix_codes_f32(p->w, p->r, k, n, values);
}

ALWAYS_INLINE void codes_step(const enum codes codes, const struct codes_format *f,
                              const struct codes_piece *p, const struct codes_at *at,
                              union codes_step *s) {
    if (codes == CODES_PLAINLY) codes_plainly(p, at->k, s->plain);
    if (codes == CODES_NAMES) step_lookup(f->names, at->codes, s->q);
}

/* Of the tables of a piece: the entry of a half of the step. */
ALWAYS_INLINE size_t codes_entry(const enum codes codes, const struct codes_format *f,
                                 const struct codes_at *at, int half) {
    if (codes_have_minima(codes)) return at->step;
    if (codes_have_zeros(codes) || f->group < BLOCK) return 2 * at->step + (size_t)half;
    return at->step;
}

/* LANES of a step's floats, from i on. */
ALWAYS_INLINE vf codes_values(const enum codes codes, const struct codes_format *f,
                              const struct codes_piece *p, const struct codes_at *at,
                              const union codes_step *s, int i) {
    const unsigned char *c = at->codes + codes_offset(codes, i);
    if (codes == CODES_PLAINLY) return v_load(s->plain + i);
    if (codes == CODES_NAMES) return v_from_i8(s->q + i);
    if (codes == CODES_E4M3) return v_from_e4m3(c);
    if (codes == CODES_TABLE) return v_lookup_u4(f->table, c);
    const vf q = codes_are_bytes(codes) ? v_from_u8(c) : v_from_u4(c);
    if (!codes_have_zeros(codes)) return q;
    return q - v_set(p->zeros[codes_entry(codes, f, at, i >= BLOCK / 2)]);
}

ALWAYS_INLINE float codes_scale(const enum codes codes, const struct codes_format *f,
                                const struct codes_piece *p, const struct codes_at *at, int half) {
    return codes == CODES_PLAINLY ? 1 : p->scales[codes_entry(codes, f, at, half)];
}

typedef uint8_t vstep __attribute__((vector_size(BLOCK)));

/* Marks the codes of e4m3 that are NaN. */
ALWAYS_INLINE void codes_see(const enum codes codes, const struct codes_at *at, vstep *nan) {
    vstep v;
    if (codes != CODES_E4M3) return;
    memcpy(&v, at->codes, sizeof v);
    *nan |= (vstep)((v & 127) == 127);
}

ALWAYS_INLINE bool codes_any(const vstep *marks) {
    uint64_t words[4];
    memcpy(words, marks, sizeof words);
    return (words[0] | words[1] | words[2] | words[3]) != 0;
}

ALWAYS_INLINE void codes_prefetch(const struct codes_at *at) {
    __builtin_prefetch(at->codes + T_PREFETCH);
}

/* ---- one vector ---- */

ALWAYS_INLINE void body_codes_rows(const enum codes codes, const struct codes_format *f,
                                   const struct matrix *w, const struct cpu_vector *x, int first,
                                   int last, float *y) {
    struct codes_piece p;
    union codes_step s;
    for (int r = first; r < last; r++) {
        vf sum[2] = { 0 };
        vstep nan = { 0 };
        float minima = 0;
        for (int from = 0; from < w->columns; from += CODES_PIECE) {
            take_piece(w, f, r, from,
                       w->columns - from < CODES_PIECE ? w->columns : from + CODES_PIECE, &p);
            struct codes_at at = codes_begin(codes, &p);
            while (codes_go_on(&p, &at))
                for (; at.k < at.stop; codes_next(codes, &at)) {
                    const float *values = x->values + at.k;
                    codes_prefetch(&at);
                    codes_step(codes, f, &p, &at, &s);
                    codes_see(codes, &at, &nan);
#pragma GCC unroll 2
                    for (int half = 0; half < 2; half++) {
                        vf part = { 0 };
#pragma GCC unroll 4
                        for (int i = 16 * half; i < 16 * half + 16; i += LANES)
                            part = v_fma(codes_values(codes, f, &p, &at, &s, i), v_load(values + i),
                                         part);
                        sum[half] =
                            v_fma(part, v_set(codes_scale(codes, f, &p, &at, half)), sum[half]);
                    }
                    if (codes_have_minima(codes))
                        minima += p.minima[at.step] * x->sums[at.k / BLOCK];
                }
        }
        y[r] = codes_any(&nan) ? NAN : v_sum(sum[0] + sum[1]) + minima;
    }
}

/* `call` with each kind of codes as a constant. */
#define CODES_SWITCH(kind, call)                                                                   \
    switch (kind) {                                                                                \
    case CODES_BYTES:                                                                              \
        call(CODES_BYTES);                                                                         \
        break;                                                                                     \
    case CODES_NIBBLES:                                                                            \
        call(CODES_NIBBLES);                                                                       \
        break;                                                                                     \
    case CODES_SMALL_BYTES:                                                                        \
        call(CODES_SMALL_BYTES);                                                                   \
        break;                                                                                     \
    case CODES_SMALL_NIBBLES:                                                                      \
        call(CODES_SMALL_NIBBLES);                                                                 \
        break;                                                                                     \
    case CODES_E4M3:                                                                               \
        call(CODES_E4M3);                                                                          \
        break;                                                                                     \
    case CODES_NAMES:                                                                              \
        call(CODES_NAMES);                                                                         \
        break;                                                                                     \
    case CODES_TABLE:                                                                              \
        call(CODES_TABLE);                                                                         \
        break;                                                                                     \
    case CODES_PLAINLY:                                                                            \
        call(CODES_PLAINLY);                                                                       \
        break;                                                                                     \
    }

BODY void body_planes_rows(const struct matrix *w, const struct cpu_vector *x, int first, int last,
                           float *y) {
    struct codes_format f;
    codes_format(w, &f);
#define CALL(codes) body_codes_rows(codes, &f, w, x, first, last, y)
    CODES_SWITCH(f.codes, CALL)
#undef CALL
}

/* ---- several vectors ---- */

/* What a few rows have added up so far. */
struct codes_sums {
    vf halves[COLUMNS_ROWS][2][MOST_COLUMNS];
    float minima[COLUMNS_ROWS][COLUMN_SUMS];
    vstep nan[COLUMNS_ROWS];
};

/* Halves half to half + halves - 1 of a piece's steps, and with the last of them the minima; see
 * body_columns_halves. */
ALWAYS_INLINE void codes_columns_halves(const enum codes codes, const struct codes_format *f,
                                        const struct codes_piece *p, const struct cpu_columns *x,
                                        const int slots, const int half, const int halves,
                                        vf (*to)[MOST_COLUMNS], float *minima, vstep *nan) {
    union codes_step s;
    struct codes_at at = codes_begin(codes, p);
    const bool with_minima = codes_have_minima(codes) && half + halves == 2;
    vf sum[2][MOST_COLUMNS], low[MINIMA_VECTORS];
#pragma GCC unroll 2
    for (int h = 0; h < halves; h++)
#pragma GCC unroll 8
        for (int c = 0; c < slots; c++)
            sum[h][c] = p->first > 0 ? to[half + h][c] : v_set(0);
#pragma GCC unroll 2
    for (int v = 0; v < MINIMA_VECTORS; v++)
        low[v] = p->first > 0 ? v_load(minima + v * LANES) : v_set(0);
    while (codes_go_on(p, &at))
        for (; at.k < at.stop; codes_next(codes, &at)) {
            const float *values = x->values + (size_t)at.k * (size_t)slots;
            if (half == 0) codes_prefetch(&at);
            codes_step(codes, f, p, &at, &s);
            if (half == 0) codes_see(codes, &at, nan);
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) {
                const vf scale = v_set(codes_scale(codes, f, p, &at, half + h));
                vf q[16 / LANES];
#pragma GCC unroll 4
                for (int i = 0; i < 16 / LANES; i++)
                    q[i] = codes_values(codes, f, p, &at, &s, 16 * (half + h) + i * LANES);
#pragma GCC unroll 8
                for (int c = 0; c < slots; c++) {
                    const float *from = values + c * BLOCK + 16 * (half + h);
                    vf part = { 0 };
#pragma GCC unroll 4
                    for (int i = 0; i < 16 / LANES; i++)
                        part = v_fma(q[i], v_load(from + i * LANES), part);
                    sum[h][c] = v_fma(part, scale, sum[h][c]);
                }
            }
            if (with_minima)
#pragma GCC unroll 2
                for (int v = 0; v < MINIMA_VECTORS; v++)
                    low[v] += v_set(p->minima[at.step]) *
                              v_load(x->sums + (size_t)(at.k / BLOCK) * COLUMN_SUMS + v * LANES);
        }
#pragma GCC unroll 2
    for (int h = 0; h < halves; h++)
#pragma GCC unroll 8
        for (int c = 0; c < slots; c++)
            to[half + h][c] = sum[h][c];
    if (half + halves == 2)
#pragma GCC unroll 2
        for (int v = 0; v < MINIMA_VECTORS; v++)
            v_store(minima + v * LANES, low[v]);
}

ALWAYS_INLINE void body_codes_columns(const enum codes codes, const struct codes_format *f,
                                      const struct matrix *w, const struct cpu_columns *x,
                                      int first, int last, float *const *y, const int slots) {
    const int n = (w->columns + BLOCK - 1) / BLOCK;
    const int most = COLUMNS_FLOATS / (slots * BLOCK), piece = column_piece(n, most) * BLOCK;
    const int halves = slots <= 4 && LANES >= 8 ? 2 : 1;
    _Static_assert(COLUMNS_FLOATS / 2 <= CODES_PIECE, "a piece's scales have room");
    for (int r = first; r < last; r += COLUMNS_ROWS) {
        const int rows = last - r < COLUMNS_ROWS ? last - r : COLUMNS_ROWS;
        struct codes_sums s;
        memset(s.nan, 0, sizeof s.nan);
        for (int k = 0; k < w->columns; k += piece)
            for (int i = 0; i < rows; i++) {
                struct codes_piece p;
                take_piece(w, f, r + i, k, w->columns - k < piece ? w->columns : k + piece, &p);
#pragma GCC unroll 2
                for (int half = 0; half < 2; half += halves)
                    codes_columns_halves(codes, f, &p, x, slots, half, halves, s.halves[i],
                                         s.minima[i], &s.nan[i]);
            }
        for (int i = 0; i < rows; i++) {
            vf both[MOST_COLUMNS] = { 0 };
            float total[MOST_COLUMNS];
#pragma GCC unroll 8
            for (int c = 0; c < slots; c++)
                both[c] = s.halves[i][0][c] + s.halves[i][1][c];
            column_sums(both, slots, total);
            for (int c = 0; c < x->n; c++)
                y[c][r + i] = codes_any(&s.nan[i]) ? NAN : total[c] + s.minima[i][c];
        }
    }
}

ALWAYS_INLINE void body_columns_of_codes(const struct matrix *w, const struct cpu_columns *x,
                                         int first, int last, float *const *y, const int slots) {
    struct codes_format f;
    codes_format(w, &f);
#define CALL(codes) body_codes_columns(codes, &f, w, x, first, last, y, slots)
    CODES_SWITCH(f.codes, CALL)
#undef CALL
}

BODY void body_planes_columns(const struct matrix *w, const struct cpu_columns *x, int first,
                              int last, float *const *y) {
#define CALL(slots) body_columns_of_codes(w, x, first, last, y, slots)
    SLOTS_SWITCH(x->slots, CALL);
#undef CALL
}

/* ---- what weights are worth ---- */

/* Integers lose their zero point here before the scale meets them, as in the reference. */
ALWAYS_INLINE vf codes_worth(const enum codes codes, const struct codes_format *f,
                             const struct codes_piece *p, const struct codes_at *at,
                             const union codes_step *s, int i) {
    vf q = codes_values(codes, f, p, at, s, i);
    if (codes_have_minima(codes)) q -= v_set(p->zeros[at->step]);
    return q * v_set(codes_scale(codes, f, p, at, i >= BLOCK / 2));
}

ALWAYS_INLINE void body_codes_widen(const enum codes codes, const struct codes_format *f,
                                    const struct matrix *w, int r, int first, int last,
                                    float *out) {
    struct codes_piece p;
    union codes_step s;
    float rest[BLOCK];
    take_piece(w, f, r, first, last, &p);
    struct codes_at at = codes_begin(codes, &p);
    while (codes_go_on(&p, &at))
        for (; at.k < at.stop; codes_next(codes, &at)) {
            float *to = at.k + BLOCK <= last ? out + (at.k - first) : rest;
            codes_step(codes, f, &p, &at, &s);
#pragma GCC unroll 8
            for (int i = 0; i < BLOCK; i += LANES)
                v_store(to + i, codes_worth(codes, f, &p, &at, &s, i));
            vstep nan = { 0 };
            codes_see(codes, &at, &nan);
            if (codes_any(&nan))
                for (int i = 0; i < BLOCK; i++)
                    if ((at.codes[i] & 127) == 127) to[i] = NAN;
            if (to == rest)
                memcpy(out + (at.k - first), rest, (size_t)(last - at.k) * sizeof *rest);
        }
}

BODY void body_planes_widen(const struct matrix *w, int r, int first, int n, float *out) {
    struct codes_format f;
    codes_format(w, &f);
    for (int from = first; from < first + n; from += CODES_PIECE) {
        const int last = first + n - from < CODES_PIECE ? first + n : from + CODES_PIECE;
#define CALL(codes) body_codes_widen(codes, &f, w, r, from, last, out + (from - first))
        CODES_SWITCH(f.codes, CALL)
#undef CALL
    }
}

/* ---- codes of a KV cache ---- */

/* The upper half of a float32 that has no more bits. */
ALWAYS_INLINE void store_upper(vf x, uint16_t *out) {
    const vh h = __builtin_convertvector((vu)x >> 16, vh);
    memcpy(out, &h, sizeof h);
}

BODY void body_widen_kv(enum kv_form form, const uint8_t *codes, size_t n, uint16_t *out) {
    if (form == KV_INT8)
        for (size_t i = 0; i < n; i += LANES)
            store_upper(v_from_i8((const int8_t *)codes + i), out + i);
    else
        for (size_t i = 0; i < n; i += LANES)
            store_upper(v_from_e4m3(codes + i) * 256.0f, out + i);
}

#define BODY_PLANES                                                                                \
    .planes_rows = body_planes_rows, .planes_columns = body_planes_columns,                        \
    .planes_widen = body_planes_widen, .widen_kv = body_widen_kv

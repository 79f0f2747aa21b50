/* Which weights have which format: those that are narrow the one that holds them as they are
 * stored, the others that of the table. */
#include "model/matrix_codes.h"
#include "plan/plan_layout.h"

static const enum tile_format formats[PLAN_FORMAT_AUDIO + 1] = {
    [TAPE_QKV] = TILE_BF16,          [TAPE_OUT] = TILE_BF16,  [TAPE_GATE_UP] = TILE_BF16,
    [TAPE_DOWN] = TILE_BF16,         [TAPE_HEAD] = TILE_BF16, [TAPE_MIX] = TILE_BF16,
    [PLAN_FORMAT_AUDIO] = TILE_BF16,
};

/* ---- of a plan ------------------------------------------------------------------------------- */

int plan_format(int phase, int stored, int slice) {
    if (!TILE_NARROW(stored)) return (int)formats[phase];
    /* the scales of a tile's columns must be of whole groups: lower until slices begin with one */
    int group = TILE_GROUP(stored), scale = TILE_SCALE(stored);
    if (group == TILE_GROUP_ROW) return stored;
    /* a tile has one unit of steps, so slices must have whole tiles */
    if (scale == TILE_SCALE_STEPS && slice % (TILE_K * TILE_PARTS(stored))) scale = TILE_SCALE_F32;
    for (int columns = TILE_K * TILE_RUN(stored); slice % columns;) {
        while (group > 0 && TILE_K << group >= columns)
            group--;
        if (columns == TILE_K) return (int)formats[phase];
        columns = TILE_K << group;
    }
    return TILE_FORMAT(TILE_CODE(stored), group, scale, TILE_OFFSETS(stored));
}

bool plan_narrow(const struct tape_shape *t) {
    for (int i = 0; i < TAPE_N_PHASES; i++)
        if (TILE_NARROW(t->segment[i].format)) return true;
    return false;
}

int plan_common(int a, int b) {
    while (b) {
        const int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

unsigned plan_widest_tile(const struct tape_shape *t) {
    unsigned bytes = 0;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        if (tile_bytes(t->segment[i].format) > bytes) bytes = tile_bytes(t->segment[i].format);
    return bytes;
}

unsigned long long plan_whole_tiles(const struct tape_shape *t, unsigned long long bytes) {
    enum { LINE = 128 };
    static const int phases[] = { TAPE_OUT, TAPE_DOWN };
    unsigned long long grain = LINE;
    for (int i = 0; i < 2; i++) {
        const unsigned tile = tile_bytes(t->segment[phases[i]].format);
        unsigned long long common = grain;
        while (common % tile)
            common += grain;
        grain = common;
    }
    return (bytes + grain - 1) / grain * grain;
}

/* ---- of weights ------------------------------------------------------------------------------ */

/* Scales of bitsandbytes' floats are multiplied by the unit of the integers that stand for these.
 */
static int scale_of(enum plane_type type, int code) {
    if (TILE_DIGITS(code) > 1) return TILE_SCALE_F32;
    return type == PLANE_F16    ? TILE_SCALE_F16
           : type == PLANE_BF16 ? TILE_SCALE_BF16
                                : TILE_SCALE_F32;
}

/* The format that holds a matrix as it is stored. */
static int format_of(const struct matrix *m) {
    static const int codes[] = {
        [CODE_INT8] = TILE_INT8, [CODE_INT4] = TILE_INT4, [CODE_UINT4] = TILE_UINT4,
        [CODE_IQ4] = TILE_IQ4,   [CODE_NF4] = TILE_NF4,   [CODE_FP4] = TILE_FP4,
        [CODE_E4M3] = TILE_E4M3, [CODE_E2M1] = TILE_E2M1,
    };
    static const int offsets[] = { [OFFSETS_NONE] = TILE_NO_OFFSETS,
                                   [OFFSETS_MINIMA] = TILE_MINIMA,
                                   [OFFSETS_ZEROS] = TILE_ZEROS };
    struct matrix_codes c;
    int group = TILE_GROUP_ROW;
    if (!matrix_codes(m, &c)) return TILE_BF16;
    if (c.group)
        for (group = 3; c.group % (TILE_K << group);)
            group--;
    return TILE_FORMAT(codes[c.type], group,
                       c.unit ? TILE_SCALE_STEPS : scale_of(c.scale, codes[c.type]),
                       offsets[c.offsets]);
}

/* Whether codes are integers that 8 bits hold, or name them. */
static bool is_integer(int format) { return TILE_INTEGERS(format) && TILE_DIGITS(format) == 1; }

/* The format that holds the weights of both; TILE_BF16: none does. */
static int format_join(int a, int b) {
    if (a == b || !TILE_NARROW(a) || !TILE_NARROW(b)) return a == b ? a : TILE_BF16;
    const int group = TILE_GROUP(a) < TILE_GROUP(b) ? TILE_GROUP(a) : TILE_GROUP(b);
    int code = TILE_CODE(a), scale = TILE_SCALE(a), offsets = TILE_OFFSETS(a);
    if (code != TILE_CODE(b)) {
        if (!is_integer(a) || !is_integer(b)) return TILE_BF16;
        code = TILE_INT8;
    }
    if (scale != TILE_SCALE(b)) scale = TILE_SCALE_F32;
    if (!offsets) offsets = TILE_OFFSETS(b);
    /* a minimum that is made of a zero point and a scale needs float */
    if (TILE_OFFSETS(a) && TILE_OFFSETS(b) && TILE_OFFSETS(a) != TILE_OFFSETS(b))
        offsets = TILE_MINIMA, scale = TILE_SCALE_F32;
    return TILE_FORMAT(code, group, scale, offsets);
}

struct joined {
    int *formats; /* [TAPE_N_PHASES] */
    bool begun[TAPE_N_PHASES];
};

static void join(struct joined *j, int phase, const struct matrix *m) {
    const int format = format_of(m);
    j->formats[phase] = j->begun[phase] ? format_join(j->formats[phase], format) : format;
    j->begun[phase] = true;
}

void plan_stored(const struct weights *w, int stored[TAPE_N_PHASES]) {
    struct joined j = { .formats = stored };
    for (int i = 0; i < TAPE_N_PHASES; i++)
        stored[i] = TILE_BF16;
    for (int i = 0; i < w->n_layers; i++) {
        const struct layer_weights *l = &w->layers[i];
        if (l->kind == LAYER_DELTA) {
            join(&j, TAPE_MIX, &l->delta.qkv), join(&j, TAPE_MIX, &l->delta.z);
        } else {
            join(&j, TAPE_QKV, &l->q), join(&j, TAPE_QKV, &l->k), join(&j, TAPE_QKV, &l->v);
        }
        join(&j, TAPE_OUT, &l->o);
        join(&j, TAPE_GATE_UP, &l->gate), join(&j, TAPE_GATE_UP, &l->up);
        join(&j, TAPE_DOWN, &l->down);
    }
    join(&j, TAPE_HEAD, &w->head);
}

/* SmolLM2-135M in Q4_1 makes as many tokens a second with its weights in bf16, and reads prompts
 * twice as fast (H100); Qwen3-0.6B in int4 makes 1.47 times as many as in bf16. Between the two
 * nothing was measured. */
bool plan_keeps_narrow(enum narrow_wish wish, const struct weights *weights) {
    enum { LARGE = 256 << 20 }; /* weights: 512 MB in bf16 */
    return wish == NARROW_ALWAYS || (wish == NARROW_LARGE && weights->n_parameters >= LARGE);
}

/* Which weights have which format: the one table. */
#include "plan/plan_layout.h"

static const enum tile_format formats[PLAN_FORMAT_AUDIO + 1] = {
    [TAPE_QKV] = TILE_BF16,          [TAPE_OUT] = TILE_BF16,  [TAPE_GATE_UP] = TILE_BF16,
    [TAPE_DOWN] = TILE_BF16,         [TAPE_HEAD] = TILE_BF16, [TAPE_MIX] = TILE_BF16,
    [PLAN_FORMAT_AUDIO] = TILE_BF16,
};

enum tile_format plan_format(int phase) { return formats[phase]; }

unsigned plan_widest_tile(const struct tape_shape *t) {
    unsigned bytes = 0;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        if (tile_bytes(t->segment[i].format) > bytes) bytes = tile_bytes(t->segment[i].format);
    return bytes;
}

unsigned long long plan_whole_tiles(const struct tape_shape *t, unsigned long long bytes) {
    unsigned long long grain = 1;
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const unsigned tile = tile_bytes(t->segment[i].format);
        unsigned long long common = grain;
        while (common % tile)
            common += grain;
        grain = common;
    }
    return (bytes + grain - 1) / grain * grain;
}

/* Rounded operands (tile_codes.cuh) of tiles in memory. Block i is one warp, which makes those of
 * tile i and stores them one behind the other, each as bf16_tile_at says. With `alone` it reads the
 * tile for each operand anew, with no other scales than it needs, as thin items of prompts do. The
 * formats of phases say only how many words of scales a lane can hold; the format at hand is an
 * argument. */
#include "tile_codes.cuh"

KERNEL(32) operands_rounded(const u8 *tiles, struct quad *operands, int format, int alone) {
    const int lane = (int)thread_index(), parts = TILE_PARTS(format), tile = (int)block_index();
    const u8 *at = tiles + (size_t)tile * tile_bytes(format) + tile_lane(format, lane);
    struct held t;
    held_load(&t, at, 1, lane, format);
    for (int part = 0; part < parts; part++) {
        struct quad a = tile_rounded(format, &t, part);
        if (alone) {
            const int run = part / TILE_RUN(format);
            struct held own;
            held_load_alone(&own, at, 1, lane, run, format);
            const struct factors f = held_worth_alone(&own, format, run);
            a = part_rounded(format, own.codes, &f, part);
        }
        u32 *to = &operands[(tile * parts + part) * LANES + lane].x;
        plain_store32(to, a.x), plain_store32(to + 1, a.y), plain_store32(to + 2, a.z),
            plain_store32(to + 3, a.w);
    }
}

/* The phases of a prompt's attention by themselves: the last of args.layers layers, whose qkv the host
 * has made. */
#include "prefill_attention.cuh"

DEV void consume(struct reader *r, int layer) {
    rope_phase(r, layer);
    phase_end(r);
    phase_wait(r);
    attention_phase(r, layer);
    phase_end(r);
}

KERNEL(READ_THREADS) prefill_attention(const PARAMETER struct prefill_args args) {
    u8 *base = shared_base();
    struct reader r;
    base += (1024 - smem_of(base) % 1024) % 1024;
    r.a = &args, r.w.a = &args.decode;
    r.stages = base, r.s = (struct prefill_shared *)(base + P_PREFILL_STAGES * STAGE_BYTES);
    r.w.warp = (int)shuffle(thread_index() / LANES, 0), r.w.lane = (int)(thread_index() % LANES);
    r.w.block = (int)block_index();
    r.w.token = 0, r.w.layer = args.layers - 1, r.w.zero = args.decode.patience >> 31, r.w.dead = 0;
    r.stage = 0, r.parity = 0, r.first_lap = 1, r.phases = 0;
    if (thread_index() == 0) {
        for (int i = 0; i < P_PREFILL_STAGES; i++) {
            mbar_init(&r.s->full[i], FILL_LANES * STAGE_COPIES);
            mbar_init(&r.s->empty[i], READ_WARPS);
        }
        mbar_init_done();
    }
    block_sync();
    if (r.w.warp < READ_WARPS) {
        consume(&r, args.layers - 1);
    } else if (r.w.warp == READ_WARPS) {
        phase_follow(&r);
        attention_produce(&r, args.layers - 1);
    }
}

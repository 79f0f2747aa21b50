/* One of prefill's launches by itself: the embeddings, or the product of phase decode.head_from at
 * layer decode.hidden_from as its cut wants it. */
#include "prefill.cu"

KERNEL(READ_THREADS) prefill_one(const PARAMETER struct prefill_args args) {
    const int phase = args.decode.head_from, layer = args.decode.hidden_from;
    if (phase == PREFILL_PRODUCTS) {
        prefill_embed(args, 0, 0);
        return;
    }
    const struct prefill_cut cut = args.cut[phase];
    if (cut.split_k == 8)
        prefill_thin(args, phase, layer);
    else if (cut.split_k)
        prefill_halves(args, phase, layer);
    else if (cut.blocks == 1)
        prefill_wide1(args, phase, layer);
    else
        prefill_wide2(args, phase, layer);
}

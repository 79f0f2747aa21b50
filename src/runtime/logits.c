#include "runtime/logits.h"

#include "kernels/sampling.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

/* Lanes of fixed number, so that the compiler turns the inner loops into vectors. A comparison with
 * NaN is false: NaN never replaces a number. */
enum { LANES = 16 };

static float block_largest(const float *logits) {
    float lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = -INFINITY;
    for (int i = 0; i < LOGITS_BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = logits[i + j] > lane[j] ? logits[i + j] : lane[j];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
    return lane[0];
}

static float tail_largest(const float *logits, int n) {
    float largest = -INFINITY;
    for (int i = 0; i < n; i++)
        if (logits[i] > largest) largest = logits[i];
    return largest;
}

void logits_block_max(const float *logits, int n, float *block_max) {
    int whole = n / LOGITS_BLOCK;
    for (int b = 0; b < whole; b++)
        block_max[b] = block_largest(logits + (ptrdiff_t)b * LOGITS_BLOCK);
    if (n % LOGITS_BLOCK)
        block_max[whole] = tail_largest(logits + (ptrdiff_t)whole * LOGITS_BLOCK, n % LOGITS_BLOCK);
}

int32_t logits_argmax(const float *logits, int n, const float *block_max) {
    int best = -1;
    float largest = -INFINITY;
    for (int b = 0; b < logits_blocks(n); b++) {
        if (!(block_max[b] > largest)) continue;
        largest = block_max[b];
        best = b;
    }
    if (best < 0) return -1;
    int id = best * LOGITS_BLOCK;
    while (!(logits[id] == largest))
        id++;
    return id;
}

int logits_collect(const float *logits, int n, const float *block_max, float least, int32_t *ids) {
    int n_ids = 0;
    for (int b = 0; b < logits_blocks(n); b++) {
        if (!(block_max[b] >= least)) continue;
        int first = b * LOGITS_BLOCK;
        int end = n - first < LOGITS_BLOCK ? n : first + LOGITS_BLOCK;
        for (int id = first; id < end; id++)
            if (logits[id] >= least && logits[id] > -INFINITY) ids[n_ids++] = id;
    }
    return n_ids;
}

/* Radix selection from the top byte down: linear whatever the numbers are. */
float logits_kth_largest(const float *values, int n, int k) {
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int count[256] = { 0 };
        for (int i = 0; i < n; i++) {
            uint32_t key = sampling_order(values[i]);
            if ((key & mask) == prefix) count[key >> shift & 255]++;
        }
        uint32_t digit = 255;
        while (count[digit] < k)
            k -= count[digit--];
        prefix |= digit << shift;
        mask |= (uint32_t)255 << shift;
    }
    return sampling_from_order(prefix);
}

int logits_top(const float *logits, int n, const float *block_max, int k, int32_t *ids,
               float *values) {
    /* k blocks hold a logit of at least the k-th largest block maximum each, so the k-th largest
     * logit is not below it. */
    float least = -FLT_MAX;
    if (k <= logits_blocks(n)) least = logits_kth_largest(block_max, logits_blocks(n), k);
    int n_ids = logits_collect(logits, n, block_max, least, ids);
    if (n_ids <= k) return n_ids;
    for (int i = 0; i < n_ids; i++)
        values[i] = logits[ids[i]];
    float kth = logits_kth_largest(values, n_ids, k);
    int kept = 0;
    for (int i = 0; i < n_ids; i++)
        if (values[i] >= kth) ids[kept++] = ids[i];
    return kept;
}

#include "audio/resample.h"

#include "base/memory.h"

#include <soxr.h>
#include <string.h>

enum { RATE_OUT = 16000 };

struct resample {
    soxr_t soxr;
    uint64_t rate;
    uint64_t n_in, n_out; /* samples so far */
    bool drained;         /* libsoxr has given all it has */
};

enum reel_status resample_open(struct resample **out, int rate, struct reel_error *err) {
    struct resample *r = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&r, 1, sizeof *r, "a resampler", err);
    if (status != REEL_OK) return status;
    /* One thread: libsoxr's others would be OpenMP's, and bring nothing for one channel. */
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
    soxr_error_t why = NULL;
    r->soxr = soxr_create(rate, RATE_OUT, 1, &why, NULL, &quality, &runtime);
    r->rate = (uint64_t)rate;
    if (!r->soxr || why) {
        resample_close(r);
        return err_set(err, REEL_E_MEMORY, "libsoxr: no resampler from %d Hz: %s", rate,
                       why ? why : "out of memory");
    }
    *out = r;
    return REEL_OK;
}

/* libsoxr rounds the number of samples to the nearest; the references count up and pad. */
static size_t settle_end(struct resample *r, float *out, size_t n_out, size_t given) {
    uint64_t want = (r->n_in * RATE_OUT + r->rate - 1) / r->rate;
    uint64_t left = want > r->n_out ? want - r->n_out : 0;
    if (given < n_out) r->drained = true;
    if (given > left) return (size_t)left;
    while (r->drained && given < n_out && given < left)
        out[given++] = 0;
    return given;
}

enum reel_status resample_run(struct resample *r, const float *in, size_t n_in, size_t *n_taken,
                              float *out, size_t n_out, size_t *n_given, struct reel_error *err) {
    size_t taken = 0, given = 0;
    *n_taken = *n_given = 0;
    if (in || !r->drained) {
        soxr_error_t why = soxr_process(r->soxr, in, in ? n_in : 0, &taken, out, n_out, &given);
        if (why) return err_set(err, REEL_E_MEMORY, "libsoxr: %s", why);
        if (in && n_in && !taken && !given)
            return err_set(err, REEL_E_STATE, "libsoxr: neither takes nor gives samples");
    }
    r->n_in += taken;
    if (!in) given = settle_end(r, out, n_out, given);
    r->n_out += given;
    *n_taken = taken;
    *n_given = given;
    return REEL_OK;
}

void resample_close(struct resample *r) {
    if (!r) return;
    if (r->soxr) soxr_delete(r->soxr);
    mem_free(r);
}

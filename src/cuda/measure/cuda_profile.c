/* The time stamps of a session's last decoding launch, fetched and explained, and the times of its
 * last prompt's launches. */
#include "cuda/measure/cuda_profile.h"

#include "base/memory.h"
#include "cuda/measure/cuda_prefill_timer.h"
#include "cuda/measure/profile.h"
#include "cuda/run/cuda_launch.h"

static enum reel_status check_profiled(const struct backend_state *s, struct reel_error *err) {
    if (!s->profile)
        return err_set(err, REEL_E_STATE,
                       "the model was opened without time stamps; open it with the GPU option "
                       "profile=N");
    if (s->profiled_tokens < PROFILE_LEAST_TOKENS)
        return err_set(err, REEL_E_STATE,
                       "the last launch decoded %d tokens; a profile takes at least %d",
                       s->profiled_tokens, PROFILE_LEAST_TOKENS);
    return cuda_alive(s->backend, err);
}

static enum reel_status fetch_stamps(const struct backend_state *s, uint32_t **stamps,
                                     struct reel_error *err) {
    const struct plan *plan = &s->backend->plan;
    const size_t n =
        (size_t)s->profiled_tokens * (size_t)plan->tape.n_sms * (size_t)profile_stamps(plan);
    enum reel_status status = mem_zeroed(stamps, n, sizeof **stamps, "time stamps", err);
    if (status != REEL_OK) return status;
    return cuda_download(&s->backend->gpu, *stamps, s->profile, n * sizeof **stamps, NULL, err);
}

/* Also how long the launches took that read the session's last prompt, where some did. */
static enum reel_status add_prefill(json_t *json, const struct backend_state *s,
                                    struct reel_error *err) {
    const struct cuda_prefill_timer *timer = s->prefill_timer;
    json_t *prefill = NULL;
    if (!timer || timer->times.n_runs == 0) return REEL_OK;
    enum reel_status status =
        prefill_profile_describe(&prefill, &timer->times, &s->backend->plan, err);
    if (status == REEL_OK && json_object_set_new(json, "prefill", prefill))
        status = err_memory(err, "a profile", 0);
    return status;
}

static enum reel_status write_json(char **text, const struct profile_run *run,
                                   const struct backend_state *s, struct reel_error *err) {
    struct profile profile;
    json_t *json = NULL;
    enum reel_status status = profile_make(&profile, run, err);
    if (status == REEL_OK) status = profile_describe(&json, &profile, run->plan, err);
    if (status == REEL_OK) status = add_prefill(json, s, err);
    if (status == REEL_OK) status = json_write(text, json, "a profile", err);
    json_decref(json);
    return status;
}

enum reel_status cuda_profile(const struct backend_state *s, const struct backend_profile *wanted,
                              struct reel_error *err) {
    enum { TRACE_TOKENS = 4 };
    struct buffer trace = { 0 };
    uint32_t *stamps = NULL;
    enum reel_status status = check_profiled(s, err);
    if (status == REEL_OK) status = fetch_stamps(s, &stamps, err);
    const struct profile_run run = { .plan = &s->backend->plan,
                                     .stamps = stamps,
                                     .n_tokens = s->profiled_tokens,
                                     .position = s->profiled_position };
    const int n_tokens = wanted->trace_tokens ? wanted->trace_tokens : TRACE_TOKENS;
    if (status == REEL_OK && wanted->trace)
        status = profile_trace(&trace, &run, wanted->trace_sms, n_tokens, err);
    if (status == REEL_OK) status = write_json(wanted->json, &run, s, err);
    if (status == REEL_OK && wanted->trace) *wanted->trace = buffer_detach(&trace, NULL);
    buffer_release(&trace);
    mem_free(stamps);
    return status;
}

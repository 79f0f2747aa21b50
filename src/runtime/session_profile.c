/* reel_session_profile: asks the backend, which may have nothing to say. */
#include "base/struct_size.h"
#include "reel_measure.h"
#include "runtime/session.h"

enum reel_status reel_session_profile(const struct reel_session *s,
                                      const struct reel_profile_options *given, char **json,
                                      char **trace, struct reel_error *err) {
    struct reel_profile_options options;
    err_clear(err);
    if (json) *json = NULL;
    if (trace) *trace = NULL;
    enum reel_status status = err_if_null(err, "session json", (const void *const[]){ s, json });
    if (status == REEL_OK)
        status = struct_read(&options, sizeof options, given, "reel_profile_options", err);
    if (status == REEL_OK) status = session_idle(s, err);
    if (status != REEL_OK) return status;
    if (options.trace_sms < 0 || options.trace_tokens < 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "trace_sms is %d and trace_tokens %d; neither may be negative",
                       options.trace_sms, options.trace_tokens);
    if (!s->model->ops->profile)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "only a GPU leaves time stamps; this model runs on the %s backend",
                       s->model->backend_info.name);
    const struct backend_profile profile = { .trace_sms = options.trace_sms,
                                             .trace_tokens = options.trace_tokens,
                                             .json = json,
                                             .trace = trace };
    struct turn turn = { 0 }; /* what it reads comes by the device's queue */
    status = turn_take(&turn, s->model->turns, NULL, err);
    if (status == REEL_OK) status = s->model->ops->profile(s->state, &profile, err);
    turn_give(&turn);
    return status;
}

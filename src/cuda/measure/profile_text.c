/* A profile as JSON, and its spans as a trace. */
#include "base/memory.h"
#include "cuda/measure/profile.h"

#include <math.h>

/* ---- JSON ---- */

static json_t *describe_spread(const struct profile_spread *s) {
    return json_pack("{s:f, s:f, s:f}", "min", s->min, "median", s->median, "max", s->max);
}

static json_t *describe_part(const struct profile_part *part, const char *name, double all_us) {
    const double *us = part->kind_us;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "phase", name,
                     "us", part->us, "share_percent", 100 * part->us / all_us, "wait_weights_us",
                     us[PROFILE_WEIGHTS], "wait_exchange_us", us[PROFILE_EXCHANGE],
                     "wait_across_us", us[PROFILE_ACROSS], "arithmetic_us", us[PROFILE_ARITHMETIC],
                     "streaming_us", us[PROFILE_STREAMING], "bytes", part->bytes, "gb_per_s",
                     part->us > 0 ? part->bytes * 1e-3 / part->us : 0.0, "sm_us",
                     describe_spread(&part->sm), "sm_own_us", describe_spread(&part->own));
}

/* NULL when memory runs out, which json_pack passes on. */
static json_t *describe_phases(const struct profile *p, const struct plan *plan) {
    json_t *list = json_array();
    for (int i = 0; list && i < PROFILE_N_PHASES; i++) {
        if (!profile_has(plan, (enum profile_phase)i)) continue;
        json_t *one = describe_part(&p->phase[i], profile_phase_names[i], p->total.us);
        if (one && json_array_append_new(list, one) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

enum reel_status profile_describe(json_t **out, const struct profile *p, const struct plan *plan,
                                  struct reel_error *err) {
    *out = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "gpu", plan->gpu.name, "gpus",
        plan->n_gpus, "sms", plan->tape.n_sms, "groups", plan->tape.n_groups, "tokens", p->n_tokens,
        "position", p->position, "attention_split_from", plan->split_from, "token_us",
        describe_spread(&p->token_us), "sm_clock_ghz", describe_spread(&p->ghz), "phases",
        describe_phases(p, plan), "total", describe_part(&p->total, "total", p->total.us));
    return *out ? REEL_OK : err_memory(err, "a profile", 0);
}

/* ---- trace ---- */

static const char *const kind_names[PROFILE_N_KINDS] = { "wait for weights", "wait for exchange",
                                                         "wait across GPUs", "arithmetic",
                                                         "arithmetic, streaming" };

struct tracer {
    struct buffer *text;
    const struct profile_run *run;
    struct profile_span *spans;
    uint64_t origin_ns;
};

static enum reel_status put_opening(struct tracer *t, struct reel_error *err) {
    json_t *name = json_string(t->run->plan->gpu.name);
    char *quoted = NULL;
    enum reel_status status =
        name ? json_write(&quoted, name, "a trace", err) : err_memory(err, "a trace", 0);
    if (status == REEL_OK)
        status = buffer_printf(t->text, err,
                               "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
                               "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{"
                               "\"name\":%s}}",
                               quoted);
    mem_free(quoted);
    json_decref(name);
    return status;
}

static enum reel_status put_row(struct tracer *t, int sm, struct reel_error *err) {
    return buffer_printf(t->text, err,
                         ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
                         "\"name\":\"SM %d, group %d\"}},\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,"
                         "\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
                         sm, sm, sm / t->run->plan->tape.group_sms, sm, sm);
}

/* Times are whole nanoseconds, so that what lies inside another event also does when read. */
static enum reel_status put_event(struct tracer *t, int sm, const char *name, uint64_t from,
                                  uint64_t to, struct reel_error *err) {
    from -= t->origin_ns, to -= t->origin_ns;
    return buffer_printf(t->text, err,
                         ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"name\":\"%s\",\"ts\":%llu.%03u,"
                         "\"dur\":%llu.%03u",
                         sm, name, (unsigned long long)(from / 1000), (unsigned)(from % 1000),
                         (unsigned long long)((to - from) / 1000), (unsigned)((to - from) % 1000));
}

static enum reel_status put_phase(struct tracer *t, int sm, const struct profile_span *span,
                                  uint64_t from, uint64_t to, struct reel_error *err) {
    enum reel_status status = put_event(t, sm, profile_phase_names[span->phase], from, to, err);
    if (status == REEL_OK && span->layer >= 0)
        status = buffer_printf(t->text, err, ",\"args\":{\"layer\":%d}", span->layer);
    return status == REEL_OK ? buffer_text(t->text, "}", err) : status;
}

/* Spans first .. first + n of one phase, from *at on, and the phase around them. */
static enum reel_status put_run(struct tracer *t, int sm, int first, int n, uint64_t start,
                                double *at, struct reel_error *err) {
    double end = *at; /* summed as `at` is, so that the last span ends there to the bit */
    for (int i = first; i < first + n; i++)
        end += t->spans[i].ns;
    enum reel_status status = put_phase(t, sm, &t->spans[first], start + (uint64_t)llround(*at),
                                        start + (uint64_t)llround(end), err);
    for (int i = first; i < first + n && status == REEL_OK; i++) {
        const double to = *at + t->spans[i].ns;
        status = put_event(t, sm, kind_names[t->spans[i].kind], start + (uint64_t)llround(*at),
                           start + (uint64_t)llround(to), err);
        if (status == REEL_OK) status = buffer_text(t->text, "}", err);
        *at = to;
    }
    return status;
}

static bool same_phase(const struct profile_span *a, const struct profile_span *b) {
    return a->phase == b->phase && a->layer == b->layer;
}

/* The token, in it its phases, in them their spans. */
static enum reel_status put_token(struct tracer *t, int token, int sm, struct reel_error *err) {
    const int n = profile_spans(t->run->plan);
    uint64_t start = 0;
    double at = 0, length = 0;
    enum reel_status status = profile_read(t->run, token, sm, t->spans, &start, err);
    for (int i = 0; i < n && status == REEL_OK; i++)
        length += t->spans[i].ns;
    if (status == REEL_OK)
        status = put_event(t, sm, "token", start, start + (uint64_t)llround(length), err);
    if (status == REEL_OK)
        status =
            buffer_printf(t->text, err, ",\"args\":{\"position\":%d}}", t->run->position + token);
    for (int i = 0; i < n && status == REEL_OK;) {
        int same = 1;
        while (i + same < n && same_phase(&t->spans[i], &t->spans[i + same]))
            same++;
        status = put_run(t, sm, i, same, start, &at, err);
        i += same;
    }
    return status;
}

/* The earliest beginning of the first measured token. */
static enum reel_status find_origin(struct tracer *t, struct reel_error *err) {
    t->origin_ns = UINT64_MAX;
    for (int sm = 0; sm < t->run->plan->tape.n_sms; sm++) {
        uint64_t start = 0;
        enum reel_status status = profile_read(t->run, 1, sm, t->spans, &start, err);
        if (status != REEL_OK) return status;
        if (start < t->origin_ns) t->origin_ns = start;
    }
    return REEL_OK;
}

static enum reel_status put_all(struct tracer *t, int n_sms, int n_tokens, struct reel_error *err) {
    const int all = t->run->plan->tape.n_sms;
    enum reel_status status = put_opening(t, err);
    for (int i = 0; i < n_sms && status == REEL_OK; i++) {
        const int sm = (int)((long long)i * all / n_sms);
        status = put_row(t, sm, err);
        for (int token = 1; token <= n_tokens && status == REEL_OK; token++)
            status = put_token(t, token, sm, err);
    }
    return status == REEL_OK ? buffer_text(t->text, "\n]}\n", err) : status;
}

enum reel_status profile_trace(struct buffer *text, const struct profile_run *run, int n_sms,
                               int n_tokens, struct reel_error *err) {
    struct tracer t = { .text = text, .run = run };
    const int measured = run->n_tokens - PROFILE_LEFT_OUT, all = run->plan->tape.n_sms;
    if (measured < 1) return err_set(err, REEL_E_STATE, "there are no time stamps to trace");
    if (n_sms < 1 || n_sms > all) n_sms = all;
    if (n_tokens < 1 || n_tokens > measured) n_tokens = measured;
    enum reel_status status =
        mem_zeroed(&t.spans, (size_t)profile_spans(run->plan), sizeof *t.spans, "a trace", err);
    if (status == REEL_OK) status = find_origin(&t, err);
    if (status == REEL_OK) status = put_all(&t, n_sms, n_tokens, err);
    mem_free(t.spans);
    return status;
}

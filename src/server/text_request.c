#include "server/text_request.h"

#include "base/clock.h"
#include "base/memory.h"

#include "server/api_error.h"
#include "server/server_state.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MOST_STOP_BYTES 256 /* reel_generation's limit */

/* ---- reading ---- */

static bool is_given(const json_t *json, const char *key) {
    const json_t *value = json_object_get(json, key);
    return value && !json_is_null(value);
}

static bool read_real(struct exchange *x, const json_t *json, const char *key, double least,
                      double most, float *out) {
    double value = *out;
    if (!field_real(x, json, key, least, most, &value)) return false;
    *out = (float)value;
    return true;
}

static bool read_seed(struct exchange *x, const json_t *json, struct reel_sampling *s) {
    int64_t seed = -1;
    if (!field_int(x, json, "seed", INT64_MIN / 2, INT64_MAX / 2, &seed)) return false;
    s->seed = (uint64_t)seed;
    if (seed == -1 && getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed)
        s->seed = (uint64_t)(clock_ms() * 1e3);
    return true;
}

/* The library's word for off is 0, its clients' for the likeliest token alone. */
static bool read_top_p(struct text_request *r, const json_t *json) {
    struct reel_sampling *s = &r->sampling;
    if (!read_real(r->x, json, "top_p", 0, 1, &s->top_p)) return false;
    r->temperature = (double)s->temperature;
    r->top_p = s->top_p > 0 || is_given(json, "top_p") ? (double)s->top_p : 1;
    if (r->top_p == 0) s->temperature = 0;
    return true;
}

static bool read_sampling(struct text_request *r, const json_t *json) {
    struct exchange *x = r->x;
    struct reel_sampling *s = &r->sampling;
    int64_t top_k = s->top_k;
    if (json_number_value(json_object_get(json, "top_k")) == -1) {
        top_k = 0; /* vLLM's word for off */
    } else if (!field_int(x, json, "top_k", 0, INT32_MAX, &top_k)) {
        return false;
    }
    s->top_k = (int)top_k;
    return read_real(x, json, "temperature", 0, 100, &s->temperature) && read_top_p(r, json) &&
           read_real(x, json, "min_p", 0, 1, &s->min_p) &&
           read_real(x, json, "repetition_penalty", 0.01, 100, &s->repetition_penalty) &&
           read_real(x, json, "repeat_penalty", 0.01, 100, &s->repetition_penalty) &&
           read_real(x, json, "presence_penalty", -2, 2, &s->presence_penalty) &&
           read_real(x, json, "frequency_penalty", -2, 2, &s->frequency_penalty) &&
           read_seed(x, json, s);
}

/* There is room for it. */
static void add_bias(struct text_request *r, int32_t id, float bias) {
    r->bias[r->sampling.n_bias++] = (struct reel_logit_bias){ id, bias };
    r->sampling.bias = r->bias;
}

static bool read_bias(struct text_request *r, const json_t *json) {
    const json_t *map = json_object_get(json, "logit_bias");
    const char *key = NULL;
    const json_t *value = NULL;
    const size_t room = json_object_size(map) + TEXT_MOST_STOP_IDS; /* read_least adds to them */
    if (is_given(json, "logit_bias") && !json_is_object(map))
        return field_refuse(r->x, "logit_bias", "must be an object of token ids and numbers");
    if (mem_zeroed(&r->bias, room, sizeof *r->bias, "a bias", NULL) != REEL_OK) {
        api_error(r->x, 503, NULL, NULL, "out of memory");
        return false;
    }
    json_object_foreach((json_t *)map, key, value) {
        char *end = NULL;
        errno = 0;
        long id = strtol(key, &end, 10);
        double bias = json_number_value(value);
        if (errno || end == key || *end || id < 0 || id >= r->model->info.vocab)
            return field_refuse(r->x, "logit_bias", "names token %.40s; ids are 0 to %d", key,
                                r->model->info.vocab - 1);
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
            return field_refuse(r->x, "logit_bias", "of token %ld must be a number of -100 to 100",
                                id);
        add_bias(r, (int32_t)id, bias <= -100 ? -INFINITY : (float)bias);
    }
    return true;
}

static bool add_stop(struct text_request *r, const json_t *text) {
    if (!json_is_string(text))
        return field_refuse(r->x, "stop", "must be a text or a list of texts");
    size_t n = json_string_length(text);
    if (n == 0 || n > MOST_STOP_BYTES || strlen(json_string_value(text)) != n)
        return field_refuse(r->x, "stop", "has a text of %zu bytes; allowed are 1 to %d, none zero",
                            n, MOST_STOP_BYTES);
    if (r->n_stops == TEXT_MOST_STOPS)
        return field_refuse(r->x, "stop", "has more than %d texts", TEXT_MOST_STOPS);
    r->stops[r->n_stops++] = json_string_value(text);
    return true;
}

static bool read_stops(struct text_request *r, const json_t *json) {
    const json_t *stop = json_object_get(json, "stop");
    if (!stop) stop = json_object_get(json, "stop_sequences");
    if (!stop || json_is_null(stop)) return true;
    if (!json_is_array(stop)) return add_stop(r, stop);
    for (size_t i = 0; i < json_array_size(stop); i++)
        if (!add_stop(r, json_array_get(stop, i))) return false;
    return true;
}

static int n_model_stop_ids(const struct text_request *r) {
    const int n = r->model->info.n_stop_ids;
    return n < TEXT_MOST_STOP_IDS ? n : TEXT_MOST_STOP_IDS;
}

static bool read_stop_ids(struct text_request *r, const json_t *json) {
    const json_t *list = json_object_get(json, "stop_token_ids");
    const int own = r->ignore_eos ? 0 : n_model_stop_ids(r);
    const size_t most = (size_t)(TEXT_MOST_STOP_IDS - own);
    if (is_given(json, "stop_token_ids") && (!json_is_array(list) || json_array_size(list) > most))
        return field_refuse(r->x, "stop_token_ids", "must be a list of at most %zu token ids",
                            most);
    if (json_array_size(list) == 0) return true;
    memcpy(r->stop_ids, r->model->info.stop_ids, (size_t)own * sizeof *r->stop_ids);
    r->n_stop_ids = own;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= r->model->info.vocab)
            return field_refuse(r->x, "stop_token_ids",
                                "has an entry %zu that is no token id; ids are 0 to %d", i,
                                r->model->info.vocab - 1);
        r->stop_ids[r->n_stop_ids++] = (int32_t)value;
    }
    return true;
}

static void never_draw(struct text_request *r, int32_t id) {
    bool known = false;
    for (int i = 0; i < r->sampling.n_bias; i++) {
        if (r->bias[i].id != id) continue;
        r->bias[i].bias = -INFINITY;
        known = true;
    }
    if (!known) add_bias(r, id, -INFINITY);
}

/* Stops cannot begin to count in the middle of an answer. So a least number of tokens is kept where
 * nothing stops the answer, or nothing may: then stop ids are never drawn. */
static bool read_least(struct text_request *r, const json_t *json) {
    const int32_t *ids = r->n_stop_ids ? r->stop_ids : r->model->info.stop_ids;
    const int n = r->n_stop_ids ? r->n_stop_ids : n_model_stop_ids(r);
    int64_t least = 0;
    if (!field_int(r->x, json, "min_tokens", 0, INT32_MAX, &least)) return false;
    if (least == 0) return true;
    if (r->no_tokens || (r->max_tokens && least > r->max_tokens))
        return field_refuse(r->x, "min_tokens", "is more than max_tokens, which is %d",
                            r->max_tokens);
    if (r->ignore_eos && !r->n_stops && !r->n_stop_ids) return true;
    if (least != r->max_tokens)
        return field_refuse(r->x, "min_tokens",
                            "is kept where it is max_tokens, or with ignore_eos, no 'stop' and no "
                            "'stop_token_ids'");
    for (int i = 0; i < n; i++)
        never_draw(r, ids[i]);
    r->n_stops = 0;
    return true;
}

static bool read_lengths(struct text_request *r, const json_t *json) {
    static const char *const names[] = { "n_predict", "max_tokens", "max_completion_tokens",
                                         "max_output_tokens" };
    int64_t most = -1, n = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = json_object_get(json, names[i]);
        if (i == 0 && json_number_value(value) == -1) continue; /* llama.cpp's word for no limit */
        if (!field_int(r->x, json, names[i], 0, INT32_MAX, &most)) return false;
    }
    r->max_tokens = most < 0 ? 0 : (int)most;
    r->no_tokens = most == 0;
    if (!field_int(r->x, json, "n", 1, TEXT_MOST_CHOICES, &n)) return false;
    r->n = (int)n;
    return true;
}

static bool read_stream(struct text_request *r, const json_t *json) {
    const json_t *options = json_object_get(json, "stream_options");
    if (!field_bool(r->x, json, "stream", &r->stream)) return false;
    if (!options || json_is_null(options)) return true;
    if (!json_is_object(options)) return field_refuse(r->x, "stream_options", "must be an object");
    return field_bool(r->x, options, "include_usage", &r->include_usage);
}

/* Said before anything is generated: an answer of another shape would be worse than none. */
static bool refuse_constraints(struct exchange *x, const json_t *json) {
    static const char *const names[] = { "guided_json",    "guided_regex",       "guided_choice",
                                         "guided_grammar", "structured_outputs", "grammar",
                                         "json_schema",    "allowed_token_ids",  "bad_words" };
    const json_t *format = json_object_get(json, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && !json_is_null(format) && (!type || strcmp(type, "text") != 0))
        return field_refuse(x, "response_format",
                            "of type '%.40s' is not supported; allowed is 'text'",
                            type ? type : "?");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = json_object_get(json, names[i]);
        if (value && !json_is_null(value) && !(json_is_array(value) && !json_array_size(value)))
            return field_refuse(x, names[i], "is not supported: output cannot be constrained yet");
    }
    int64_t best_of = 1;
    if (!field_int(x, json, "best_of", 1, 1, &best_of)) return false;
    bool beam = false;
    if (!field_bool(x, json, "use_beam_search", &beam)) return false;
    return beam ? field_refuse(x, "use_beam_search", "is not supported") : true;
}

bool text_request_read(struct text_request *r, struct exchange *x, const json_t *json) {
    struct reel_error err = { 0 };
    r->x = x;
    r->n = 1;
    r->sampling = (struct reel_sampling){ .size = sizeof r->sampling };
    if (reel_model_default_sampling(r->model->model, &r->sampling, &err) != REEL_OK) {
        api_error_from(x, &err);
        return false;
    }
    bool parallel = true, reuse = true;
    if (!refuse_constraints(x, json) || !field_bool(x, json, "ignore_eos", &r->ignore_eos) ||
        !field_bool(x, json, "cache_prompt", &reuse) ||
        !field_bool(x, json, "parallel_tool_calls", &parallel))
        return false;
    r->one_call = !parallel;
    r->anew = !reuse;
    return read_lengths(r, json) && read_sampling(r, json) && read_bias(r, json) &&
           read_stops(r, json) && read_stop_ids(r, json) && read_least(r, json) &&
           read_stream(r, json);
}

void text_request_release(struct text_request *r) { mem_free(r->bias); }

bool text_fits(const struct text_request *r, size_t n_ids) {
    if (n_ids > 0 && n_ids < (size_t)r->model->context) return true;
    if (n_ids == 0) {
        api_error(r->x, 400, r->prompt_field ? r->prompt_field : "messages", NULL,
                  "the prompt is empty");
        return false;
    }
    api_error(
        r->x, 400, r->prompt_field ? r->prompt_field : "messages", "context_length_exceeded",
        "the prompt has %zu tokens; this server's sessions hold %d (--ctx), the model was made "
        "for %d",
        n_ids, r->model->context, r->model->info.max_context);
    return false;
}

/* ---- running ---- */

struct run {
    const struct text_request *request;
    bool (*token)(void *user, const struct reel_token *token);
    void *user;
    struct text_outcome *outcome;
    double first_ms;
};

static bool on_token(void *user, const struct reel_token *token) {
    struct run *run = user;
    struct exchange_figures *figures = exchange_figures(run->request->x);
    atomic_fetch_add_explicit(&run->request->model->n_made, 1, memory_order_relaxed);
    if (run->outcome->n_generated++ == 0) {
        run->first_ms = clock_ms();
        if (figures->first_token_ms == 0)
            figures->first_token_ms = run->first_ms - exchange_start_ms(run->request->x);
    }
    bool go_on = run->token(run->user, token);
    return go_on && !exchange_is_gone(run->request->x);
}

static enum reel_status run_generation(const struct text_request *r, struct reel_session *session,
                                       int choice, struct run *run, struct reel_error *err) {
    struct reel_sampling sampling = r->sampling;
    sampling.seed += (uint64_t)choice;
    struct reel_generation generation = { .size = sizeof generation,
                                          .sampling = &sampling,
                                          .max_tokens = r->max_tokens,
                                          .stop_ids = r->n_stop_ids ? r->stop_ids : NULL,
                                          .n_stop_ids = r->n_stop_ids,
                                          .ignore_stop_ids = r->ignore_eos && !r->n_stop_ids,
                                          .stop_strings = r->stops,
                                          .n_stop_strings = r->n_stops,
                                          .logprobs = r->logprobs,
                                          .n_top_logprobs = r->n_top,
                                          .on_token = on_token,
                                          .user = run,
                                          .speculation = r->model->speculation,
                                          .most_drafts = r->model->most_drafts };
    struct reel_generation_result result = { .size = sizeof result };
    enum reel_status status = reel_generate(session, &generation, &result, err);
    run->outcome->reason = result.reason;
    run->outcome->stop = result.stop_string;
    run->outcome->n_drafted = result.n_drafted;
    run->outcome->n_accepted = result.n_accepted;
    if (result.draft_problem)
        server_log(exchange_server(r->x), SERVER_LOG_WARNING,
                   "%s: the draft model guessed no more: %s", r->model->name, result.draft_problem);
    if (status == REEL_OK && (result.reason == REEL_STOP_CANCELLED ||
                              (result.reason == REEL_STOP_CALLBACK && exchange_is_gone(r->x))))
        return err_set(err, REEL_E_CANCELLED, "the client left");
    return status;
}

/* What a position of a prompt takes, from prompts that are long enough to tell. */
static void note_speed(struct served_model *m, int n, double ms) {
    if (n < 64) return;
    const double ns = fmin(fmax(ms * 1e6 / n, 1), 1e9);
    const unsigned before = atomic_load(&m->eval_ns);
    atomic_store(&m->eval_ns, (unsigned)(before ? (3.0 * before + ns) / 4 : ns));
}

enum reel_status text_run(const struct text_request *r, struct reel_session *session,
                          const int32_t *ids, size_t n_ids, int choice,
                          bool (*token)(void *user, const struct reel_token *token), void *user,
                          struct text_outcome *outcome, struct reel_error *err) {
    struct run run = { .request = r, .token = token, .user = user, .outcome = outcome };
    struct exchange_figures *figures = exchange_figures(r->x);
    const double start = clock_ms();
    *outcome = (struct text_outcome){ .n_prompt = (int)n_ids, .stop = -1 };
    if (exchange_is_gone(r->x)) return err_set(err, REEL_E_CANCELLED, "the client left");
    enum reel_status status = REEL_OK;
    if (r->anew && choice == 0) status = reel_session_truncate(session, 0, err);
    if (status == REEL_OK)
        status = reel_session_sync(session, ids, (int)n_ids, &outcome->n_reused, err);
    outcome->prompt_ms = clock_ms() - start;
    if (status == REEL_OK)
        note_speed(r->model, outcome->n_prompt - outcome->n_reused, outcome->prompt_ms);
    /* Headers go out while the first token is made: nobody waits for them then. */
    if (status == REEL_OK && r->stream) exchange_begin(r->x, 200, "text/event-stream");
    if (status == REEL_OK && !r->no_tokens) status = run_generation(r, session, choice, &run, err);
    const double end = clock_ms();
    if (outcome->n_generated) {
        outcome->n_answers = 1;
        outcome->prompt_ms = run.first_ms - start;
        outcome->generate_ms = end - run.first_ms;
    }
    figures->n_prompt += outcome->n_prompt;
    figures->n_reused += outcome->n_reused;
    figures->n_generated += outcome->n_generated;
    figures->generate_ms += outcome->generate_ms;
    return status;
}

/* ---- what answers say ---- */

const char *text_finish_reason(enum reel_stop_reason reason) {
    const bool cut =
        reason == REEL_STOP_MAX_TOKENS || reason == REEL_STOP_CONTEXT || reason == REEL_STOP_MEMORY;
    return cut ? "length" : "stop";
}

void text_outcome_add(struct text_outcome *sum, const struct text_outcome *o) {
    sum->n_prompt += o->n_prompt;
    sum->n_reused += o->n_reused;
    sum->n_generated += o->n_generated;
    sum->n_answers += o->n_answers;
    sum->n_drafted += o->n_drafted;
    sum->n_accepted += o->n_accepted;
    sum->prompt_ms += o->prompt_ms;
    sum->generate_ms += o->generate_ms;
    sum->reason = o->reason;
    sum->stop = o->stop;
}

static double per_second(int n, double ms) { return ms > 0 ? n / ms * 1e3 : 0; }

enum reel_status text_timings(struct buffer *out, const struct text_outcome *o) {
    /* an answer's time begins with its first token */
    const int evaluated = o->n_prompt - o->n_reused, after = o->n_generated - o->n_answers;
    enum reel_status status = buffer_printf(
        out, NULL,
        "\"timings\":{\"cache_n\":%d,\"prompt_n\":%d,\"prompt_ms\":%.3f,\"prompt_per_second\":%.1f,"
        "\"predicted_n\":%d,\"predicted_ms\":%.3f,\"predicted_per_second\":%.1f",
        o->n_reused, evaluated, o->prompt_ms, per_second(evaluated, o->prompt_ms), o->n_generated,
        o->generate_ms, per_second(after, o->generate_ms));
    if (status == REEL_OK && o->n_drafted > 0)
        status = buffer_printf(out, NULL, ",\"draft_n\":%d,\"draft_n_accepted\":%d", o->n_drafted,
                               o->n_accepted);
    return status == REEL_OK ? buffer_append(out, "}", 1, NULL) : status;
}

enum reel_status text_usage(struct buffer *out, int n_prompt, int n_reused, int n_generated) {
    return buffer_printf(out, NULL,
                         "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"
                         "\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}",
                         n_prompt, n_generated, n_prompt + n_generated, n_reused);
}

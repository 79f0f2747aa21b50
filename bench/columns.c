/* What a pass of several columns costs on the CPU: tokens a second of 1 to 8 sessions that decode
 * together, each from a prompt of its own, greedily.
 *
 *   columns MODEL THREADS TOKENS ROUNDS [PATH]
 *
 * 0 columns is the runtime's own loop on one session: one position, one draw. Prints CSV: for each
 * round and number of columns tokens a second by the clock and by the processor's time, and a hash
 * of the first session's ids, which must be the same in every line. On a machine that others use
 * take one thread and the processor's time: with more, threads that wait for each other use it
 * too. */
#include "base/clock.h"
#include "model/model.h"
#include "runtime/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 8, PROMPT = 4 };

struct column {
    struct backend_state *state;
    struct backend_decode decode;
    int vocab, n_made;
    uint64_t hash;
};

static void need(enum reel_status status, const struct reel_error *err) {
    if (status == REEL_OK) return;
    fprintf(stderr, "columns: %s\n", err->text);
    exit(1);
}

static double processor_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int32_t draw(void *user, const float *logits, int64_t position) {
    const struct column *c = user;
    int best = 0;
    (void)position;
    for (int i = 1; i < c->vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static bool on_id(void *user, int32_t id) {
    struct column *c = user;
    c->hash = (c->hash ^ (uint64_t)id) * 1099511628211u;
    c->n_made++;
    return true;
}

static void begin(struct column *c, int nth, int n_tokens) {
    struct reel_error err;
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (nth * 977 + i * 331 + 1) % c->vocab;
    need(cpu_backend.eval(c->state, &(struct backend_eval){ .n = PROMPT - 1, .ids = ids }, &err),
         &err);
    c->n_made = 0;
    c->hash = 0;
    c->decode = (struct backend_decode){ .position = PROMPT - 1,
                                         .id = ids[PROMPT - 1],
                                         .max_tokens = n_tokens,
                                         .on_id = on_id,
                                         .draw = draw,
                                         .user = c };
}

static void decode_alone(struct column *c) {
    struct reel_error err;
    float *logits = malloc((size_t)c->vocab * sizeof *logits);
    int32_t id = c->decode.id;
    if (!logits) abort();
    for (int i = 0; i < c->decode.max_tokens; i++) {
        const struct backend_eval eval = { .position = c->decode.position + i,
                                           .n = 1,
                                           .ids = &id,
                                           .output = REEL_OUTPUT_LAST_LOGITS,
                                           .out = logits };
        need(cpu_backend.eval(c->state, &eval, &err), &err);
        id = draw(c, logits, eval.position + 1);
        on_id(c, id);
    }
    free(logits);
}

static void decode_together(struct backend *b, struct column *columns, int n) {
    struct backend_column in[MOST];
    for (int i = 0; i < n; i++)
        in[i] = (struct backend_column){ .state = columns[i].state, .decode = &columns[i].decode };
    cpu_backend.step(b, &(struct backend_batch){ .columns = in, .n = n });
    for (int i = 0; i < n; i++)
        need(in[i].over ? in[i].status : REEL_E_STATE, &in[i].err);
}

static void time_columns(struct backend *b, struct column *columns, int n, int n_tokens,
                         int round) {
    const int sessions = n > 0 ? n : 1;
    for (int i = 0; i < sessions; i++)
        begin(&columns[i], i, n_tokens);
    const double start = clock_ms(), processor = processor_s();
    if (n == 0)
        decode_alone(columns);
    else
        decode_together(b, columns, n);
    const double made = (double)sessions * n_tokens;
    printf("%d,%d,%.1f,%.1f,%016llx\n", round, n, made / ((clock_ms() - start) / 1000),
           made / (processor_s() - processor), (unsigned long long)columns->hash);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int numbers[] = { 0, 1, 2, 4, 8 };
    struct model model;
    struct model_source source;
    struct backend *b = NULL;
    struct column columns[MOST] = { 0 };
    struct reel_error err = { 0 };
    if (argc < 5) {
        fputs("columns MODEL THREADS TOKENS ROUNDS [PATH]\n", stderr);
        return 2;
    }
    const int n_tokens = (int)strtol(argv[3], NULL, 10), n_rounds = (int)strtol(argv[4], NULL, 10);
    const struct backend_options options = { .n_threads = (int)strtol(argv[2], NULL, 10),
                                             .cpu_path = argc > 5 ? argv[5] : NULL };
    need(model_source_open(&source, argv[1], &err), &err);
    need(model_load(&model, &source, &(struct model_load_options){ 0 }, &err), &err);
    need(cpu_backend.open(&b, &model, &options, &err), &err);
    for (int i = 0; i < MOST; i++) {
        columns[i].vocab = model.config.vocab;
        need(cpu_backend.state_open(&columns[i].state, b, PROMPT + n_tokens, &err), &err);
    }
    puts("round,columns,tokens_per_s,tokens_per_processor_s,ids");
    for (int round = 1; round <= n_rounds; round++)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            time_columns(b, columns, numbers[i], n_tokens, round);
    for (int i = 0; i < MOST; i++)
        cpu_backend.state_close(columns[i].state);
    cpu_backend.close(b);
    model_release(&model);
    return 0;
}

/* Measuring a model: prompt processing, generation, and both together. */
#ifndef REEL_CLI_BENCH_RUN_H
#define REEL_CLI_BENCH_RUN_H

#include "base/error.h"
#include "reel_measure.h"

struct bench_test {
    int n_prompt; /* tokens evaluated in one call; 0: none */
    int n_gen;    /* tokens generated one after the other; 0: none */
    int depth;    /* tokens already held before the clock starts */
};

/* How ids are picked and asked for. */
struct bench_how {
    int repeats;
    struct reel_sampling sampling;
    enum reel_speculation speculation;
    int most_drafts;
    const struct reel_model *draft; /* guesses; or NULL */
    bool one_at_a_time;             /* a call, and so a launch on a GPU, for each generated token */
    const struct reel_meter *meter; /* NULL: energy is not measured */
};

/* One line of the table. Times are over `repeats` runs after one that is thrown away. */
struct bench_row {
    struct bench_test test;
    int repeats;
    double tokens_per_s, tokens_per_s_sd; /* mean and standard deviation, as llama-bench gives */
    double median_per_s;
    double first_token_ms;     /* median; prompt and first id */
    double prompt_per_s;       /* tokens of the prompt over that; 0 without a prompt */
    double decode_per_s;       /* of the median generated token; 0 without */
    double p50_ms, p99_ms;     /* per generated token, over all repeats; 0 without */
    double bytes_per_s;        /* of weights and KV cache that decoding must read; 0 for prompts */
    double joules_a_token;     /* of the whole GPU; 0: not measured */
    double watts;              /* meanwhile */
    int n_drafted, n_accepted; /* guesses that were checked, and those that were right */
};

/* llama-bench's: "pp512", "tg128 @ d4096". */
void bench_test_name(const struct bench_test *test, char *out, size_t n);

/* Positions of the session that a test opens. */
int bench_positions(const struct bench_test *test);

/* Stop ids ignored, prompts drawn from a fixed generator. Sampling and the hand-over of ids are
 * inside the clock, tokenising is not. */
enum reel_status bench_measure(const struct reel_model *model, const struct bench_test *test,
                               const struct bench_how *how, reel_progress_fn progress,
                               void *progress_user, struct bench_row *row, struct reel_error *err);

enum bench_format { BENCH_MARKDOWN, BENCH_CSV, BENCH_JSON };

struct bench_report {
    const struct reel_model_info *info;
    const char *checked; /* how the output was checked, in words */
    const struct bench_how *how;
    double read_bytes_per_s; /* measured on this machine; 0: not measured */
    double idle_watts;       /* with the model loaded, before the tests; 0: not measured */
    const char *no_energy;   /* why it was not measured; NULL: nothing to say */
    const struct bench_row *rows;
    int n_rows;
};

void bench_print(const struct bench_report *report, enum bench_format format);

#endif

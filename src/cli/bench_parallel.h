/* Measuring several sessions of a model at once, each on a thread of its own: what they make
 * together, and how long one of them waits for its next token. */
#ifndef REEL_CLI_BENCH_PARALLEL_H
#define REEL_CLI_BENCH_PARALLEL_H

#include "cli/bench_run.h"

#define BENCH_MOST_SESSIONS 256

struct parallel_test {
    int n_prompt;   /* tokens of each session's prompt, or of a prompt that arrives; 0: none */
    int n_gen;      /* tokens that each session generates; at least 1 */
    int depth;      /* tokens that each session holds before the clock starts */
    int n_sessions; /* that generate */
    bool arrivals;  /* prompts arrive, one after the other, while the sessions generate */
};

/* One line of the table. Times are medians over `repeats` runs (with arrivals: prompts) after one
 * that is thrown away; gaps are over all of them. */
struct parallel_row {
    struct parallel_test test;
    int repeats;
    double prompt_s;  /* until the last session has its first token, or an arriving prompt has its;
                         0 without prompts */
    double gen_s;     /* until the last session has its n_gen further tokens; with arrivals 0 */
    double gen_per_s; /* generated tokens a second of all sessions together; with arrivals
                         while prompts were read */
    double first_token_ms; /* of a prompt; the median over sessions, too */
    /* Between two tokens of one session; with arrivals of those that waited for a prompt. */
    double p50_ms, p99_ms, worst_ms;
    double joules_a_token; /* generated; of the whole GPU; 0: not measured */
    double watts;          /* meanwhile */
};

/* Every session's ids are compared with those that it makes alone: REEL_E_MISMATCH where any
 * differs, and no row. */
enum reel_status parallel_measure(const struct reel_model *model, const struct parallel_test *test,
                                  const struct bench_how *how, reel_progress_fn progress,
                                  void *progress_user, struct parallel_row *row,
                                  struct reel_error *err);

struct parallel_report {
    const struct reel_model_info *info;
    const char *checked; /* how the output was checked, in words */
    const struct bench_how *how;
    const char *no_energy; /* why it was not measured; NULL: nothing to say */
    const struct parallel_row *rows;
    int n_rows;
};

void parallel_print(const struct parallel_report *report, enum bench_format format);

#endif

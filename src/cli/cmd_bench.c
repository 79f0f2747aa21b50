/* reel bench: tokens per second in llama-bench's terms, after a check that the output is right. */
#include "base/memory.h"
#include "cli/bench_limits.h"
#include "cli/bench_parallel.h"
#include "cli/bench_plot.h"
#include "cli/bench_run.h"
#include "cli/chart.h"
#include "cli/check.h"
#include "cli/commands.h"
#include "cli/open_model.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "reel_measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_LIST        16
#define MAX_TOKENS      (1 << 20)
#define CHECK_POSITIONS 4
#define SEED            0x5eedu
#define IDLE_MS         500

static const struct cli_option options[] = {
    { .name = "n-prompt",
      .letter = 'p',
      .kind = CLI_TEXT,
      .argument = "LIST",
      .help = "prompt lengths to measure, separated by commas; default 512; 0 is none" },
    { .name = "n-gen",
      .letter = 'n',
      .kind = CLI_TEXT,
      .argument = "LIST",
      .help = "numbers of tokens to generate; default 128; 0 is none" },
    { .name = "pg",
      .kind = CLI_TEXT,
      .argument = "P,N",
      .repeats = true,
      .help = "a prompt of P and then N generated tokens, as one test" },
    { .name = "n-depth",
      .letter = 'd',
      .kind = CLI_TEXT,
      .argument = "LIST",
      .help = "tokens already in the context before each test; default 0" },
    { .name = "repetitions",
      .letter = 'r',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 1000,
      .help = "timed runs of each test, after one untimed; default 5" },
    { .name = "one-launch-per-token",
      .kind = CLI_FLAG,
      .help =
          "ask for each generated token in a call of its own, which on a GPU is a launch of its "
          "own; default: one call a run" },
    { .name = "parallel",
      .kind = CLI_TEXT,
      .argument = "LIST",
      .help = "so many sessions at once, each on a thread of its own: a line for each number, in "
              "llama-batched-bench's columns, and the longest time between two tokens of one "
              "session; -p of 0 reads no prompts" },
    { .name = "arrivals",
      .kind = CLI_FLAG,
      .help = "with --parallel: prompts of -p tokens arrive, one after the other, while the "
              "sessions generate; -r is their number" },
    { .name = "limits",
      .kind = CLI_FLAG,
      .help = "no model: what the GPU can do at best, which is its read bandwidth, the time of an "
              "exchange between SMs beside copies, and the cost of a launch; about three seconds" },
    { .name = "output",
      .letter = 'o',
      .kind = CLI_CHOICE,
      .argument = "FORMAT",
      .choices = "md csv json",
      .help = "form of the table: md, csv or json; default md" },
    { .name = "plot",
      .kind = CLI_FLAG,
      .help = "under the table of -o md, bars of the speeds, and speed against depth where -d has "
              "several" },
};
static const struct cli_group group = CLI_GROUP("Tests", options);

struct list {
    int values[MAX_LIST];
    int n;
};

/* "128,512" with every value from 0 to MAX_TOKENS. */
static enum reel_status read_list(struct list *list, const char *option, const char *text,
                                  struct reel_error *err) {
    list->n = 0;
    for (const char *at = text;; at++) {
        char *end = NULL;
        errno = 0;
        long value = strtol(at, &end, 10);
        if (end == at || errno || value < 0 || value > MAX_TOKENS || list->n == MAX_LIST ||
            (*end != ',' && *end != '\0'))
            return err_set(err, REEL_E_ARGUMENT,
                           "--%s: \"%s\" is not a list of 1 to %d integers from 0 to %d", option,
                           text, MAX_LIST, MAX_TOKENS);
        list->values[list->n++] = (int)value;
        if (*end == '\0') return REEL_OK;
        at = end;
    }
}

struct tests {
    struct bench_test *items;
    int n, cap;
};

static enum reel_status add_test(struct tests *tests, int n_prompt, int n_gen, int depth,
                                 struct reel_error *err) {
    if (n_prompt == 0 && n_gen == 0) return REEL_OK;
    if (tests->n == tests->cap) return err_set(err, REEL_E_LIMIT, "more than %d tests", tests->cap);
    tests->items[tests->n++] =
        (struct bench_test){ .n_prompt = n_prompt, .n_gen = n_gen, .depth = depth };
    return REEL_OK;
}

/* Every test at one depth, in the order of the table. */
static enum reel_status tests_at(struct tests *tests, const struct cli_args *args,
                                 const struct list *prompts, const struct list *gens, int depth,
                                 struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < prompts->n && status == REEL_OK; i++)
        status = add_test(tests, prompts->values[i], 0, depth, err);
    for (int i = 0; i < gens->n && status == REEL_OK; i++)
        status = add_test(tests, 0, gens->values[i], depth, err);
    for (int i = 0; cli_repeated(args, "pg", i) && status == REEL_OK; i++) {
        struct list pair = { 0 };
        const char *text = cli_repeated(args, "pg", i);
        status = read_list(&pair, "pg", text, err);
        if (status == REEL_OK && pair.n != 2)
            status = err_set(err, REEL_E_ARGUMENT, "--pg: \"%s\" is not of the form P,N", text);
        if (status == REEL_OK) status = add_test(tests, pair.values[0], pair.values[1], depth, err);
    }
    return status;
}

static enum reel_status list_tests(struct tests *tests, const struct cli_args *args,
                                   struct reel_error *err) {
    struct list prompts = { 0 }, gens = { 0 }, depths = { 0 };
    enum reel_status status =
        read_list(&prompts, "n-prompt", cli_text(args, "n-prompt", "512"), err);
    if (status == REEL_OK) status = read_list(&gens, "n-gen", cli_text(args, "n-gen", "128"), err);
    if (status == REEL_OK)
        status = read_list(&depths, "n-depth", cli_text(args, "n-depth", "0"), err);
    for (int i = 0; i < depths.n && status == REEL_OK; i++)
        status = tests_at(tests, args, &prompts, &gens, depths.values[i], err);
    if (status == REEL_OK && tests->n == 0)
        status = err_set(err, REEL_E_ARGUMENT, "there is nothing to measure: every length is 0");
    return status;
}

/* Speed is printed only for a model that computes what the reference computes from the same
 * weights: the file's, or those that the device made of them. */
static enum reel_status check(const struct reel_model *model, const struct cli_args *args,
                              char *words, size_t n, struct reel_error *err) {
    struct reference_result result;
    enum reel_status status =
        reference_check_named(model, args, args->arguments[0], CHECK_POSITIONS, &result, err);
    snprintf(
        words, n,
        "output within %.2g rms of the plain reference with the same weights over %d positions "
        "(allowed %.2g)",
        result.rms, result.n_positions, result.rms_bound);
    return status;
}

static enum reel_status measure(const struct reel_model *model, const struct tests *tests,
                                const struct bench_how *how, struct bench_row *rows,
                                struct reel_error *err) {
    struct progress progress;
    enum reel_status status = REEL_OK;
    progress_start(&progress);
    for (int i = 0; i < tests->n && status == REEL_OK; i++)
        status =
            bench_measure(model, &tests->items[i], how, progress_update, &progress, &rows[i], err);
    progress_end(&progress);
    return status;
}

static struct plot_style style_of(FILE *f) {
    return (struct plot_style){ .columns = terminal_columns(f),
                                .unicode = chart_is_unicode(),
                                .dims = terminal_has_styles(f) };
}

static enum bench_format format_of(const struct cli_args *args) {
    const char *name = cli_text(args, "output", "md");
    if (strcmp(name, "csv") == 0) return BENCH_CSV;
    return strcmp(name, "json") == 0 ? BENCH_JSON : BENCH_MARKDOWN;
}

/* The processor's memory, or the GPU's; where a GPU cannot be measured the column stays empty. */
static enum reel_status read_bandwidth(const struct cli_args *args,
                                       const struct reel_model_info *info, double *bytes_per_s,
                                       struct reel_error *err) {
    struct reel_error why;
    if (strcmp(info->backend, "cpu") == 0)
        return reel_measure_read_bandwidth(info->n_threads, bytes_per_s, err);
    enum reel_status status = bench_gpu_read(args, bytes_per_s, &why);
    if (status == REEL_E_CANCELLED) return err_set(err, status, "%s", why.text);
    if (status != REEL_OK)
        fprintf(stderr, "reel: the read bandwidth was not measured: %s\n", why.text);
    return REEL_OK;
}

/* *meter stays NULL and `why` says why where energy cannot be measured. */
static void open_meter(struct reel_meter **meter, const struct reel_model *model,
                       double *idle_watts, struct reel_error *why) {
    struct reel_meter_reading from = { .size = sizeof from }, to = { .size = sizeof to };
    const struct timespec settle = { IDLE_MS / 1000, IDLE_MS % 1000 * 1000000L };
    *idle_watts = 0;
    if (reel_meter_open(meter, model, NULL, why) != REEL_OK) return;
    enum reel_status status = reel_meter_read(*meter, &from, why);
    nanosleep(&settle, NULL);
    if (status == REEL_OK) status = reel_meter_read(*meter, &to, why);
    if (status == REEL_OK) *idle_watts = (to.joules - from.joules) / (IDLE_MS * 1e-3);
    if (status == REEL_OK) return;
    reel_meter_close(*meter);
    *meter = NULL;
}

/* ---- several sessions at once ---- */

#define MOST_ROWS 256

struct parallel_tests {
    struct parallel_test items[MOST_ROWS];
    int n;
};

static enum reel_status check_parallel(const struct cli_args *args, struct reel_error *err) {
    const bool parallel = cli_has(args, "parallel");
    if (cli_has(args, "arrivals") && !parallel)
        return err_set(err, REEL_E_ARGUMENT, "--arrivals is for --parallel");
    if (parallel && cli_has(args, "pg"))
        return err_set(err, REEL_E_ARGUMENT,
                       "--pg is not for --parallel, where each session reads -p tokens and "
                       "generates -n");
    return REEL_OK;
}

/* One line: prompts, tokens, depth and sessions, which are as the lists say. */
static enum reel_status add_parallel(struct parallel_tests *tests, struct parallel_test test,
                                     struct reel_error *err) {
    if (tests->n == MOST_ROWS) return err_set(err, REEL_E_LIMIT, "more than %d tests", MOST_ROWS);
    if (test.n_sessions < 1 || test.n_sessions > BENCH_MOST_SESSIONS)
        return err_set(err, REEL_E_ARGUMENT, "--parallel: %d sessions; allowed are 1 to %d",
                       test.n_sessions, BENCH_MOST_SESSIONS);
    if (test.n_gen < 1)
        return err_set(err, REEL_E_ARGUMENT, "-n 0: with --parallel every session generates");
    if (test.arrivals && test.n_prompt < 1)
        return err_set(err, REEL_E_ARGUMENT, "-p 0: with --arrivals prompts arrive");
    tests->items[tests->n++] = test;
    return REEL_OK;
}

static enum reel_status list_parallel(struct parallel_tests *tests, const struct cli_args *args,
                                      struct reel_error *err) {
    struct list prompts = { 0 }, gens = { 0 }, depths = { 0 }, sessions = { 0 };
    enum reel_status status =
        read_list(&prompts, "n-prompt", cli_text(args, "n-prompt", "512"), err);
    if (status == REEL_OK) status = read_list(&gens, "n-gen", cli_text(args, "n-gen", "128"), err);
    if (status == REEL_OK)
        status = read_list(&depths, "n-depth", cli_text(args, "n-depth", "0"), err);
    if (status == REEL_OK)
        status = read_list(&sessions, "parallel", cli_text(args, "parallel", ""), err);
    const int n = depths.n * prompts.n * gens.n * sessions.n;
    for (int i = 0; i < n && status == REEL_OK; i++) { /* sessions change first, depths last */
        const int g = i / sessions.n, p = g / gens.n, d = p / prompts.n;
        const struct parallel_test test = { .n_prompt = prompts.values[p % prompts.n],
                                            .n_gen = gens.values[g % gens.n],
                                            .depth = depths.values[d],
                                            .n_sessions = sessions.values[i % sessions.n],
                                            .arrivals = cli_has(args, "arrivals") };
        status = add_parallel(tests, test, err);
    }
    return status;
}

static enum reel_status run_parallel(const struct reel_model *model, const struct cli_args *args,
                                     const struct bench_how *how, struct parallel_report *report,
                                     struct reel_error *err) {
    struct parallel_row rows[MOST_ROWS];
    struct parallel_tests tests = { .n = 0 };
    struct progress progress;
    enum reel_status status = list_parallel(&tests, args, err);
    progress_start(&progress);
    for (int i = 0; i < tests.n && status == REEL_OK; i++)
        status = parallel_measure(model, &tests.items[i], how, progress_update, &progress, &rows[i],
                                  err);
    progress_end(&progress);
    report->rows = rows;
    report->n_rows = tests.n;
    if (status == REEL_OK) parallel_print(report, format_of(args));
    struct buffer plot = { 0 };
    const struct plot_style style = style_of(stdout);
    if (status == REEL_OK && cli_has(args, "plot"))
        status = parallel_plot(&plot, rows, tests.n, &style, err);
    if (plot.bytes) fputs(plot.bytes, stdout);
    buffer_release(&plot);
    report->rows = NULL; /* they end here */
    report->n_rows = 0;
    return status;
}

/* ---- one session ---- */

static enum reel_status run_alone(const struct reel_model *model, const struct cli_args *args,
                                  const struct bench_how *how, struct bench_report *report,
                                  struct reel_error *err) {
    struct bench_test items[MOST_ROWS];
    struct bench_row rows[MOST_ROWS];
    struct tests tests = { .items = items, .cap = MOST_ROWS };
    enum reel_status status = list_tests(&tests, args, err);
    if (status == REEL_OK) status = measure(model, &tests, how, rows, err);
    report->rows = rows;
    report->n_rows = tests.n;
    if (status == REEL_OK) bench_print(report, format_of(args));
    struct buffer plot = { 0 };
    const struct plot_style style = style_of(stdout);
    if (status == REEL_OK && cli_has(args, "plot"))
        status = bench_plot(&plot, rows, tests.n, &style, err);
    if (plot.bytes) fputs(plot.bytes, stdout);
    buffer_release(&plot);
    report->rows = NULL; /* they end here */
    report->n_rows = 0;
    return status;
}

/* ---- the command ---- */

/* What is wrong with the lists is said before a model is opened. */
static enum reel_status check_lists(const struct cli_args *args, struct reel_error *err) {
    struct bench_test items[MOST_ROWS];
    struct tests tests = { .items = items, .cap = MOST_ROWS };
    struct parallel_tests parallel = { .n = 0 };
    enum reel_status status = check_parallel(args, err);
    if (status == REEL_OK && cli_has(args, "plot") && format_of(args) != BENCH_MARKDOWN)
        status = err_set(err, REEL_E_ARGUMENT, "--plot stands under the table of -o md, not in %s",
                         cli_text(args, "output", "md"));
    if (status != REEL_OK) return status;
    return cli_has(args, "parallel") ? list_parallel(&parallel, args, err)
                                     : list_tests(&tests, args, err);
}

/* What the model has too few positions for is said before anything is measured. */
static enum reel_status check_fits(const struct reel_model *model, const struct cli_args *args,
                                   struct reel_error *err) {
    struct bench_test items[MOST_ROWS];
    struct tests tests = { .items = items, .cap = MOST_ROWS };
    enum reel_status status = list_tests(&tests, args, err);
    for (int i = 0; i < tests.n && status == REEL_OK; i++)
        status = cli_check_positions(model, bench_positions(&items[i]), "-p, -n and -d", err);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    struct reel_model *model = NULL, *draft = NULL;
    struct reel_meter *meter = NULL;
    struct reel_error no_energy = { 0 };
    char checked[160] = "";
    const bool parallel = cli_has(args, "parallel");
    double read_bytes_per_s = 0, idle_watts = 0;
    struct bench_how how = { .repeats = (int)cli_integer(args, "repetitions", 5),
                             .one_at_a_time = cli_has(args, "one-launch-per-token"),
                             .sampling = { .size = sizeof how.sampling, .seed = SEED } };
    how.speculation = cli_speculation(args, REEL_SPECULATION_OFF);
    how.most_drafts = (int)cli_integer(args, "draft-max", 0);
    if (cli_has(args, "limits") && cli_has(args, "plot"))
        return err_set(err, REEL_E_ARGUMENT, "--plot is for tests, and --limits makes none");
    if (cli_has(args, "limits")) return bench_limits(args, err);
    if (args->n_arguments == 0)
        return err_set(err, REEL_E_ARGUMENT, "usage: reel bench MODEL, or reel bench --limits");
    cli_sampling_typed(&how.sampling, args);
    enum reel_status status = check_lists(args, err);
    if (status == REEL_OK)
        status = (parallel ? cli_model_open_for_many : cli_model_open)(&model, args,
                                                                       args->arguments[0], err);
    if (status == REEL_OK) status = cli_draft_open(&draft, model, args, err);
    how.draft = draft;
    if (status == REEL_OK) {
        info = cli_model_info(model);
        if (!parallel) status = check_fits(model, args, err);
    }
    if (status == REEL_OK) status = check(model, args, checked, sizeof checked, err);
    if (status == REEL_OK && !parallel)
        status = read_bandwidth(args, &info, &read_bytes_per_s, err);
    if (status == REEL_OK) {
        open_meter(&meter, model, &idle_watts, &no_energy);
        how.meter = meter;
    }
    const char *why = NULL;
    if (status == REEL_OK && !meter && strcmp(info.backend, "cpu") != 0) why = no_energy.text;
    if (status == REEL_OK && parallel) {
        struct parallel_report report = {
            .info = &info, .checked = checked, .how = &how, .no_energy = why
        };
        status = run_parallel(model, args, &how, &report, err);
    } else if (status == REEL_OK) {
        struct bench_report report = { .info = &info,
                                       .checked = checked,
                                       .how = &how,
                                       .read_bytes_per_s = read_bytes_per_s,
                                       .idle_watts = idle_watts,
                                       .no_energy = why };
        status = run_alone(model, args, &how, &report, err);
    }
    reel_meter_close(meter);
    reel_model_close(model);
    reel_model_close(draft);
    return status;
}

const struct cli_command cmd_bench = {
    .name = "bench",
    .arguments = "[MODEL]",
    .least_arguments = 0,
    .most_arguments = 1,
    .summary = "measure tokens per second and what share of the memory's bandwidth that is",
    .description =
        "The tests are llama-bench's: ppN reads a prompt of N tokens, tgN generates N, pp+tg does "
        "both. Each is run once untimed and then several times; t/s is the mean and its standard "
        "deviation. Ids are picked greedily unless sampling options are given. The other columns: "
        "tokens of the prompt over the median time to the first token, what the median generated "
        "token makes a second, "
        "median and 99th percentile of the time for one generated token, median time to the first "
        "token, gigabytes of weights and KV cache read a second, "
        "that as a share of the read bandwidth measured on this machine in the same run, and, on a "
        "GPU whose driver counts energy, generated tokens per joule of the whole GPU.\n\n"
        "Without --speculate or --draft nothing is guessed: what a model makes of these prompts "
        "repeats itself more than an answer does.\n\n"
        "With --parallel so many sessions read a prompt each, all at once, and then generate, all "
        "at once. PP and TG are the tokens of one session, B the sessions, N_KV the positions that "
        "all of them hold at the end; T_PP is the time until the last session has its first token, "
        "T_TG that until the last has the others, S the tokens of all sessions over these times. "
        "First token is the median of the sessions, worst gap the longest time that a session "
        "waited for its next token in all runs. No speed is printed where a session makes other "
        "ids than it makes alone.\n\n"
        "Before anything is timed, the logits of a few positions are compared with the plain "
        "reference; when they differ beyond rounding (reel verify says how that is measured), no "
        "speed is printed. Where a GPU holds weights as bf16 the reference's are rounded "
        "likewise, and the line under the table says which weights were timed.",
    .groups = { &group, &cli_sampling_group, &cli_speculation_group, &cli_model_group },
    .run = run,
};

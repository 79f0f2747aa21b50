/* reel profile: where a token's time goes on a GPU, and a prompt's. */
#include "base/file_map.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/profile_html.h"
#include "cli/profile_run.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <string.h>

/* Of the timeline of --html: as much as a screen shows. */
enum { PAGE_SMS = 8, PAGE_TOKENS = 2 };

static const struct cli_option options[] = {
    { .name = "tokens",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 128,
      .help = "tokens to measure, all in one launch; default 32" },
    { .name = "n-prompt",
      .letter = 'p',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 1 << 20,
      .help = "also measure how a prompt of N tokens is read, of one chunk at most; default 0: "
              "none" },
    { .name = "n-depth",
      .letter = 'd',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 1 << 20,
      .help = "tokens already in the context; default 0" },
    { .name = "repetitions",
      .letter = 'r',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 100,
      .help = "timed runs with and without time stamps, after one untimed; default 5" },
    { .name = "output",
      .letter = 'o',
      .kind = CLI_CHOICE,
      .argument = "FORMAT",
      .choices = "table json",
      .help = "table or json; default table" },
    { .name = "trace",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "also write the measured tokens, span by span, as trace events for Perfetto "
              "(ui.perfetto.dev) or chrome://tracing" },
    { .name = "html",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "also write one HTML page with the table and a timeline; it needs no network" },
    { .name = "trace-sms",
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 4096,
      .help = "SMs in the trace, evenly chosen; 0 is all; default all, with --html alone 8" },
    { .name = "trace-tokens",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 128,
      .help = "tokens in the trace; default 4, with --html alone 2" },
};
static const struct cli_group group = CLI_GROUP("Measuring", options);

/* ---- the table ---- */

static double real(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}
static long long integer(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

/* An empty cell for what a phase has none of. */
static void cell(double value, int width, int decimals) {
    if (value > 0)
        printf(" %*.*f", width, decimals, value);
    else
        printf(" %*s", width, "");
}

static void print_row(const json_t *part, bool several) {
    const json_t *own = json_object_get(part, "sm_own_us");
    printf("%-10s", json_string_value(json_object_get(part, "phase")));
    cell(real(part, "us"), 8, 2);
    cell(real(part, "share_percent"), 7, 1);
    cell(real(part, "wait_weights_us"), 8, 2);
    cell(real(part, "wait_exchange_us"), 8, 2);
    if (several) cell(real(part, "wait_across_us"), 8, 2);
    cell(real(part, "arithmetic_us"), 8, 2);
    cell(real(part, "streaming_us"), 8, 2);
    cell(real(part, "bytes") / 1e6, 9, 3);
    cell(real(part, "bytes") > 0 ? real(part, "gb_per_s") : 0, 7, 0);
    printf("  %8.2f %8.2f %8.2f\n", real(own, "min"), real(own, "median"), real(own, "max"));
}

static void print_title(const json_t *json) {
    const json_t *us = json_object_get(json, "token_us"),
                 *ghz = json_object_get(json, "sm_clock_ghz");
    const char *model = json_string_value(json_object_get(json, "model"));
    terminal_write(stdout, model, strlen(model));
    printf(" on %s: %lld tokens from position %lld on, %lld SMs in %lld groups\n",
           json_string_value(json_object_get(json, "gpu")), integer(json, "tokens"),
           integer(json, "position"), integer(json, "sms"), integer(json, "groups"));
    printf("a token takes %.1f us (median on the GPU; %.1f to %.1f), at an SM clock of %.2f GHz "
           "(%.2f to %.2f)\n",
           real(us, "median"), real(us, "min"), real(us, "max"), real(ghz, "median"),
           real(ghz, "min"), real(ghz, "max"));
    printf("time stamps slow it down by %.1f %%: %.1f us with them, %.1f without, by the host's "
           "clock\n\n",
           real(json, "slowdown_percent"), real(json, "profiled_token_us"),
           real(json, "unprofiled_token_us"));
}

/* A cell that stays empty for a step without such work. */
static void print_step(const json_t *step) {
    const char *cut = json_string_value(json_object_get(step, "cut"));
    printf("%-10s %-6s %8lld", json_string_value(json_object_get(step, "step")), cut ? cut : "",
           integer(step, "launches"));
    cell(real(step, "launch_us"), 9, 2);
    cell(real(step, "us"), 10, 2);
    cell(real(step, "share_percent"), 7, 1);
    cell(real(step, "bytes") / 1e6, 10, 3);
    cell(real(step, "gb_per_s"), 7, 0);
    cell(real(step, "gflop"), 10, 3);
    cell(real(step, "tflop_per_s"), 8, 1);
    printf("\n");
}

static void print_prefill(const json_t *json) {
    const json_t *us = json_object_get(json, "us"), *total = json_object_get(json, "total");
    size_t i;
    json_t *step;
    printf(
        "\na prompt of %lld tokens from position %lld on is read in %.1f us with an event "
        "before every\n"
        "launch (median of %lld runs by the GPU's events; %.1f to %.1f), which keeps launches "
        "from overlapping.\n"
        "By the host's clock, with submitting and waiting: %.1f us with events, %.1f without\n\n",
        integer(json, "tokens"), integer(json, "position"), real(us, "median"),
        integer(json, "runs"), real(us, "min"), real(us, "max"), real(json, "profiled_us"),
        real(json, "unprofiled_us"));
    printf("%-10s %-6s %8s %9s %10s %7s %10s %7s %10s %8s\n", "step", "cut", "launches", "us each",
           "us", "%", "MB", "GB/s", "GFLOP", "TFLOP/s");
    json_array_foreach(json_object_get(json, "steps"), i, step) print_step(step);
    print_step(total);
    puts("\nus: from the event before a launch to the next one, the gap between them included; "
         "us each: median\n"
         "over layers, total: mean. MB: weights, attention: K and V, each counted once however "
         "often it is\n"
         "read. GFLOP: products, and attention's scores and sums over the positions attended to.");
}

static void print_table(const json_t *json) {
    size_t i;
    json_t *part;
    const bool several = integer(json, "gpus") > 1;
    print_title(json);
    printf("%-10s %8s %7s %*s %9s %7s  %26s\n", "", "", "", several ? 44 : 35, "us of it", "", "",
           "an SM's own us");
    printf("%-10s %8s %7s %8s %8s%s %8s %8s %9s %7s  %8s %8s %8s\n", "phase", "us", "%", "weights",
           "exchange", several ? "   across" : "", "arith.", "stream.", "MB", "GB/s", "min",
           "median", "max");
    json_array_foreach(json_object_get(json, "phases"), i, part) print_row(part, several);
    print_row(json_object_get(json, "total"), several);
    if (several)
        puts("\nacross: waiting for SMs of all GPUs; exchange: for those of the own group.");
    puts("\nweights: waiting for them; exchange: waiting for other SMs; arith.: with everything at "
         "hand;\n"
         "stream.: arithmetic while the rest of the weights, or of K and V, is on its way. All by "
         "one warp\n"
         "of each SM, means over SMs and tokens. Own: without waiting for other SMs. MB: weights; "
         "attention:\n"
         "K and V, counted once. Weights are fetched ahead, so one phase's GB/s may be above what "
         "memory\n"
         "gives; the total is not.");
    if (integer(json, "position") + integer(json, "tokens") > integer(json, "attention_split_from"))
        printf(
            "From position %lld on attention is split over SMs; exchanging partial results is in "
            "its stream.\n",
            integer(json, "attention_split_from"));
    if (json_object_get(json, "prefill")) print_prefill(json_object_get(json, "prefill"));
}

/* ---- */

static enum reel_status complete(const struct profile_result *r, struct reel_error *err) {
    const double more = 100 * (r->stamped_us / r->plain_us - 1);
    json_t *prefill = json_object_get(r->json, "prefill");
    const int prompt_failed =
        prefill && (json_object_set_new(prefill, "unprofiled_us", json_real(r->plain_prompt_us)) |
                    json_object_set_new(prefill, "profiled_us", json_real(r->timed_prompt_us)));
    const int failed = prompt_failed |
                       json_object_set_new(r->json, "model", json_string(r->model)) |
                       json_object_set_new(r->json, "reel_version", json_string(reel_version())) |
                       json_object_set_new(r->json, "unprofiled_token_us", json_real(r->plain_us)) |
                       json_object_set_new(r->json, "profiled_token_us", json_real(r->stamped_us)) |
                       json_object_set_new(r->json, "slowdown_percent", json_real(more));
    return failed ? err_memory(err, "a profile", 0) : REEL_OK;
}

static enum reel_status write_trace(const char *path, const char *trace, struct reel_error *err) {
    enum reel_status status = file_write_atomic(path, trace, strlen(trace), err);
    if (status == REEL_OK)
        fprintf(stderr, "reel: %s: %.1f MB of trace events\n", path, (double)strlen(trace) / 1e6);
    return status;
}

static enum reel_status write_html(const char *path, const struct profile_result *r,
                                   struct reel_error *err) {
    struct buffer page = { 0 };
    enum reel_status status = profile_html(&page, r->json, r->trace, err);
    if (status == REEL_OK) status = output_file_write(path, page.bytes, page.size, err);
    if (status == REEL_OK)
        fprintf(stderr, "reel: %s: %.1f MB of HTML\n", path, (double)page.size / 1e6);
    buffer_release(&page);
    return status;
}

/* Before anything is measured. */
static enum reel_status check(const struct cli_args *args, struct reel_error *err) {
    const char *html = cli_text(args, "html", NULL);
    if (html) return output_file_check(html, err);
    if (cli_has(args, "trace") || (!cli_has(args, "trace-sms") && !cli_has(args, "trace-tokens")))
        return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT,
                   "--trace-sms and --trace-tokens belong to --trace FILE or --html FILE");
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct profile_result result = { 0 };
    const char *trace = cli_text(args, "trace", NULL), *html = cli_text(args, "html", NULL);
    const bool page_alone = html && !trace;
    const struct profile_plan plan = {
        .depth = (int)cli_integer(args, "n-depth", 0),
        .n_tokens = (int)cli_integer(args, "tokens", 32),
        .n_prompt = (int)cli_integer(args, "n-prompt", 0),
        .repeats = (int)cli_integer(args, "repetitions", 5),
        .trace = trace || html,
        .trace_sms = (int)cli_integer(args, "trace-sms", page_alone ? PAGE_SMS : 0),
        .trace_tokens = (int)cli_integer(args, "trace-tokens", page_alone ? PAGE_TOKENS : 0)
    };
    enum reel_status status = check(args, err);
    if (status == REEL_OK) status = profile_measure(&result, args, &plan, err);
    if (status == REEL_OK) status = complete(&result, err);
    if (status == REEL_OK && trace) status = write_trace(trace, result.trace, err);
    if (status == REEL_OK && html) status = write_html(html, &result, err);
    if (status == REEL_OK && strcmp(cli_text(args, "output", "table"), "table") == 0)
        print_table(result.json);
    else if (status == REEL_OK &&
             json_dumpf(result.json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0)
        printf("\n");
    profile_result_release(&result);
    return status;
}

const struct cli_command cmd_profile = {
    .name = "profile",
    .arguments = "MODEL",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "show where a token's time goes on a GPU, and a prompt's",
    .description =
        "Decodes greedily with kernels that leave time stamps, and prints for each phase the "
        "microseconds of a token, split into waiting for weights, waiting for other SMs, and "
        "arithmetic; its bytes of weights; and how the SMs differ. The first and the last token of "
        "the launch are left out.\n\n"
        "Time stamps cost time themselves. The same tokens are therefore decoded without them too, "
        "and the output says how much slower it was with them; when the ids differ, nothing but "
        "that is said. The first time, a second set of kernels is compiled.\n\n"
        "With -p N a prompt of N tokens is read too, behind those of -d, with events around every "
        "launch. A second table says for each step of the layers how its product is cut, the "
        "microseconds of a launch and of all, bytes and GB/s, FLOP and TFLOP/s. With events "
        "launches do not overlap; the time of the same prompt without them stands beside.\n\n"
        "It takes a GPU: --device auto is the first one that can be used, never the CPU.",
    .groups = { &group, &cli_model_group },
    .run = run,
};

/* llama-bench's columns first, so that tables can be laid side by side; ours after them. */
#include "cli/bench_run.h"
#include "cli/check.h"
#include "cli/open_model.h"

#include <jansson.h>
#include <stdio.h>

void bench_test_name(const struct bench_test *test, char *out, size_t n) {
    char depth[32] = "";
    if (test->depth > 0) snprintf(depth, sizeof depth, " @ d%d", test->depth);
    if (test->n_prompt > 0 && test->n_gen > 0)
        snprintf(out, n, "pp%d+tg%d%s", test->n_prompt, test->n_gen, depth);
    else if (test->n_prompt > 0)
        snprintf(out, n, "pp%d%s", test->n_prompt, depth);
    else
        snprintf(out, n, "tg%d%s", test->n_gen, depth);
}

static void model_name(const struct reel_model_info *info, char *out, size_t n) {
    snprintf(out, n, "%s %.3g%s %s", info->family,
             (double)info->n_parameters / (info->n_parameters < 1000000000 ? 1e6 : 1e9),
             info->n_parameters < 1000000000 ? "M" : "B", info->weight_type);
}

static const char *sampling_words(const struct bench_report *report) {
    const struct reel_sampling *s = &report->how->sampling;
    return s->temperature > 0 ? "sampled" : "greedy";
}

static const char *calls_words(const struct bench_report *report) {
    return report->how->one_at_a_time ? "one call a token" : "one call a run";
}

/* The type of the weights that were timed; the file's is a column of its own. */
static const char *device_weights(const struct reel_model_info *info) {
    return info->device_weight_type ? info->device_weight_type : info->weight_type;
}

/* What guesses came to; a draft model reads its own weights besides. */
static void print_drafts(const struct bench_report *report) {
    int drafted = 0, accepted = 0;
    for (int i = 0; i < report->n_rows; i++)
        drafted += report->rows[i].n_drafted, accepted += report->rows[i].n_accepted;
    const char *name = report->how->draft ? cli_model_info(report->how->draft).name : NULL;
    if (drafted == 0 && name) printf("no guess of %s was checked\n", name);
    if (drafted > 0 && name) printf("%s guesses, and what it reads is not in GB/s; ", name);
    if (drafted > 0) printf("%d of %d guesses were right\n", accepted, drafted);
}

static double share(const struct bench_report *report, const struct bench_row *row) {
    return report->read_bytes_per_s > 0 ? 100 * row->bytes_per_s / report->read_bytes_per_s : 0;
}

/* An empty cell where a test has no such figure. */
static void cell(double value, int decimals) {
    if (value > 0)
        printf(" %.*f |", decimals, value);
    else
        printf(" |");
}

/* Of the energy above what the GPU takes while it idles: idle_watts, or 0 for all of it. */
static double tokens_per_joule(const struct bench_row *row, double idle_watts) {
    const double above = row->watts - idle_watts;
    return row->joules_a_token > 0 && above > 0 ? row->watts / above / row->joules_a_token : 0;
}

static void print_energy(const struct bench_report *report) {
    if (report->no_energy) printf("energy was not measured: %s\n", report->no_energy);
    if (report->idle_watts <= 0) return;
    printf("energy of the whole GPU, over at least a second of each test; idle with the model "
           "loaded it takes %.0f W",
           report->idle_watts);
    for (int i = 0; i < report->n_rows; i++)
        printf("%s%.0f W", i ? ", " : "; during the tests ", report->rows[i].watts);
    printf("; tokens/J above idle");
    for (int i = 0; i < report->n_rows; i++)
        printf("%s%.2f", i ? ", " : " ", tokens_per_joule(&report->rows[i], report->idle_watts));
    printf("\n");
}

static void print_markdown(const struct bench_report *report) {
    const struct reel_model_info *info = report->info;
    char model[64], test[64], weights[WEIGHTS_TEXT];
    model_name(info, model, sizeof model);
    printf("| model | size | params | backend | threads | test | t/s | prompt t/s | decode t/s | "
           "p50 ms | p99 ms | first token ms | GB/s | %% of read bandwidth | tokens/J |\n");
    printf("| --- | ---: | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | "
           "---: | ---: | ---: "
           "|\n");
    for (int i = 0; i < report->n_rows; i++) {
        const struct bench_row *row = &report->rows[i];
        bench_test_name(&row->test, test, sizeof test);
        printf("| %s | %.2f MiB | %.2f M | %s %s | %d | %s | %.2f ± %.2f |", model,
               (double)info->weight_bytes / 1048576, (double)info->n_parameters / 1e6,
               info->backend, info->backend_path, info->n_threads, test, row->tokens_per_s,
               row->tokens_per_s_sd);
        cell(row->prompt_per_s, 1);
        cell(row->decode_per_s, 1);
        cell(row->p50_ms, 3);
        cell(row->p99_ms, 3);
        cell(row->first_token_ms, 3);
        cell(row->bytes_per_s / 1e9, 1);
        cell(share(report, row), 0);
        cell(tokens_per_joule(row, 0), 2);
        printf("\n");
    }
    weights_text(info, weights);
    printf("\nweights: %s; a token reads %.2f bits a weight; %s", weights, info->token_weight_bits,
           report->checked);
    if (report->read_bytes_per_s > 0)
        printf("; read bandwidth measured here: %.1f GB/s", report->read_bytes_per_s / 1e9);
    printf("; %s, %s; sampling is inside the times, tokenising is not\n", sampling_words(report),
           calls_words(report));
    print_drafts(report);
    print_energy(report);
}

static void print_csv(const struct bench_report *report) {
    const struct reel_model_info *info = report->info;
    char test[64];
    printf("model,family,weight_type,size_bytes,params,backend,path,threads,test,n_prompt,n_gen,"
           "depth,repeats,avg_ts,stddev_ts,median_ts,p50_ms,p99_ms,first_token_ms,"
           "prompt_ts,decode_ts,gb_per_s,"
           "read_bandwidth_gb_per_s,percent_of_read_bandwidth,tokens_per_joule,watts,"
           "idle_watts,ids,calls,device_weight_type,bits_per_weight\n");
    for (int i = 0; i < report->n_rows; i++) {
        const struct bench_row *row = &report->rows[i];
        bench_test_name(&row->test, test, sizeof test);
        printf("\"");
        for (const char *c = info->name; *c; c++)
            printf(*c == '"' ? "\"\"" : "%c", *c);
        printf("\",%s,%s,%llu,%llu,%s,%s,%d,%s,%d,%d,%d,%d,%.3f,%.3f,%.3f,%.4f,%.4f,%.4f,%.3f,%.3f,"
               "%.2f,%.2f,"
               "%.1f,%.4f,%.1f,%.1f,%s,%s,%s,%.3f\n",
               info->family, info->weight_type, (unsigned long long)info->weight_bytes,
               (unsigned long long)info->n_parameters, info->backend, info->backend_path,
               info->n_threads, test, row->test.n_prompt, row->test.n_gen, row->test.depth,
               row->repeats, row->tokens_per_s, row->tokens_per_s_sd, row->median_per_s,
               row->p50_ms, row->p99_ms, row->first_token_ms, row->prompt_per_s, row->decode_per_s,
               row->bytes_per_s / 1e9, report->read_bytes_per_s / 1e9, share(report, row),
               tokens_per_joule(row, 0), row->watts, report->idle_watts, sampling_words(report),
               calls_words(report), device_weights(info), info->token_weight_bits);
    }
}

static json_t *measured(double value) { return value > 0 ? json_real(value) : json_null(); }

static void print_json(const struct bench_report *report) {
    const struct reel_model_info *info = report->info;
    char test[64];
    json_t *rows = json_array();
    for (int i = 0; i < report->n_rows; i++) {
        const struct bench_row *row = &report->rows[i];
        bench_test_name(&row->test, test, sizeof test);
        json_array_append_new(
            rows,
            json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:f, "
                      "s:o, s:o}",
                      "test", test, "n_prompt", row->test.n_prompt, "n_gen", row->test.n_gen,
                      "depth", row->test.depth, "repeats", row->repeats, "avg_ts",
                      row->tokens_per_s, "stddev_ts", row->tokens_per_s_sd, "median_ts",
                      row->median_per_s, "p50_ms", row->p50_ms, "p99_ms", row->p99_ms,
                      "first_token_ms", row->first_token_ms, "prompt_ts",
                      measured(row->prompt_per_s), "decode_ts", measured(row->decode_per_s),
                      "gb_per_s", row->bytes_per_s / 1e9, "percent_of_read_bandwidth",
                      share(report, row), "tokens_per_joule", measured(tokens_per_joule(row, 0)),
                      "watts", measured(row->watts)));
    }
    json_t *all = json_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:I, s:I, s:s, s:s, s:i, s:s, s:s, s:s, s:f, s:o, s:o}", "model",
        info->name, "family", info->family, "weight_type", info->weight_type, "device_weight_type",
        device_weights(info), "bits_per_weight", info->token_weight_bits, "size_bytes",
        (json_int_t)info->weight_bytes, "params", (json_int_t)info->n_parameters, "backend",
        info->backend, "path", info->backend_path, "threads", info->n_threads, "checked",
        report->checked, "ids", sampling_words(report), "calls", calls_words(report),
        "read_bandwidth_gb_per_s", report->read_bytes_per_s / 1e9, "idle_watts",
        measured(report->idle_watts), "results", rows);
    if (all && json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0) printf("\n");
    json_decref(all);
}

void bench_print(const struct bench_report *report, enum bench_format format) {
    switch (format) {
    case BENCH_MARKDOWN:
        print_markdown(report);
        break;
    case BENCH_CSV:
        print_csv(report);
        break;
    case BENCH_JSON:
        print_json(report);
        break;
    }
}

/* llama-batched-bench's columns first, under its names, so that tables can be laid side by side;
 * ours after them. */
#include "cli/bench_parallel.h"
#include "cli/check.h"

#include <jansson.h>
#include <stdio.h>

/* What llama-batched-bench derives from the times. */
struct columns {
    int n_kv;                    /* positions that all sessions hold at the end */
    double s_pp, s_tg, t, s;     /* tokens a second; 0: there is no such figure */
    double session_per_s, per_j; /* generated tokens of one session; of all, for a joule */
};

static struct columns columns_of(const struct parallel_row *row) {
    const struct parallel_test *test = &row->test;
    const int b = test->n_sessions, readers = test->arrivals ? 1 : b;
    struct columns c = { .n_kv = b * (test->depth + test->n_gen) + readers * test->n_prompt };
    if (row->prompt_s > 0) c.s_pp = (double)readers * test->n_prompt / row->prompt_s;
    c.s_tg = row->gen_per_s;
    c.t = row->prompt_s + row->gen_s;
    if (test->arrivals)
        c.s = c.s_pp + c.s_tg;
    else
        c.s = (double)b * (test->n_prompt + test->n_gen) / c.t;
    c.session_per_s = row->gen_per_s / b;
    if (row->joules_a_token > 0) c.per_j = 1 / row->joules_a_token;
    return c;
}

static const char *sampling_words(const struct parallel_report *report) {
    return report->how->sampling.temperature > 0 ? "sampled" : "greedy";
}

static const char *calls_words(const struct parallel_report *report) {
    return report->how->one_at_a_time ? "one call a token" : "one call a run";
}

static const char *device_weights(const struct reel_model_info *info) {
    return info->device_weight_type ? info->device_weight_type : info->weight_type;
}

/* An empty cell where a test has no such figure. */
static void cell(double value, int decimals) {
    if (value > 0)
        printf(" %.*f |", decimals, value);
    else
        printf(" |");
}

static void print_legend(const struct parallel_report *report) {
    const struct reel_model_info *info = report->info;
    char weights[WEIGHTS_TEXT];
    weights_text(info, weights);
    printf("\n%s on %s %s, %d threads; weights: %s; %s; %s, %s; ids as each session makes them "
           "alone\n",
           info->name, info->backend, info->backend_path, info->n_threads, weights, report->checked,
           sampling_words(report), calls_words(report));
    if (report->rows[0].test.arrivals)
        printf(
            "a prompt of PP tokens after the other arrives while B sessions generate: T_PP until "
            "its first token; S_TG and the times of a token: the B sessions meanwhile\n");
    if (report->no_energy) printf("energy was not measured: %s\n", report->no_energy);
}

static void print_markdown(const struct parallel_report *report) {
    printf(
        "| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s | depth | "
        "t/s a session | first token ms | p50 ms | p99 ms | worst gap ms | tokens/J |\n| ---: |");
    for (int i = 0; i < 16; i++)
        printf(" ---: |");
    printf("\n");
    for (int i = 0; i < report->n_rows; i++) {
        const struct parallel_row *row = &report->rows[i];
        const struct columns c = columns_of(row);
        printf("| %d | %d | %d | %d |", row->test.n_prompt, row->test.n_gen, row->test.n_sessions,
               c.n_kv);
        cell(row->prompt_s, 3);
        cell(c.s_pp, 2);
        cell(row->gen_s, 3);
        cell(c.s_tg, 2);
        cell(c.t, 3);
        cell(c.s, 2);
        printf(" %d |", row->test.depth);
        cell(c.session_per_s, 2);
        cell(row->first_token_ms, 3);
        cell(row->p50_ms, 3);
        cell(row->p99_ms, 3);
        cell(row->worst_ms, 3);
        cell(c.per_j, 2);
        printf("\n");
    }
    print_legend(report);
}

static void print_csv(const struct parallel_report *report) {
    const struct reel_model_info *info = report->info;
    printf("model,family,weight_type,size_bytes,params,backend,path,threads,test,pp,tg,pl,n_kv,"
           "t_pp,speed_pp,t_tg,speed_tg,t,speed,depth,repeats,session_ts,first_token_ms,p50_ms,"
           "p99_ms,worst_gap_ms,tokens_per_joule,watts,ids,calls,device_weight_type\n");
    for (int i = 0; i < report->n_rows; i++) {
        const struct parallel_row *row = &report->rows[i];
        const struct columns c = columns_of(row);
        printf("\"");
        for (const char *at = info->name; *at; at++)
            printf(*at == '"' ? "\"\"" : "%c", *at);
        printf("\",%s,%s,%llu,%llu,%s,%s,%d,%s,%d,%d,%d,%d,%.6f,%.3f,%.6f,%.3f,%.6f,%.3f,%d,%d,"
               "%.3f,%.4f,%.4f,%.4f,%.4f,%.4f,%.1f,%s,%s,%s\n",
               info->family, info->weight_type, (unsigned long long)info->weight_bytes,
               (unsigned long long)info->n_parameters, info->backend, info->backend_path,
               info->n_threads, row->test.arrivals ? "arrivals" : "parallel", row->test.n_prompt,
               row->test.n_gen, row->test.n_sessions, c.n_kv, row->prompt_s, c.s_pp, row->gen_s,
               c.s_tg, c.t, c.s, row->test.depth, row->repeats, c.session_per_s,
               row->first_token_ms, row->p50_ms, row->p99_ms, row->worst_ms, c.per_j, row->watts,
               sampling_words(report), calls_words(report), device_weights(info));
    }
}

static json_t *measured(double value) { return value > 0 ? json_real(value) : json_null(); }

static void print_json(const struct parallel_report *report) {
    const struct reel_model_info *info = report->info;
    json_t *rows = json_array();
    for (int i = 0; i < report->n_rows; i++) {
        const struct parallel_row *row = &report->rows[i];
        const struct columns c = columns_of(row);
        json_array_append_new(
            rows,
            json_pack("{s:s, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:f, s:f, s:i, s:i, s:f, "
                      "s:o, s:o, s:o, s:o, s:o, s:o}",
                      "test", row->test.arrivals ? "arrivals" : "parallel", "pp",
                      row->test.n_prompt, "tg", row->test.n_gen, "pl", row->test.n_sessions, "n_kv",
                      c.n_kv, "t_pp", measured(row->prompt_s), "speed_pp", measured(c.s_pp), "t_tg",
                      measured(row->gen_s), "speed_tg", measured(c.s_tg), "t", c.t, "speed", c.s,
                      "depth", row->test.depth, "repeats", row->repeats, "session_ts",
                      c.session_per_s, "first_token_ms", measured(row->first_token_ms), "p50_ms",
                      measured(row->p50_ms), "p99_ms", measured(row->p99_ms), "worst_gap_ms",
                      measured(row->worst_ms), "tokens_per_joule", measured(c.per_j), "watts",
                      measured(row->watts)));
    }
    json_t *all = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:i, s:s, s:s, s:s, s:o}", "model", info->name,
        "family", info->family, "weight_type", info->weight_type, "device_weight_type",
        device_weights(info), "size_bytes", (json_int_t)info->weight_bytes, "params",
        (json_int_t)info->n_parameters, "backend", info->backend, "path", info->backend_path,
        "threads", info->n_threads, "checked", report->checked, "ids", sampling_words(report),
        "calls", calls_words(report), "results", rows);
    if (all && json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0) printf("\n");
    json_decref(all);
}

void parallel_print(const struct parallel_report *report, enum bench_format format) {
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

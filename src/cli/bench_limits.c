#include "cli/bench_limits.h"

#include "base/json.h"
#include "base/memory.h"
#include "cli/folders.h"
#include "cli/open_model.h"
#include "cli/progress.h"
#include "reel_measure.h"

#include <stdio.h>
#include <string.h>

static enum reel_status measure(const struct cli_args *args, bool only_read, json_t **all,
                                struct reel_error *err) {
    struct progress progress;
    struct cli_log log = { &progress, cli_has(args, "verbose") };
    char *cache = NULL, *text = NULL;
    struct reel_limits_options options = { .size = sizeof options,
                                           .device = cli_text(args, "device", NULL),
                                           .only_read = only_read,
                                           .progress = progress_update,
                                           .progress_user = &progress,
                                           .nvrtc_dir = cli_text(args, "nvrtc-dir", NULL),
                                           .log = cli_log,
                                           .log_user = &log };
    *all = NULL;
    if (strcmp(cli_text(args, "device", "gpu"), "cpu") == 0)
        return err_set(err, REEL_E_ARGUMENT, "--limits measures a GPU; --device cpu has none");
    if (!cli_has(args, "no-cache") && folder_of_cache(&cache, NULL) == REEL_OK &&
        folder_make(cache, NULL) == REEL_OK)
        options.cache_dir = cache;
    progress_start(&progress);
    enum reel_status status = reel_gpu_limits(&options, &text, err);
    progress_end(&progress);
    if (status == REEL_OK) status = json_read(all, "the GPU's limits", text, strlen(text), err);
    reel_free(text);
    mem_free(cache);
    return status;
}

static double real_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void print_read(const json_t *all) {
    const json_t *row = NULL;
    size_t i = 0;
    printf("\n| reading: in flight, KB a SM | GB/s |\n| ---: | ---: |\n");
    json_array_foreach(json_object_get(all, "read"), i, row) {
        printf("| %.0f | %.0f |\n", real_of(row, "in_flight_bytes") / 1024,
               real_of(row, "bytes_per_s") / 1e9);
    }
}

static void print_exchange(const json_t *all) {
    const json_t *row = NULL;
    size_t i = 0;
    printf("\n| exchange: SMs | words | copies in flight, KB a SM | us | copies, GB/s |\n"
           "| ---: | ---: | ---: | ---: | ---: |\n");
    json_array_foreach(json_object_get(all, "exchange"), i, row) {
        printf("| %.0f | %.0f | %.0f | %.2f | %.0f |\n", real_of(row, "readers"),
               real_of(row, "words"), real_of(row, "in_flight_bytes") / 1024, real_of(row, "us"),
               real_of(row, "copied_bytes_per_s") / 1e9);
    }
}

static void print_launch(const json_t *all) {
    const json_t *row = NULL;
    size_t i = 0;
    printf("\n| launch: blocks | call returns, us | a word is with the host, us | the host knows "
           "its end, us |\n| ---: | ---: | ---: | ---: |\n");
    json_array_foreach(json_object_get(all, "launch"), i, row) {
        printf("| %.0f | %.1f | %.1f | %.1f |\n", real_of(row, "blocks"), real_of(row, "call_us"),
               real_of(row, "word_us"), real_of(row, "end_us"));
    }
}

static void print_csv(const json_t *all) {
    static const char *const lists[] = { "read", "exchange", "launch" };
    printf("what,key,value\n");
    for (int l = 0; l < 3; l++) {
        const json_t *row = NULL, *value = NULL;
        const char *key = NULL;
        size_t i = 0;
        json_array_foreach(json_object_get(all, lists[l]), i, row) {
            json_object_foreach((json_t *)row, key, value) {
                printf("%s %zu,%s,%.6g\n", lists[l], i, key, json_number_value(value));
            }
        }
    }
}

enum reel_status bench_limits(const struct cli_args *args, struct reel_error *err) {
    json_t *all = NULL;
    const char *form = cli_text(args, "output", "md");
    enum reel_status status = measure(args, false, &all, err);
    if (status != REEL_OK) return status;
    if (strcmp(form, "json") == 0) {
        if (json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0) printf("\n");
    } else if (strcmp(form, "csv") == 0) {
        print_csv(all);
    } else {
        if (real_of(all, "gpus") > 1) printf("%.0f times ", real_of(all, "gpus"));
        printf("%s, %.0f SMs: reads at most %.0f GB/s\n",
               json_string_value(json_object_get(all, "gpu")), real_of(all, "sms"),
               real_of(all, "read_bytes_per_s") / 1e9);
        print_read(all);
        print_exchange(all);
        print_launch(all);
    }
    json_decref(all);
    return REEL_OK;
}

enum reel_status bench_gpu_read(const struct cli_args *args, double *bytes_per_s,
                                struct reel_error *err) {
    json_t *all = NULL;
    *bytes_per_s = 0;
    enum reel_status status = measure(args, true, &all, err);
    if (status == REEL_OK) *bytes_per_s = real_of(all, "read_bytes_per_s");
    json_decref(all);
    return status;
}

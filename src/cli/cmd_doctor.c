/* reel doctor: what this machine has, what is missing, and what to do about it. */
#include "base/memory.h"
#include "cli/check.h"
#include "cli/commands.h"
#include "cli/demo_model.h"
#include "cli/folders.h"
#include "cli/machine_text.h"
#include "reel_measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int n_problems(bool is_problem) { return is_problem ? 1 : 0; }

static int examine_memory(const json_t *devices) {
    const json_t *cpu = json_object_get(devices, "cpu");
    double available =
        (double)json_integer_value(json_object_get(cpu, "memory_available_bytes")) / 1e9;
    bool little = available > 0 && available < 2;
    if (little)
        printf("problem        %.1f GB of memory are free: a 0.6B model in bf16 needs about 2 GB\n",
               available);
    return n_problems(little);
}

/* Why is among the notes. */
static int examine_gpus(const json_t *devices) {
    const json_t *gpu = NULL;
    size_t i = 0;
    int n = 0;
    json_array_foreach(json_object_get(devices, "gpus"), i, gpu) {
        if (json_is_true(json_object_get(gpu, "usable"))) continue;
        printf("problem        gpu:%zu cannot be used\n", i);
        n++;
    }
    return n;
}

static int examine_bandwidth(void) {
    struct reel_error err;
    double rate = 0;
    if (reel_measure_read_bandwidth(0, &rate, &err) != REEL_OK) {
        printf("problem        read bandwidth: %s\n", err.text);
        return 1;
    }
    printf(
        "read bandwidth %.1f GB/s: at best %.0f tokens/s with 1.2 GB of weights (0.6B in bf16)\n",
        rate / 1e9, rate / 1.192e9);
    return 0;
}

static int examine_folder(const char *what,
                          enum reel_status (*find)(char **, struct reel_error *)) {
    struct reel_error err;
    char *path = NULL;
    enum reel_status status = find(&path, &err);
    if (status == REEL_OK) status = folder_make(path, &err);
    if (status == REEL_OK && access(path, W_OK) != 0) {
        snprintf(err.text, sizeof err.text, "%s: cannot be written: %s", path, strerror(errno));
        status = REEL_E_IO;
    }
    if (status == REEL_OK)
        printf("%-14s %s\n", what, path);
    else
        printf("problem        %s: %s\n", what, err.text);
    mem_free(path);
    return n_problems(status != REEL_OK);
}

static void describe_build(void) {
#ifdef REEL_WITH_CURL
    printf("downloads      reel pull is built in\n");
#else
    printf("downloads      left out of this build (MINIMAL=1): reel pull does nothing\n");
#endif
}

/* The model inside the program against its golden: is arithmetic right here at all? */
static int examine_demo(void) {
    struct reel_error err = { 0 };
    struct golden_result result = { 0 };
    struct reel_model *model = NULL;
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n), *golden = NULL;
    for (int i = 0; i < n; i++)
        if (strcmp(files[i].name, "golden.json") == 0) golden = &files[i];
    if (!golden) {
        printf("problem        this reel was built without the demo model\n");
        return 1;
    }
    enum reel_status status = reel_model_open_memory(&model, "demo", files, n, NULL, &err);
    if (status == REEL_OK)
        status = golden_check(model, golden->name, golden->bytes, golden->n_bytes, &result, &err);
    reel_model_close(model);
    if (status == REEL_OK)
        printf("demo model     %d greedy ids equal the golden\n",
               result.n_positions - result.n_ties);
    else
        printf("problem        the demo model: %s\n", err.text);
    return n_problems(status != REEL_OK);
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    json_t *devices = NULL;
    enum reel_status status = machine_read(&devices, args, err);
    if (status != REEL_OK) return status;
    machine_print(devices);
    describe_build();
    int problems = examine_memory(devices) + examine_gpus(devices) +
                   examine_folder("cache", folder_of_cache) +
                   examine_folder("state", folder_of_state) + examine_bandwidth() + examine_demo();
    json_decref(devices);
    if (problems > 0)
        return err_set(err, REEL_E_MISMATCH, "%d problem%s found", problems,
                       problems == 1 ? " was" : "s were");
    printf("nothing is missing\n");
    return REEL_OK;
}

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "say what this machine has and what is missing",
    .description =
        "Looks at the processor, memory and its bandwidth, GPUs with driver and compiler, reel's "
        "folders and what was built in, and runs the demo model against its golden. The exit "
        "status "
        "is 1 when something is wrong.",
    .groups = { &cli_compiler_group },
    .run = run,
};

/* reel verify: does this machine compute what it should? */
#include "base/file_map.h"
#include "cli/check.h"
#include "cli/commands.h"
#include "cli/demo_model.h"
#include "cli/model_path.h"
#include "cli/open_model.h"

#include <stdio.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "golden",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "compare with this golden file too; for demo, the one inside the program is used" },
    { .name = "positions",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 4096,
      .help = "positions to compare with the plain reference; default 16" },
};
static const struct cli_group group = CLI_GROUP("Checks", options);

static enum reel_status against_golden(const struct reel_model *model, const char *name,
                                       const void *bytes, size_t n_bytes, struct reel_error *err) {
    struct golden_result r;
    enum reel_status status = golden_check(model, name, bytes, n_bytes, &r, err);
    printf("golden     %s: %d tokenizer vectors, %d greedy ids, %d within the tie rule, %d "
           "unexplained, worst log-probability difference %.4f (allowed %.4f)\n",
           status == REEL_OK ? "ok" : "FAILED", r.n_texts, r.n_positions, r.n_ties, r.n_unexplained,
           r.worst_logprob, r.logprob_bound);
    if (r.made_with[0]) printf("           made with %s\n", r.made_with);
    return status;
}

static enum reel_status against_file(const struct reel_model *model, const char *path,
                                     struct reel_error *err) {
    struct file_map map = { 0 };
    enum reel_status status = file_map_open(&map, path, err);
    if (status == REEL_OK) status = against_golden(model, path, map.bytes, map.size, err);
    file_map_close(&map);
    return status;
}

static enum reel_status against_demo(const struct reel_model *model, struct reel_error *err) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    for (int i = 0; i < n; i++)
        if (strcmp(files[i].name, "golden.json") == 0)
            return against_golden(model, "demo golden", files[i].bytes, files[i].n_bytes, err);
    return err_set(err, REEL_E_NOT_FOUND, "this reel carries no golden of the demo model");
}

/* What rounding the weights for the device did to the model. The check against references that have
 * the same weights does not show it. */
static enum reel_status show_rounding(const struct reel_model_info *info,
                                      const struct cli_args *args, int n, struct reel_error *err) {
    const char *name = args->arguments[0];
    struct reference_result r = { 0 };
    struct reel_model *stored = NULL, *rounded = NULL;
    char text[WEIGHTS_TEXT];
    enum reel_status status =
        cli_model_open_reference(&stored, args, name, NULL, REEL_ROUNDING_EXACT, err);
    if (status == REEL_OK)
        status = cli_model_open_reference(&rounded, args, name, info->device_weight_type,
                                          REEL_ROUNDING_EXACT, err);
    if (status == REEL_OK) status = reference_distance(rounded, stored, n, &r, err);
    reel_model_close(rounded);
    reel_model_close(stored);
    if (status != REEL_OK) return status;
    weights_text(info, text);
    printf("weights    %s: rounding them moves the reference's logits by %.2g rms, %.2g at worst; "
           "same winner at %d of %d positions\n",
           text, r.rms, r.worst, r.n_same_winner, r.n_positions);
    return REEL_OK;
}

static enum reel_status against_reference(const struct reel_model *model,
                                          const struct cli_args *args, struct reel_error *err) {
    struct reference_result r;
    const int n = (int)cli_integer(args, "positions", 16);
    enum reel_status status = cli_check_positions(model, n, "--positions", err);
    if (status != REEL_OK) return status;
    status = reference_check_named(model, args, args->arguments[0], n, &r, err);
    printf("reference  %s: %d positions, same winner at %d, %d within the tie rule, logits differ "
           "by %.2g rms (allowed %.2g), %.2g at worst (allowed %.2g); bf16 arithmetic "
           "moves the reference's by %.2g rms\n",
           status == REEL_OK ? "ok" : "FAILED", r.n_positions, r.n_same_winner, r.n_ties, r.rms,
           r.rms_bound, r.worst, r.worst_bound, r.rounding_rms);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    struct reel_model *model = NULL;
    const char *name = args->arguments[0], *golden = cli_text(args, "golden", NULL);
    enum reel_status status = cli_model_open(&model, args, name, err);
    if (status == REEL_OK) {
        info = cli_model_info(model);
        printf("model      %s: %s, %s weights, on %s %s with %d threads\n", info.name, info.family,
               info.weight_type, info.backend, info.backend_path, info.n_threads);
        const char *device = info.device_weight_type;
        if (device && strcmp(device, info.weight_type) != 0)
            status = show_rounding(&info, args, (int)cli_integer(args, "positions", 16), err);
    }
    if (status == REEL_OK) status = against_reference(model, args, err);
    if (status == REEL_OK && golden) status = against_file(model, golden, err);
    if (status == REEL_OK && !golden && model_path_is_demo(name)) status = against_demo(model, err);
    reel_model_close(model);
    return status;
}

const struct cli_command cmd_verify = {
    .name = "verify",
    .arguments = "MODEL",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "check that this machine computes what it should",
    .description =
        "Compares all logits of a few positions with the plain reference, which has no fast "
        "arithmetic, no threads and here no rounding. Allowed is what follows from rounding: the "
        "reference also runs with each of its roundings to bf16, and the model may be 1.5 times as "
        "far "
        "from float32 as the further of the two, 2 times at its worst logit. Then, where there "
        "is a golden file (the demo model carries one), compares greedy ids, log-probabilities and "
        "token ids with what another program computed. tools/make_greedy_golden.py writes such "
        "files "
        "with Hugging Face transformers.\n\n"
        "Where a GPU holds weights as bf16 the references get the same rounded weights, and what "
        "rounding a quantised or wider file does to the logits is said in a line of its own.\n\n"
        "A different winner is accepted only as a tie: where the golden's two largest logits are "
        "within two bf16 steps of each other. The exit status is 1 when a check fails.",
    .groups = { &group, &cli_model_group },
    .run = run,
};

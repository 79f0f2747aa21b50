/* The program reel, whose text models make tokens by the clock: replicas for trials of what stands
 * in front of servers. Linked as reel is, but the opening of models goes through here. Speech
 * models stay as they are. The environment says the pace: PACED_TOKEN_MS     between two tokens of
 * a session (10) PACED_PROMPT_MS    for each token of a prompt (0) PACED_CONTEXT      positions
 * that a session may have (8192) */
#include "runtime/model_handle.h"

#include "cli/open_model.h"
#include "tests/support/paced_model.h"

#include <stdlib.h>

static double setting(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : otherwise;
}

/* The names that the linker's --wrap gives to a function and to its replacement. */
enum reel_status __real_cli_model_open(struct reel_model **model, const struct cli_args *args,
                                       const char *name, struct reel_error *err);
enum reel_status __wrap_cli_model_open(struct reel_model **model, const struct cli_args *args,
                                       const char *name, struct reel_error *err);

enum reel_status __wrap_cli_model_open(struct reel_model **model, const struct cli_args *args,
                                       const char *name, struct reel_error *err) {
    static struct paced paced;
    enum reel_status status = __real_cli_model_open(model, args, name, err);
    if (status != REEL_OK || (*model)->model.config.family == MODEL_QWEN3_ASR) return status;
    paced.token_ms = setting("PACED_TOKEN_MS", 10);
    paced.prompt_ms = setting("PACED_PROMPT_MS", 0);
    paced.max_context = (int)setting("PACED_CONTEXT", 8192);
    status = paced_model_make(*model, &paced, err);
    if (status == REEL_OK) return status;
    reel_model_close(*model);
    *model = NULL;
    return status;
}

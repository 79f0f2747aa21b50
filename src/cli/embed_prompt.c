#include "cli/embed_prompt.h"

#include "cli/input.h"
#include "cli/open_model.h"

#include <stdio.h>
#include <string.h>

/* Of Qwen3-Embedding's model card. */
#define WEB_SEARCH "Given a web search query, retrieve relevant passages that answer the query"

enum reel_status embed_prompt_check(const struct cli_args *args, struct reel_error *err) {
    const char *task = cli_text(args, "instruct", "");
    enum reel_status status = input_check("--instruct", task, strlen(task), err);
    if (status != REEL_OK || !cli_has(args, "prompt-name")) return status;
    if (!cli_has(args, "query") && !cli_has(args, "instruct")) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "--prompt-name and --%s exclude each other",
                   cli_has(args, "query") ? "query" : "instruct");
}

/* The text of that prompt; NULL: there is none. */
static const char *named(const struct reel_model *model, const char *name) {
    const char *text = NULL, *other;
    for (int i = 0; (other = reel_model_embed_prompt(model, i, &text)); i++)
        if (strcmp(other, name) == 0) return text;
    return NULL;
}

static enum reel_status refuse_name(const struct reel_model *model, const char *name,
                                    struct reel_error *err) {
    char list[200] = "";
    const char *other;
    for (int i = 0; (other = reel_model_embed_prompt(model, i, NULL)); i++) {
        const size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", other);
    }
    if (!list[0])
        return err_set(err, REEL_E_ARGUMENT, "--prompt-name %s: %s has no named prompts", name,
                       cli_model_info(model).name);
    return err_set(err, REEL_E_ARGUMENT, "--prompt-name %s: %s has %s", name,
                   cli_model_info(model).name, list);
}

enum reel_status embed_prompt(struct buffer *text, const struct cli_args *args,
                              const struct reel_model *model, struct reel_error *err) {
    struct reel_embed_info info = { .size = sizeof info };
    const char *task = cli_text(args, "instruct", NULL), *prompt = NULL;
    const char *name = cli_text(args, "prompt-name", NULL);
    enum reel_status status = reel_model_get_embed_info(model, &info, err);
    if (status == REEL_OK) status = buffer_text(text, "", err);
    if (status != REEL_OK) return status;
    if (!info.stated)
        fprintf(stderr, "note: %s does not say that it was made for embedding\n",
                cli_model_info(model).name);
    if (name && !named(model, name)) return refuse_name(model, name, err);
    if (!name && cli_has(args, "query") && !task && named(model, "query")) name = "query";
    if (!name && !cli_has(args, "query") && !task) name = info.default_prompt;
    if (name) prompt = named(model, name);
    if (prompt) return buffer_text(text, prompt, err);
    if (!cli_has(args, "query") && !task) return REEL_OK;
    return buffer_printf(text, err, "Instruct: %s\nQuery:", task ? task : WEB_SEARCH);
}

/* Families whose template is a loop over messages: SmolLM2, and plain ChatML by override. */
#include "model/chat_render.h"

#include <string.h>

/* Jinja would leave these out without a word. */
static bool refuse_tools(struct chat_job *job) {
    bool tools = job->options.tools != NULL;
    for (int i = 0; i < job->n_messages; i++)
        tools = tools || job->messages[i].tool_calls;
    if (!tools) return false;
    job->status = err_set(job->err, REEL_E_UNSUPPORTED, "the %s chat template has no tools",
                          chat_family_name(job->chat->family));
    return true;
}

void chat_render_chatml(struct chat_job *job) {
    if (refuse_tools(job)) return;
    for (int i = 0; i < job->n_messages; i++) {
        const struct reel_message *m = &job->messages[i];
        chat_put_template(job, "<|im_start|>");
        chat_put_template(job, m->role);
        chat_put_template(job, "\n");
        if (m->content) chat_put_message(job, m->content, strlen(m->content));
        chat_put_template(job, "<|im_end|>\n");
    }
    if (!job->options.no_generation_prompt) chat_put_template(job, "<|im_start|>assistant\n");
}

void chat_render_smollm2(struct chat_job *job) {
    if (strcmp(job->messages[0].role, "system") != 0)
        chat_put_literal(job, "'<|im_start|>system\n");
    if (job->status == REEL_OK) chat_render_chatml(job);
}

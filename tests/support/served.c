#include "tests/support/served.h"

#include "cli/demo_model.h"
#include "tests/support/fake_backend.h"

#include <string.h>

static enum reel_status open_source(void *user, struct reel_model **model, struct reel_error *err) {
    const struct served_source *source = user;
    if (source->fake) {
        *model = fake_model_open(source->fake, err);
        return *model ? REEL_OK : err->status;
    }
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .n_threads = 1,
                                                .chat_template = source->chat_template };
    if (source->folder) return reel_model_open(model, source->folder, &options, err);
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    return reel_model_open_memory(model, source->name, files, n, &options, err);
}

static void close_source(void *user, struct reel_model *model) {
    const struct served_source *source = user;
    if (source->fake)
        fake_model_close(model);
    else
        reel_model_close(model);
}

bool served_open(struct served *s) {
    int n = 0;
    if (!s->sources[0].name)
        s->sources[0] = (struct served_source){ .name = "demo", .chat_template = "chatml" };
    for (; n < SERVED_MOST && s->sources[n].name; n++)
        s->models[n] = (struct server_model){ .name = s->sources[n].name,
                                              .open = open_source,
                                              .user = &s->sources[n] };
    if (s->draft.name) {
        s->options.open_draft = open_source;
        s->options.draft_user = &s->draft;
    }
    s->options.models = s->models;
    s->options.n_models = n;
    if (server_open(&s->server, &s->options, &s->err) != REEL_OK) return false;
    s->port = server_port(s->server);
    return server_load(s->server, &s->err) == REEL_OK;
}

void served_close(struct served *s) {
    server_close(s->server, close_source);
    s->server = NULL;
}

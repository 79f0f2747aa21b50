/* usage: generate MODEL PROMPT - prints how the model goes on. Builds as C and as C++. */
#include <reel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_token(void *user, const struct reel_token *token) {
    return fwrite(token->text, 1, token->text_bytes, (FILE *)user) == token->text_bytes;
}

static void check(enum reel_status status, const struct reel_error *err) {
    if (status == REEL_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit((int)status);
}

int main(int argc, char **argv) {
    struct reel_error err;
    struct reel_model *model;
    struct reel_session *session;
    struct reel_generation generation;
    int32_t ids[512];
    size_t n_ids;
    if (argc != 3) return fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;

    check(reel_model_open(&model, argv[1], NULL, &err), &err);
    check(reel_session_open(&session, model, NULL, &err), &err);
    check(reel_encode(reel_model_tokenizer(model), argv[2], strlen(argv[2]), 0, ids, 512, &n_ids,
                      &err),
          &err);
    check(reel_session_sync(session, ids, (int)n_ids, NULL, &err), &err);

    memset(&generation, 0, sizeof generation);
    generation.size = sizeof generation;
    generation.max_tokens = 64;
    generation.on_token = print_token;
    generation.user = stdout;
    check(reel_generate(session, &generation, NULL, &err), &err);
    printf("\n");
    reel_session_close(session);
    reel_model_close(model);
    return 0;
}

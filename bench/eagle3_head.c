/* EAGLE-3 heads of synthetic weights: for measuring what guesses cost, and what a head tells, for
 * bench/gpu/eagle3.py.
 *
 *   eagle3_head write MODEL FOLDER IDS
 *     Makes FOLDER: a head whose layer is as MODEL's layers are, and which guesses among IDS ids.
 *   eagle3_head tell MODEL FOLDER DEVICE OPTIONS CACHE N OUT
 *     Lets MODEL evaluate the N ids (37 i i + 11 i + 5) % vocab in pieces of many lengths, and asks
 *     the head behind each piece for one, two or three guesses. Writes to OUT for each piece: i32
 *     positions, guesses, 3 ids; f32 the logits that the last guess came from.
 *
 * The exit status is 0 only when all went well. */
#include "support/eagle3_head.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "runtime/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int say(const struct reel_error *err) {
    fprintf(stderr, "eagle3_head: %s\n", err->text);
    return 1;
}

static int write_head(char **argv) {
    struct reel_error err = { 0 };
    struct model_source source;
    struct model_config config;
    enum reel_status status = model_source_open(&source, argv[2], &err);
    if (status == REEL_OK) {
        status = model_config_read(&config, &source, &err);
        model_source_release(&source);
    }
    if (status != REEL_OK) return say(&err);
    const struct eagle3_head head = { .model = &config, .n_ids = atoi(argv[4]) };
    if ((mkdir(argv[3], 0777) == 0 || errno == EEXIST) && eagle3_head_write(argv[3], &head))
        return 0;
    fprintf(stderr, "eagle3_head: %s: %s\n", argv[3], strerror(errno));
    return 1;
}

/* Pieces of 1, 3, 9, 40, 1, ... positions. */
static enum reel_status tell_pieces(struct reel_session *s, const int32_t *ids, int n,
                                    float *logits, FILE *out, struct reel_error *err) {
    static const int pieces[] = { 1, 3, 9, 40 };
    const int n_logits = s->model->model.weights.draft.head.rows;
    for (int at = 0, i = 0; at < n - 1; i++) {
        const int to = int_min(at + pieces[i % 4], n - 1), most = 1 + i % 3;
        int32_t facts[5] = { to, most };
        const enum reel_status status = reel_session_sync(s, ids, to, NULL, err);
        if (status != REEL_OK) return status;
        if (s->model->ops->guess(s->state, to, ids[to], facts + 2, most, logits) != most)
            return err_set(err, REEL_E_STATE, "%d positions: the head does not guess", to);
        if (fwrite(facts, sizeof facts, 1, out) != 1 ||
            fwrite(logits, sizeof *logits, (size_t)n_logits, out) != (size_t)n_logits)
            return err_set(err, REEL_E_IO, "the file cannot be written");
        at = to;
    }
    return REEL_OK;
}

static int tell(char **argv) {
    struct reel_error err = { 0 };
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = argv[4],
                                                .gpu_options = argv[5][0] ? argv[5] : NULL,
                                                .cache_dir = argv[6][0] ? argv[6] : NULL,
                                                .draft_head = argv[3] };
    const int n = atoi(argv[7]);
    const struct reel_session_options o = { .size = sizeof o,
                                            .max_context = n + 8,
                                            .speculation = REEL_SPECULATION_EAGLE3 };
    struct reel_model *model = NULL;
    struct reel_session *s = NULL;
    int32_t *ids = NULL;
    float *logits = NULL;
    FILE *out = fopen(argv[8], "wb");
    enum reel_status status =
        out ? REEL_OK : err_set(&err, REEL_E_IO, "%s: cannot be made", argv[8]);
    if (status == REEL_OK) status = reel_model_open(&model, argv[2], &options, &err);
    if (status == REEL_OK) status = reel_session_open(&s, model, &o, &err);
    if (status == REEL_OK) status = mem_zeroed(&ids, (size_t)n, sizeof *ids, "ids", &err);
    if (status == REEL_OK)
        status = mem_zeroed(&logits, (size_t)model->model.weights.draft.head.rows, sizeof *logits,
                            "logits", &err);
    for (int i = 0; i < n && status == REEL_OK; i++)
        ids[i] = (37 * i * i + 11 * i + 5) % model->model.config.vocab;
    if (status == REEL_OK) status = tell_pieces(s, ids, n, logits, out, &err);
    if (out && fclose(out) != 0 && status == REEL_OK)
        status = err_set(&err, REEL_E_IO, "%s: cannot be written", argv[8]);
    reel_session_close(s);
    reel_model_close(model);
    mem_free(ids);
    mem_free(logits);
    return status == REEL_OK ? 0 : say(&err);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "write") == 0) return write_head(argv);
    if (argc == 9 && strcmp(argv[1], "tell") == 0) return tell(argv);
    fprintf(stderr, "usage: eagle3_head write MODEL FOLDER IDS\n"
                    "       eagle3_head tell MODEL FOLDER DEVICE OPTIONS CACHE N OUT\n");
    return 2;
}

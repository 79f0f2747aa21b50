#define _DEFAULT_SOURCE /* mkdtemp */
#include "support/speech_model.h"

#include "reel_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int speech_model_open(struct speech_model *m, int n_threads) {
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .n_threads = n_threads };
    struct reel_error err = { 0 };
    strcpy(m->root, "/tmp/reel-speech-XXXXXX");
    if (!mkdtemp(m->root)) return -1;
    snprintf(m->folder, sizeof m->folder, "%s/model", m->root);
    enum reel_status status =
        reel_synthesize(m->folder, "tests/golden/models/asr-a.json", 1, NULL, NULL, &err);
    if (status == REEL_OK) status = reel_model_open(&m->model, m->folder, &options, &err);
    if (status != REEL_OK) fprintf(stderr, "%s\n", err.text);
    return status == REEL_OK ? 0 : -1;
}

int speech_model_close(struct speech_model *m) {
    char command[100];
    reel_model_close(m->model);
    snprintf(command, sizeof command, "rm -rf '%s'", m->root);
    return system(command) == 0 ? 0 : -1;
}

/* Words that stand for something on this machine: models at hand and devices. All are read from the
 * names of files and folders; no model and no driver is opened, so that a shell can ask at each
 * Tab.
 */
#ifndef REEL_CLI_KNOWN_WORDS_H
#define REEL_CLI_KNOWN_WORDS_H

#include "base/error.h"

struct word_list {
    char **words; /* [n], each once; then a NULL */
    int n;
};
void word_list_release(struct word_list *list);

/* The models inside the program, then those of model_list_read, in letters that mean nothing to a
 * shell. A cache that cannot be read has none. */
enum reel_status known_models(struct word_list *list, struct reel_error *err);

/* What --device takes here: auto, cpu, gpu, and gpu:N for each GPU that the folder `gpus` has an
 * entry of; NULL is where Linux lists those of NVIDIA's driver. */
enum reel_status known_devices(struct word_list *list, const char *gpus, struct reel_error *err);

/* *name (caller frees) = the model at hand whose name is nearest to what was typed, with or without
 * its owner; NULL when none is near. */
void known_model_near(char **name, const char *typed);

#endif

/* Texts that a command takes one by one: arguments, whole files, lines. */
#ifndef REEL_CLI_TEXT_LIST_H
#define REEL_CLI_TEXT_LIST_H

#include "base/error.h"

struct listed_text {
    char *text; /* UTF-8, terminated */
    size_t n;
    const char *origin; /* borrowed: the file, or "the text after the model" */
    int line;           /* of it, from 1 on; 0: the whole of it, */
    int argument;       /* or the argument of this number, from 1 on; 0: none */
};

struct text_list {
    struct listed_text *texts;
    int n, room;
};

/* number: of the argument behind the model, from 1 on. */
enum reel_status text_list_add_argument(struct text_list *list, const char *text, int number,
                                        struct reel_error *err);
/* path "-" is standard input. */
enum reel_status text_list_add_file(struct text_list *list, const char *path,
                                    struct reel_error *err);
/* Every line, an empty one too; a carriage return at its end is left out. */
enum reel_status text_list_add_lines(struct text_list *list, const char *path,
                                     struct reel_error *err);
void text_list_release(struct text_list *list);

/* "notes.txt, line 17" */
#define TEXT_LIST_PLACE 160
const char *text_list_place(const struct listed_text *text, char place[TEXT_LIST_PLACE]);

#endif

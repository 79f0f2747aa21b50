/* Names of a hub: repositories, the files in them, and which of those a word means. Nothing here
 * touches a disk or a network. */
#ifndef REEL_CLI_HUB_NAME_H
#define REEL_CLI_HUB_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define HUB_MAX_REPO  200 /* bytes of OWNER/NAME with its end */
#define HUB_MAX_LABEL 64

/* What stands for a model of a hub: OWNER/NAME, or OWNER/NAME:WHAT. */
struct hub_name {
    char repo[HUB_MAX_REPO];
    const char *what; /* a quantisation, file or sub-folder; borrowed; NULL: none was said */
};

/* Whether text has that form. */
bool hub_name_parse(struct hub_name *name, const char *text);

/* Whether text is "owner/name" in the letters that a hub accepts, and nothing more. */
bool hub_is_repo(const char *text);

/* Whether a path from a hub stays inside its folder and can be a file's name here: parts between
 * single slashes, none of them empty or starting with a dot, of letters, digits and common signs.
 */
bool hub_path_is_safe(const char *path);

bool hub_ends_with(const char *text, const char *suffix);

/* "Q4_K_M" of "sub/Model-Q4_K_M.gguf"; where the name ends in no quantisation, all of it without
 * folders and ending. */
void hub_label(const char *path, char label[HUB_MAX_LABEL]);

/* How well `what` names the .gguf file at `path`; 0: not at all. The whole path counts most, then
 * the file's name, its label, and then any ending of its name that a '-', '.' or '_' begins. Large
 * and small letters are the same but in the first two. */
int hub_match(const char *path, const char *what);

/* The part count of a GGUF file that is cut into several ("-00001-of-00003.gguf"); 1 otherwise. */
int hub_parts(const char *path);

/* A GGUF file that accompanies a model and is none: the projector of an image encoder, or the
 * importance matrix of a quantisation. */
bool hub_is_companion(const char *path);

#endif

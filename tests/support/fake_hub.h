/* A hub on loopback: repositories of files in memory, with the listing, the addresses and the
 * refusals of a real one. Running out of memory aborts: this is test code. */
#ifndef REEL_TESTS_FAKE_HUB_H
#define REEL_TESTS_FAKE_HUB_H

#include "support/http_stub.h"

struct fake_hub;

struct fake_hub *fake_hub_open(void);
void fake_hub_close(struct fake_hub *hub);
const char *fake_hub_url(const struct fake_hub *hub);

/* Adds a file (copied), or replaces it; the repository then has another commit. */
void fake_hub_add(struct fake_hub *hub, const char *repo, const char *path, const void *bytes,
                  size_t n_bytes);
void fake_hub_add_text(struct fake_hub *hub, const char *repo, const char *path, const char *text);
/* Files of a folder on disk: those of the list, up to a NULL. */
void fake_hub_add_folder(struct fake_hub *hub, const char *repo, const char *folder,
                         const char *const *names);

/* Only this token reads the repository's files; anybody reads its listing. */
void fake_hub_gate(struct fake_hub *hub, const char *repo, const char *token);

/* The next `times` requests whose address contains `part` get this answer. */
void fake_hub_trouble(struct fake_hub *hub, const char *part, int times, struct http_reply reply);

/* From now on the hub is honest again. */
void fake_hub_trouble_ends(struct fake_hub *hub);

/* What the hub says that a repository holds; lives as long as the hub. */
const char *fake_hub_listing(struct fake_hub *hub, const char *repo);

/* Requests whose address contained the part, and bytes of all bodies that were sent. */
int fake_hub_asked(struct fake_hub *hub, const char *part);
size_t fake_hub_sent(const struct fake_hub *hub);
int fake_hub_most_at_once(const struct fake_hub *hub);
/* Whether any request carried this token. */
bool fake_hub_saw_token(struct fake_hub *hub, const char *token);

#endif

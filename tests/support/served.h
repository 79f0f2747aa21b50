/* A server in the test's own process, on a free port, over the demo model or others. */
#ifndef REEL_TESTS_SERVED_H
#define REEL_TESTS_SERVED_H

#include "reel.h"
#include "server/server.h"

#define SERVED_MOST 4

struct fake_settings;

struct served_source {
    const char *name;
    const char *folder;         /* NULL: the demo model of this program */
    const char *chat_template;  /* or NULL */
    struct fake_settings *fake; /* or NULL; a model of fake_backend.h instead */
};

struct served {
    struct server *server;
    int port;
    struct server_options options; /* may be set before served_open; models are filled in */
    struct served_source sources[SERVED_MOST];
    struct served_source draft; /* guesses for them; without a name there is none */
    struct server_model models[SERVED_MOST];
    struct reel_error err; /* why served_open gave false */
};

/* Opens the server and loads the sources; without any, "demo" with the template chatml. */
bool served_open(struct served *s);
void served_close(struct served *s);

#endif

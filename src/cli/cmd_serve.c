/* reel serve: models over HTTP. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "server/server.h"

#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/input.h"
#include "cli/model_path.h"
#include "cli/open_model.h"
#include "cli/service.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MOST_MODELS    16
#define MOST_NAMES     32
#define MOST_KEYS      256
#define MOST_KEY_BYTES ((size_t)1 << 20)
#define DRAIN_SECONDS  60

static const struct cli_option options[] = {
    { .name = "config",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "read options from FILE: lines \"name = value\" with these names, and \"model = "
              "[NAME=]MODEL\"; what is typed wins" },
    { .name = "host",
      .kind = CLI_TEXT,
      .argument = "ADDRESS",
      .others = "bind listen",
      .help = "address to listen at; default 127.0.0.1, which this machine alone reaches" },
    { .name = "port",
      .letter = 'p',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 65535,
      .help = "port to listen at; 0 takes one that is free; default 8080" },
    { .name = "alias",
      .kind = CLI_TEXT,
      .argument = "NAME=MODEL",
      .repeats = true,
      .help = "another NAME for a model that is served; may be given several times" },
    { .name = "sessions",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 256,
      .others = "parallel max-num-seqs slots",
      .help = "conversations that a model holds, each with its own context; default 4" },
    { .name = "queue",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 4096,
      .help = "requests that may wait for a session; more are answered with 503; default 64" },
    { .name = "prefix-dir",
      .kind = CLI_TEXT,
      .argument = "FOLDER",
      .help = "keep what sessions hold here, from 512 tokens on, so that long prompts need no "
              "evaluation after a restart; the folder must be yours alone" },
    { .name = "prefix-bytes",
      .kind = CLI_INTEGER,
      .argument = "BYTES",
      .least = 1 << 20,
      .most = INT64_MAX,
      .help = "of all files in --prefix-dir; those not used for longest go first; default "
              "4294967296 (4 GiB)" },
};
static const struct cli_group group = CLI_GROUP("Server", options);

static const struct cli_option access_options[] = {
    { .name = "api-key",
      .kind = CLI_TEXT,
      .argument = "KEY",
      .repeats = true,
      .help = "answer only requests with this key; other users of this machine can see it, "
              "--api-key-file hides it" },
    { .name = "api-key-file",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "the keys are the lines of FILE; read again on SIGHUP" },
    { .name = "insecure",
      .kind = CLI_FLAG,
      .help = "listen without a key at an address that others reach" },
    { .name = "cors-origin",
      .kind = CLI_TEXT,
      .argument = "ORIGIN",
      .repeats = true,
      .help = "pages of ORIGIN, such as https://example.org, may ask; * lets all; default: none "
              "but the server's own" },
    { .name = "tls-cert",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "speak TLS with this certificate (PEM); needs --tls-key" },
    { .name = "tls-key",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "private key of --tls-cert (PEM)" },
};
static const struct cli_group access_group = CLI_GROUP("Access", access_options);

static const struct cli_option limit_options[] = {
    { .name = "max-connections",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 1 << 20,
      .help = "connections at once; default 2048" },
    { .name = "max-body",
      .kind = CLI_INTEGER,
      .argument = "BYTES",
      .least = 1024,
      .most = (int64_t)4 << 30,
      .help = "of one request; default 67108864 (64 MiB)" },
    { .name = "max-audio-seconds",
      .kind = CLI_REAL,
      .argument = "SECONDS",
      .low = 1,
      .high = 864000,
      .help = "of one recording, decoded; default 14400 (4 hours)" },
    { .name = "timeout",
      .kind = CLI_INTEGER,
      .argument = "SECONDS",
      .least = 1,
      .most = 86400,
      .help = "how long a request may take to arrive, and a connection may be idle; default 60" },
    { .name = "log",
      .kind = CLI_CHOICE,
      .argument = "FORMAT",
      .choices = "text json none",
      .help = "a line for each request on standard error, without contents: text, json or none; "
              "default text" },
};
static const struct cli_group limit_group = CLI_GROUP("Limits and log", limit_options);

#ifdef REEL_WITH_SERVER

struct serve;

struct served {
    struct serve *serve;
    const char *given; /* what is opened */
    char *name;
    const char *aliases[MOST_NAMES];
    int n_aliases;
};

struct serve {
    const struct cli_args *args;  /* with what --config says */
    const struct cli_args *typed; /* without */
    struct served served[MOST_MODELS];
    struct server_model models[MOST_MODELS];
    int n;
    struct buffer key_file;
    const char *keys[MOST_KEYS];
    int n_keys;
    bool asks_for_keys; /* from the start */
    const char *origins[MOST_NAMES];
    struct buffer tls_cert, tls_key;
    bool quiet;
    struct server *server;
    pthread_t loader;
    enum reel_status loaded; /* known when the loader has ended */
    atomic_bool ending;
    atomic_bool failed; /* loading */
    struct reel_error load_error;
};

/* ---- models ---- */

static enum reel_status open_served(void *user, struct reel_model **model, struct reel_error *err) {
    struct served *s = user;
    return cli_model_open(model, s->serve->args, s->given, err);
}

static enum reel_status open_draft(void *user, struct reel_model **model, struct reel_error *err) {
    const struct serve *serve = user;
    return cli_draft_open(model, NULL, serve->args, err);
}

static void close_served(void *user, struct reel_model *model) {
    (void)user;
    reel_model_close(model);
}

/* What clients call it: NAME of NAME=MODEL; else a file's or folder's own name, as paths are nobody
 * else's business, or what was typed where that is a name on a hub. */
static enum reel_status name_of(struct served *s, const char *typed, struct reel_error *err) {
    const char *equals = strchr(typed, '=');
    s->given = typed;
    if (equals && equals != typed && access(typed, F_OK) != 0) {
        s->given = equals + 1;
        return mem_text(&s->name, typed, (size_t)(equals - typed), "a model's name", err);
    }
    size_t end = strlen(typed);
    const char *at = typed;
    if (access(typed, F_OK) == 0) {
        while (end > 1 && typed[end - 1] == '/')
            end--;
        for (size_t i = 0; i < end; i++)
            if (typed[i] == '/') at = typed + i + 1;
        if (end > 5 && strncmp(typed + end - 5, ".gguf", 5) == 0) end -= 5;
    }
    return mem_text(&s->name, at, (size_t)(typed + end - at), "a model's name", err);
}

static enum reel_status add_aliases(struct serve *serve, struct reel_error *err) {
    const char *alias = NULL;
    for (int i = 0; (alias = cli_repeated(serve->args, "alias", i)); i++) {
        const char *equals = strchr(alias, '=');
        struct served *found = NULL;
        for (int j = 0; equals && j < serve->n; j++)
            if (strcmp(serve->served[j].name, equals + 1) == 0 ||
                strcmp(serve->served[j].given, equals + 1) == 0)
                found = &serve->served[j];
        if (!found || found->n_aliases == MOST_NAMES)
            return err_set(err, REEL_E_ARGUMENT,
                           "--alias %s: it must be NAME=MODEL, where MODEL is one that is served",
                           alias);
        /* the table keeps whole words: the name is cut off in a copy */
        char *name = NULL;
        enum reel_status status = mem_text(&name, alias, (size_t)(equals - alias), "an alias", err);
        if (status != REEL_OK) return status;
        found->aliases[found->n_aliases++] = name;
    }
    return REEL_OK;
}

static enum reel_status read_models(struct serve *serve, struct reel_error *err) {
    const struct cli_args *args = serve->args;
    enum reel_status status = REEL_OK;
    for (int i = 0; i < args->n_arguments && status == REEL_OK; i++) {
        struct served *s = &serve->served[serve->n++];
        s->serve = serve;
        status = name_of(s, args->arguments[i], err);
    }
    if (status == REEL_OK) status = add_aliases(serve, err);
    for (int i = 0; i < serve->n && status == REEL_OK; i++) {
        struct served *s = &serve->served[i];
        serve->models[i] =
            (struct server_model){ s->name, s->aliases, s->n_aliases, open_served, s };
    }
    return status;
}

/* ---- keys and files ---- */

static enum reel_status add_key(struct serve *serve, const char *key, struct reel_error *err) {
    if (serve->n_keys == MOST_KEYS)
        return err_set(err, REEL_E_LIMIT, "there are more than %d keys", MOST_KEYS);
    serve->keys[serve->n_keys++] = key;
    return REEL_OK;
}

/* Each line a key; empty lines and those that begin with # are none. */
static enum reel_status read_key_file(struct serve *serve, const char *path,
                                      struct reel_error *err) {
    struct buffer file = { 0 };
    char *rest = NULL;
    enum reel_status status = input_read_path(path, MOST_KEY_BYTES, &file, err);
    buffer_release(&serve->key_file);
    serve->key_file = file;
    if (status != REEL_OK) return status;
    char *line = file.bytes ? strtok_r(file.bytes, "\r\n", &rest) : NULL;
    for (; line && status == REEL_OK; line = strtok_r(NULL, "\r\n", &rest))
        if (line[0] != '#') status = add_key(serve, line, err);
    if (status == REEL_OK && serve->n_keys == 0)
        return err_set(err, REEL_E_FORMAT, "%s: there is no key in it", path);
    return status;
}

static enum reel_status read_keys(struct serve *serve, const struct cli_args *args,
                                  struct reel_error *err) {
    const char *path = cli_text(args, "api-key-file", NULL), *key = NULL;
    enum reel_status status = REEL_OK;
    serve->n_keys = 0;
    if (path) status = read_key_file(serve, path, err);
    for (int i = 0; status == REEL_OK && (key = cli_repeated(args, "api-key", i)); i++)
        status =
            key[0] ? add_key(serve, key, err) : err_set(err, REEL_E_ARGUMENT, "--api-key is empty");
    return status;
}

static enum reel_status read_tls(struct serve *serve, struct reel_error *err) {
    const char *cert = cli_text(serve->args, "tls-cert", NULL);
    const char *key = cli_text(serve->args, "tls-key", NULL);
    if (!cert && !key) return REEL_OK;
    if (!cert || !key) return err_set(err, REEL_E_ARGUMENT, "--tls-cert and --tls-key go together");
    enum reel_status status = input_read_path(cert, MOST_KEY_BYTES, &serve->tls_cert, err);
    if (status != REEL_OK) return status;
    return input_read_path(key, MOST_KEY_BYTES, &serve->tls_key, err);
}

/* ---- running ---- */

static void on_log(void *user, enum server_log_kind kind, const char *line) {
    const struct serve *serve = user;
    if (kind == SERVER_LOG_ACCESS && serve->quiet) return;
    fprintf(stderr, kind == SERVER_LOG_ACCESS ? "%s\n" : "reel: %s\n", line);
}

static void *load(void *user) {
    struct serve *serve = user;
    serve->loaded = server_load(serve->server, &serve->load_error);
    if (serve->loaded == REEL_OK) service_notify("READY=1");
    if (serve->loaded == REEL_E_CANCELLED) serve->loaded = REEL_OK; /* it was asked to end */
    if (serve->loaded == REEL_OK) return NULL;
    atomic_store(&serve->failed, true);
    if (!atomic_load(&serve->ending)) kill(getpid(), SIGTERM);
    return NULL;
}

static enum reel_status open_server(struct serve *serve, struct reel_error *err) {
    const struct cli_args *args = serve->args;
    const char *log = cli_text(args, "log", "text");
    int n_origins = 0;
    while (n_origins < MOST_NAMES && cli_repeated(args, "cors-origin", n_origins)) {
        serve->origins[n_origins] = cli_repeated(args, "cors-origin", n_origins);
        n_origins++;
    }
    serve->quiet = strcmp(log, "none") == 0;
    struct server_options o = {
        .host = cli_text(args, "host", NULL),
        .port = (int)cli_integer(args, "port", 8080),
        .models = serve->models,
        .n_models = serve->n,
        .keys = serve->keys,
        .n_keys = serve->n_keys,
        .insecure = cli_has(args, "insecure"),
        .origins = serve->origins,
        .n_origins = n_origins,
        .max_connections = (int)cli_integer(args, "max-connections", 0),
        .max_body = (size_t)cli_integer(args, "max-body", 0),
        .max_audio_seconds = cli_real(args, "max-audio-seconds", 0),
        .queue = (int)cli_integer(args, "queue", 0),
        .timeout_s = (int)cli_integer(args, "timeout", 0),
        .sessions = (int)cli_integer(args, "sessions", 0),
        .context = (int)cli_integer(args, "ctx", 0),
        .tls_cert = serve->tls_cert.bytes,
        .tls_key = serve->tls_key.bytes,
        .prefix_dir = cli_text(args, "prefix-dir", NULL),
        .prefix_bytes = (size_t)cli_integer(args, "prefix-bytes", 0),
        .speculation = cli_speculation(args, REEL_SPECULATION_AUTO),
        .most_drafts = (int)cli_integer(args, "draft-max", 0),
        .open_draft = open_draft,
        .draft_user = serve,
        .log_json = strcmp(log, "json") == 0,
        .log = on_log,
        .log_user = serve,
    };
    return server_open(&serve->server, &o, err);
}

/* A file that was emptied by mistake must not let everybody in. */
static enum reel_status set_keys(struct serve *serve, struct reel_error *err) {
    if (serve->n_keys == 0 && serve->asks_for_keys)
        return err_set(err, REEL_E_ARGUMENT, "there is no key any more");
    return server_set_keys(serve->server, serve->keys, serve->n_keys, err);
}

/* Those of --api-key-file, and the lines of --config that say keys or that file. */
static void read_keys_again(struct serve *serve) {
    const char *config = cli_text(serve->typed, "config", NULL);
    struct config_file file = { 0 };
    struct reel_error err = { 0 };
    enum reel_status status = REEL_OK;
    if (config) status = config_file_read(&file, serve->typed, config, &err);
    if (status == REEL_OK) status = read_keys(serve, config ? &file.args : serve->args, &err);
    if (status == REEL_OK) status = set_keys(serve, &err);
    if (status == REEL_OK)
        fprintf(stderr, "reel: the keys were read again\n");
    else
        fprintf(stderr, "reel: %s; the keys stay as they were\n", err.text);
    if (config) config_file_release(&file);
}

static bool is_end(int signal) { return signal == SIGTERM || signal == SIGINT; }

/* Lets running requests end. Another signal ends that. */
static void drain(struct serve *serve, const sigset_t *signals) {
    const struct timespec a_moment = { .tv_nsec = 20000000 };
    const double until = clock_s() + DRAIN_SECONDS;
    fprintf(stderr, "reel: no more requests are taken; those that run may end\n");
    service_notify("STOPPING=1");
    while (!server_drain(serve->server, 0)) {
        if (clock_s() < until && !is_end(sigtimedwait(signals, NULL, &a_moment))) continue;
        fprintf(stderr, "reel: some requests were cut off\n");
        return;
    }
}

static void run_until_signal(struct serve *serve, const sigset_t *signals) {
    int signal = 0;
    while (sigwait(signals, &signal) == 0 && !is_end(signal))
        read_keys_again(serve);
    atomic_store(&serve->ending, true);
    if (!atomic_load(&serve->failed)) drain(serve, signals);
}

/* Prompts are in memory: a crash must not write them to a disk. */
static void keep_prompts_private(void) {
    const struct rlimit none = { 0, 0 };
    (void)setrlimit(RLIMIT_CORE, &none);
}

static enum reel_status serve_all(struct serve *serve, struct reel_error *err) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* every thread made from here on */
    signal(SIGPIPE, SIG_IGN);                   /* a log that nobody reads any more ends nothing */
    keep_prompts_private();
    server_limit_heaps();
    enum reel_status status = open_server(serve, err);
    if (status != REEL_OK) return status;
    const char *host = cli_text(serve->args, "host", "127.0.0.1");
    fprintf(stderr, "reel: listening at %s://%s%s%s:%d\n", serve->tls_key.bytes ? "https" : "http",
            strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "",
            server_port(serve->server));
    if (pthread_create(&serve->loader, NULL, load, serve) != 0)
        status = err_memory(err, "a thread that loads models", 0);
    if (status == REEL_OK) {
        run_until_signal(serve, &signals);
        /* a model that is being loaded is loaded to its end: another signal does not wait */
        signal(SIGHUP, SIG_IGN);
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
        pthread_join(serve->loader, NULL);
        status = serve->loaded;
        if (status != REEL_OK) *err = serve->load_error;
    }
    server_close(serve->server, close_served);
    return status;
}

static void serve_release(struct serve *serve) {
    for (int i = 0; i < serve->n; i++) {
        for (int j = 0; j < serve->served[i].n_aliases; j++)
            mem_free((void *)serve->served[i].aliases[j]);
        mem_free(serve->served[i].name);
    }
    buffer_release(&serve->key_file);
    buffer_release(&serve->tls_cert);
    buffer_release(&serve->tls_key);
}

static enum reel_status serve_with(const struct cli_args *args, const struct cli_args *typed,
                                   struct reel_error *err) {
    struct serve serve = { .args = args, .typed = typed };
    if (args->n_arguments == 0)
        return err_set(err, REEL_E_ARGUMENT, "something is missing; usage: reel %s %s",
                       cmd_serve.name, cmd_serve.arguments);
    enum reel_status status = read_models(&serve, err);
    if (status == REEL_OK) status = read_keys(&serve, args, err);
    serve.asks_for_keys = serve.n_keys > 0;
    if (status == REEL_OK) status = read_tls(&serve, err);
    if (status == REEL_OK) status = serve_all(&serve, err);
    serve_release(&serve);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    const char *path = cli_text(args, "config", NULL);
    struct config_file file;
    if (!path) return serve_with(args, args, err);
    enum reel_status status = config_file_read(&file, args, path, err);
    if (status != REEL_OK) return status;
    status = serve_with(&file.args, args, err);
    config_file_release(&file);
    return status;
}

#else

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    (void)args;
    return err_set(err, REEL_E_UNSUPPORTED, "this reel was built without its server (MINIMAL=1)");
}

#endif

const struct cli_command cmd_serve = {
    .name = "serve",
    .arguments = "[NAME=]MODEL...",
    .least_arguments = 0, /* a file may name them */
    .most_arguments = MOST_MODELS,
    .summary = "answer OpenAI's and Anthropic's API over HTTP",
    .description =
        "Serves models to programs that speak to OpenAI, Anthropic, vLLM or llama.cpp's server, "
        "such as a chat model and a speech model together. It listens at once and answers 503 "
        "until a model is loaded. /health, /v1/models and /metrics tell how it is.\n\n"
        "Prompts are kept in sessions: a request goes to the one that shares most with it, so a "
        "conversation evaluates what is new alone. A session holds --ctx positions; without it "
        "16384, or what the model was made for where that is less.\n\n"
        "The model of --draft guesses for each text model that has its vocabulary; the others go "
        "without, and a line of the log says so.\n\n"
        "SIGTERM and Ctrl-C let running requests end, for up to 60 seconds; a second one ends at "
        "once. SIGHUP reads the keys again, those of --api-key-file and of --config.",
    .groups = { &group, &access_group, &limit_group, &cli_speculation_group, &cli_context_group,
                &cli_model_group },
    .run = run,
};

/* A pull in steps: ask the hub for the list of files, choose the model, fetch what says whether
 * reel runs it and ask the library, fetch the rest, then let the folder change. */
#include "cli/hub_job.h"

#include "base/buffer.h"
#include "base/file_map.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define LISTING_LIMIT (64u << 20)
#define HEAD_BYTES                                                                                 \
    (INT64_C(1) << 20)                 /* of a GGUF file at first: all but vocabulary and tensors  \
                                        */
#define MOST_HEAD (INT64_C(256) << 20) /* the largest vocabularies take 20 MB */

/* The hub's address, without a '/' at its end. */
static enum reel_status set_mirror(struct hub_job *job, struct reel_error *err) {
    const char *mirror = job->pull->mirror ? job->pull->mirror : HUB_DEFAULT_MIRROR;
    size_t n = strlen(mirror);
    while (n > 0 && mirror[n - 1] == '/')
        n--;
    return mem_text(&job->mirror, mirror, n, "an address", err);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Which token was used, or where one would have been taken from. */
static void token_text(const struct hub_pull *pull, char *text, size_t n) {
    const struct hub_token *token = pull->token;
    if (token && token->text)
        snprintf(text, n, "the access token of %.200s was sent", token->from);
    else if (token && token->from)
        snprintf(text, n, "no access token was sent: $HF_TOKEN is not set and %.200s not there",
                 token->from);
    else
        snprintf(text, n, "no access token was sent");
}

/* 401 and 403 have several reasons, which the hub tells apart in a header; 401 is also what it
 * says of a repository that does not exist, when it is asked without a token. */
static enum reel_status explain(const struct hub_job *job, enum reel_status status,
                                struct reel_error *err) {
    const struct hub_pull *pull = job->pull;
    const struct download_client *client = &job->client;
    char token[300];
    if (status != REEL_E_NETWORK && status != REEL_E_NOT_FOUND) return status;
    if (client->http != 401 && client->http != 403) return status;
    token_text(pull, token, sizeof token);
    if (job->list.gated || strcmp(client->code, "GatedRepo") == 0)
        return err_set(err, REEL_E_NETWORK,
                       "%s: its owner grants access (%d): ask for it at %s/%s; %s", pull->repo,
                       client->http, job->mirror, pull->repo, token);
    if (pull->token && pull->token->text)
        return err_set(err, REEL_E_NETWORK,
                       "%s: the hub refuses (%d): the repository does not exist, or its owner does "
                       "not let this token read it; %s",
                       pull->repo, client->http, token);
    return err_set(err, REEL_E_NETWORK,
                   "%s: the hub refuses (%d): the repository does not exist, or an access token is "
                   "needed; %s",
                   pull->repo, client->http, token);
}

static enum reel_status ask_hub(struct hub_job *job, struct buffer *answer,
                                struct reel_error *err) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
    const struct hub_pull *pull = job->pull;
    struct buffer url = { 0 };
    const char *revision = pull->revision ? pull->revision : "main";
    if (!revision[0] || strstr(revision, "..")) /* as git has it; "/../" is another address */
        return err_set(err, REEL_E_ARGUMENT, "revision \"%s\" is not the name of one", revision);
    if (strspn(revision, allowed) != strlen(revision))
        return err_set(err, REEL_E_ARGUMENT,
                       "revision \"%s\" has characters a revision cannot have", revision);
    enum reel_status status = buffer_printf(&url, err, "%s/api/models/%s/revision/%s?blobs=true",
                                            job->mirror, pull->repo, revision);
    if (status == REEL_OK)
        status = download_text(&job->client, url.bytes, LISTING_LIMIT, answer, err);
    buffer_release(&url);
    return status;
}

/* ---- which model ----------------------------------------------------------------------------- */

static enum reel_status choose_one(struct hub_job *job, struct reel_error *err) {
    const struct hub_pull *pull = job->pull;
    const struct hub_choices *all = &job->all;
    int index = 0, usual = hub_choices_usual(all);
    if (all->n == 0) return hub_listing_no_model(&job->list, err);
    bool plain = !all->list[0].gguf && all->list[0].n_path == 0; /* safetensors at the top */
    if (!plain && all->n > 1) {
        if (!pull->choose) return hub_choices_ask(all, &job->list, err);
        index = pull->choose(pull->user, pull->repo, all, usual);
        if (index < 0 || index >= all->n)
            return err_set(err, REEL_E_CANCELLED, "%s: nothing is fetched", pull->repo);
    }
    job->chosen[0] = &all->list[index];
    job->n_chosen = 1;
    if (job->chosen[0]->parts == 1) return REEL_OK;
    return hub_choices_pick(all, &job->list, job->chosen[0]->path, &job->chosen[0], err);
}

static enum reel_status choose(struct hub_job *job, struct reel_error *err) {
    const struct hub_pull *pull = job->pull;
    size_t n = pull->n_what ? (size_t)pull->n_what : 1;
    enum reel_status status = hub_choices_find(&job->all, &job->list, err);
    if (status == REEL_OK)
        status = mem_zeroed(&job->chosen, n, sizeof *job->chosen, "the choice", err);
    if (status != REEL_OK || pull->n_what == 0)
        return status == REEL_OK ? choose_one(job, err) : status;
    if (job->all.n == 0) return hub_listing_no_model(&job->list, err);
    for (int i = 0; i < pull->n_what && status == REEL_OK; i++) {
        status = hub_choices_pick(&job->all, &job->list, pull->what[i], &job->chosen[i], err);
        if (status == REEL_OK) job->n_chosen++;
    }
    return status;
}

/* ---- the files of the model ------------------------------------------------------------------ */

/* Characters that mean something in an address are written as their codes. */
static enum reel_status add_escaped(struct buffer *url, const char *path, struct reel_error *err) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/";
    enum reel_status status = REEL_OK;
    for (; *path && status == REEL_OK; path++)
        status = strchr(plain, *path)
                     ? buffer_append(url, path, 1, err)
                     : buffer_printf(url, err, "%%%02X", (unsigned)(unsigned char)*path);
    return status;
}

static struct download_file download_of(const struct hub_wanted *w) {
    return (struct download_file){ .url = w->url,
                                   .path = w->part,
                                   .label = w->file->path,
                                   .n_bytes = w->file->n_bytes,
                                   .sha256 = w->file->sha256,
                                   .git_id = w->file->git_id };
}

/* A file joins the pull; one that the folder holds with the right hash will not be fetched. */
static enum reel_status want(struct hub_job *job, const struct hub_file *file,
                             struct reel_error *err) {
    char *here = NULL;
    struct buffer url = { 0 };
    for (int i = 0; i < job->n_wanted; i++)
        if (job->wanted[i].file == file) return REEL_OK;
    struct hub_wanted *w = &job->wanted[job->n_wanted++];
    *w = (struct hub_wanted){ .file = file };
    enum reel_status status = buffer_printf(&url, err, "%s/%s/resolve/%s/", job->mirror,
                                            job->pull->repo, job->list.commit);
    if (status == REEL_OK) status = add_escaped(&url, file->path, err);
    if (status == REEL_OK) w->url = buffer_detach(&url, NULL);
    if (status == REEL_OK) status = store_path(&w->part, job->store.partial, file->path, err);
    if (status == REEL_OK) status = store_path(&here, job->store.folder, file->path, err);
    if (status == REEL_OK) {
        const struct download_file d = download_of(w);
        w->held = download_verify(&d, here, NULL) == REEL_OK;
        if (!w->held) status = store_make_way(job->store.partial, file->path, err);
    }
    mem_free(here);
    buffer_release(&url);
    return status;
}

/* Fetches those of the wanted files that are not here, from number `from` on. */
static enum reel_status fetch(struct hub_job *job, int from, struct reel_error *err) {
    struct download_file *files = NULL;
    int n = 0;
    enum reel_status status =
        mem_zeroed(&files, (size_t)job->n_wanted, sizeof *files, "a list of downloads", err);
    for (int i = from; status == REEL_OK && i < job->n_wanted; i++)
        if (!job->wanted[i].held) files[n++] = download_of(&job->wanted[i]);
    if (status == REEL_OK && n > 0) status = download_files(&job->client, files, n, err);
    mem_free(files);
    return status;
}

/* *path (caller frees) = where a wanted file can be read now. */
static enum reel_status place_of(const struct hub_job *job, const struct hub_wanted *w, char **path,
                                 struct reel_error *err) {
    return store_path(path, w->held ? job->store.folder : job->store.partial, w->file->path, err);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Asks the library about the files of a choice that have arrived. */
static enum reel_status judge_folder(const struct hub_job *job, const struct hub_choice *choice,
                                     struct reel_error *err) {
    enum { MOST = 16 };
    struct reel_memory_file files[MOST];
    struct file_map maps[MOST] = { 0 };
    struct buffer name = { 0 };
    int n = 0;
    enum reel_status status = buffer_printf(&name, err, "%s%s%s", job->pull->repo,
                                            choice->n_path ? "/" : "", choice->label);
    for (int i = 0; i < job->n_wanted && n < MOST && status == REEL_OK; i++) {
        const char *file = job->wanted[i].file->path;
        char *path = NULL;
        if (strncmp(file, choice->path, choice->n_path) != 0 ||
            strchr(file + choice->n_path, '/') || hub_ends_with(file, ".safetensors") ||
            hub_ends_with(file, ".gguf"))
            continue;
        status = place_of(job, &job->wanted[i], &path, err);
        if (status == REEL_OK) status = file_map_open(&maps[n], path, err);
        if (status == REEL_OK) {
            files[n] =
                (struct reel_memory_file){ file + choice->n_path, maps[n].bytes, maps[n].size };
            n++;
        }
        mem_free(path);
    }
    if (status == REEL_OK) status = reel_model_check(name.bytes, files, n, NULL, err);
    for (int i = 0; i < n; i++)
        file_map_close(&maps[i]);
    buffer_release(&name);
    return status;
}

/* What is there of a GGUF file; *complete as reel_model_check says. */
static enum reel_status judge_head(const struct hub_job *job, const struct hub_wanted *w,
                                   bool *complete, struct reel_error *err) {
    struct buffer part = { 0 }, name = { 0 };
    struct file_map map = { 0 };
    enum reel_status status = buffer_printf(&part, err, "%s.part", w->part);
    if (status == REEL_OK)
        status = buffer_printf(&name, err, "%s/%s", job->pull->repo, w->file->path);
    if (status == REEL_OK) status = file_map_open(&map, part.bytes, err);
    if (status == REEL_OK) {
        const struct reel_memory_file one = { name.bytes, map.bytes, map.size };
        status = reel_model_check(name.bytes, &one, 1, complete, err);
    }
    file_map_close(&map);
    buffer_release(&part);
    buffer_release(&name);
    return status;
}

/* Fetches the beginning of a GGUF file, as much as tells whether reel runs it. It stays the
 * beginning of the .part file, so nothing is fetched twice. */
static enum reel_status take_gguf(struct hub_job *job, const struct hub_choice *choice,
                                  struct reel_error *err) {
    const struct hub_file *file = hub_listing_find(&job->list, choice->path);
    bool complete = false;
    enum reel_status status = want(job, file, err);
    const struct hub_wanted *w = &job->wanted[job->n_wanted - 1];
    if (status != REEL_OK || w->file != file || w->held) return status;
    const struct download_file d = download_of(w);
    if (download_verify(&d, d.path, NULL) == REEL_OK) return REEL_OK; /* judged, then interrupted */
    for (int64_t n = HEAD_BYTES; status == REEL_OK && !complete; n *= 4) {
        status = download_head(&job->client, &d, n, err);
        if (status == REEL_OK) status = judge_head(job, w, &complete, err);
        if (status == REEL_OK && !complete && (n >= file->n_bytes || n >= MOST_HEAD))
            status = err_set(err, REEL_E_FORMAT, "%s/%s: ends before its list of tensors does",
                             job->pull->repo, file->path);
    }
    return status;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

/* *file stays NULL where the choice's folder has none of that name. */
static enum reel_status find_in(const struct hub_job *job, const struct hub_choice *choice,
                                const char *name, const struct hub_file **file,
                                struct reel_error *err) {
    struct buffer path = { 0 };
    *file = NULL;
    enum reel_status status =
        buffer_printf(&path, err, "%.*s%s", (int)choice->n_path, choice->path, name);
    if (status == REEL_OK) *file = hub_listing_find(&job->list, path.bytes);
    buffer_release(&path);
    return status;
}

static enum reel_status want_in(struct hub_job *job, const struct hub_choice *choice,
                                const char *name, struct reel_error *err) {
    const struct hub_file *file = NULL;
    enum reel_status status = find_in(job, choice, name, &file, err);
    return status == REEL_OK && file ? want(job, file, err) : status;
}

/* The files that the index names. */
static enum reel_status want_shards(struct hub_job *job, const struct hub_choice *choice,
                                    const struct hub_wanted *w, struct reel_error *err) {
    char *path = NULL;
    struct file_map map = { 0 };
    json_t *index = NULL;
    const char *key;
    json_t *value;
    enum reel_status status = place_of(job, w, &path, err);
    if (status == REEL_OK) status = file_map_open(&map, path, err);
    if (status == REEL_OK) status = json_read(&index, w->file->path, map.bytes, map.size, err);
    json_object_foreach(json_object_get(index, "weight_map"), key, value) {
        const char *name = json_string_value(value);
        const struct hub_file *file = NULL;
        if (status == REEL_OK && name && !strchr(name, '/'))
            status = find_in(job, choice, name, &file, err);
        if (status == REEL_OK && !file)
            status =
                err_set(err, REEL_E_FORMAT, "%s/%s: names \"%s\", which is not in the repository",
                        job->pull->repo, w->file->path, name ? name : key);
        if (status == REEL_OK) status = want(job, file, err);
    }
    json_decref(index);
    file_map_close(&map);
    mem_free(path);
    return status;
}

/* First config.json alone, which refuses most of what reel does not run; then tokenizer and the
 * other small files; the weights are only listed. */
static enum reel_status take_folder(struct hub_job *job, const struct hub_choice *choice,
                                    struct reel_error *err) {
    int from = job->n_wanted;
    enum reel_status status = want_in(job, choice, hub_small_files[0], err);
    if (status == REEL_OK) status = fetch(job, from, err);
    if (status == REEL_OK) status = judge_folder(job, choice, err);
    const struct hub_file *tokenizer = NULL;
    if (status == REEL_OK) status = find_in(job, choice, "tokenizer.json", &tokenizer, err);
    for (int i = 1; hub_small_files[i] && status == REEL_OK; i++) {
        bool spare = tokenizer && (strcmp(hub_small_files[i], "tokenizer.model") == 0 ||
                                   strcmp(hub_small_files[i], "added_tokens.json") == 0);
        if (!spare) status = want_in(job, choice, hub_small_files[i], err);
    }
    if (status == REEL_OK) status = fetch(job, from, err);
    if (status == REEL_OK) status = judge_folder(job, choice, err);
    const struct hub_file *index = NULL;
    if (status == REEL_OK) status = find_in(job, choice, HUB_INDEX, &index, err);
    if (status != REEL_OK) return status;
    for (int i = from; index && i < job->n_wanted; i++)
        if (job->wanted[i].file == index) return want_shards(job, choice, &job->wanted[i], err);
    return want_in(job, choice, HUB_WEIGHTS, err);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static int64_t size_of(const char *path, const char *suffix) {
    struct buffer text = { 0 };
    struct stat st;
    int64_t n = -1;
    if (buffer_printf(&text, NULL, "%s%s", path, suffix) == REEL_OK && stat(text.bytes, &st) == 0)
        n = st.st_size;
    buffer_release(&text);
    return n;
}

/* Says what is left to fetch, and whether there is room for it. */
static enum reel_status check_room(const struct hub_job *job, struct reel_error *err) {
    int64_t missing = 0;
    int n_files = 0;
    struct statvfs fs;
    for (int i = 0; i < job->n_wanted; i++) {
        const struct hub_wanted *w = &job->wanted[i];
        if (w->held || size_of(w->part, "") == w->file->n_bytes) continue;
        int64_t have = size_of(w->part, ".part");
        n_files++;
        missing += w->file->n_bytes - (have > 0 && have <= w->file->n_bytes ? have : 0);
    }
    if (n_files > 0 && job->pull->note)
        job->pull->note(job->pull->user, job->pull->repo, n_files, missing);
    if (statvfs(job->store.partial, &fs) != 0) return REEL_OK; /* unknown: writing will tell */
    unsigned long long room = (unsigned long long)fs.f_bavail * fs.f_frsize;
    if (room >= (unsigned long long)missing) return REEL_OK;
    return err_set(err, REEL_E_IO, "%s: %lld bytes to fetch, %llu are free", job->store.folder,
                   (long long)missing, room);
}

/* ---- the pull -------------------------------------------------------------------------------- */

static enum reel_status take_chosen(struct hub_job *job, struct reel_error *err) {
    enum reel_status status = mem_zeroed(&job->wanted, (size_t)job->list.n_files + 1,
                                         sizeof *job->wanted, "a list of files", err);
    for (int i = 0; i < job->n_chosen && status == REEL_OK; i++)
        status = job->chosen[i]->gguf ? take_gguf(job, job->chosen[i], err)
                                      : take_folder(job, job->chosen[i], err);
    if (status == REEL_OK) status = check_room(job, err);
    if (status == REEL_OK) status = fetch(job, 0, err);
    return status;
}

static enum reel_status pull_online(struct hub_job *job, struct reel_error *err) {
    struct buffer answer = { 0 };
    struct reel_error none;
    enum reel_status status = hub_store_lock(&job->store, err);
    if (status == REEL_OK) status = download_client_open(&job->client, err);
    if (status != REEL_OK) return status;
    status = ask_hub(job, &answer, err);
    if (status == REEL_OK)
        status = hub_listing_read(&job->list, job->pull->repo, answer.bytes, answer.size, err);
    buffer_release(&answer);
    if (status == REEL_OK) status = choose(job, err);
    if (status == REEL_OK &&
        hub_store_read(&job->store, job->pull->repo, &job->held, &none) == REEL_E_MEMORY)
        status = err_set(err, REEL_E_MEMORY, "%s", none.text);
    if (status == REEL_OK) status = take_chosen(job, err);
    if (status == REEL_OK) status = hub_install(job, err);
    return status == REEL_OK ? REEL_OK : explain(job, status, err);
}

/* Checks what is in the folder: all of it, or the models that were named. */
static enum reel_status check_offline(struct hub_job *job, struct reel_error *err) {
    enum reel_status status = hub_store_read(&job->store, job->pull->repo, &job->held, err);
    if (status != REEL_OK) return status;
    job->list = job->held;
    job->held = (struct hub_listing){ 0 };
    if (job->pull->revision && strlen(job->pull->revision) == 40 &&
        strcmp(job->pull->revision, job->list.commit) != 0)
        return err_set(err, REEL_E_MISMATCH, "%s: holds commit %s", job->store.folder,
                       job->list.commit);
    if (job->pull->n_what) status = choose(job, err);
    for (int i = 0; i < job->list.n_files && status == REEL_OK; i++) {
        const struct hub_file *f = &job->list.files[i];
        const struct download_file d = { .n_bytes = f->n_bytes,
                                         .sha256 = f->sha256,
                                         .git_id = f->git_id };
        bool asked = job->pull->n_what == 0;
        char *path = NULL;
        for (int k = 0; k < job->n_chosen; k++) {
            const struct hub_choice *c = job->chosen[k];
            if (strncmp(f->path, c->path, c->n_path) == 0 && !strchr(f->path + c->n_path, '/'))
                asked = true;
        }
        if (asked) status = store_path(&path, job->store.folder, f->path, err);
        if (status == REEL_OK && asked) status = download_verify(&d, path, err);
        mem_free(path);
    }
    return status;
}

static enum reel_status describe(const struct hub_job *job, struct hub_pulled *out,
                                 struct reel_error *err) {
    struct buffer name = { 0 };
    const struct hub_choice *one = job->n_chosen ? job->chosen[0] : NULL, *again = NULL;
    bool plain = one && one->label[0] &&
                 hub_choices_pick(&job->all, &job->list, one->label, &again, NULL) == REEL_OK;
    enum reel_status status = buffer_text(&name, job->pull->repo, err);
    if (status == REEL_OK && one && one->label[0])
        status = buffer_printf(&name, err, ":%s", plain ? one->label : one->path);
    if (status == REEL_OK)
        status =
            mem_text(&out->folder, job->store.folder, strlen(job->store.folder), "a path", err);
    if (status == REEL_OK) out->name = buffer_detach(&name, NULL);
    buffer_release(&name);
    return status;
}

static void job_release(struct hub_job *job) {
    for (int i = 0; i < job->n_wanted; i++) {
        mem_free(job->wanted[i].url);
        mem_free(job->wanted[i].part);
    }
    mem_free(job->wanted);
    mem_free(job->chosen);
    mem_free(job->mirror);
    hub_choices_release(&job->all);
    hub_listing_release(&job->list);
    hub_listing_release(&job->held);
    download_client_close(&job->client);
    hub_store_release(&job->store);
}

enum reel_status hub_pull(const struct hub_pull *pull, struct hub_pulled *out,
                          struct reel_error *err) {
    struct hub_job job = { .pull = pull,
                           .client = { .bearer = pull->token ? pull->token->text : NULL,
                                       .at_once = pull->at_once,
                                       .retry_ms = pull->retry_ms,
                                       .stall_s = pull->stall_s,
                                       .progress = pull->progress,
                                       .progress_user = pull->progress_user } };
    *out = (struct hub_pulled){ 0 };
    if (!hub_is_repo(pull->repo))
        return err_set(err, REEL_E_ARGUMENT,
                       "\"%s\" is not a repository name: expected OWNER/NAME in letters, digits, "
                       "'-', '_' and '.'",
                       pull->repo);
    enum reel_status status = hub_store_init(&job.store, pull->cache_dir, pull->repo, err);
    if (status == REEL_OK) status = set_mirror(&job, err);
    if (status == REEL_OK)
        status = pull->offline ? check_offline(&job, err) : pull_online(&job, err);
    if (status == REEL_OK) status = describe(&job, out, err);
    if (status != REEL_OK) hub_pulled_release(out);
    job_release(&job);
    return status;
}

void hub_pulled_release(struct hub_pulled *pulled) {
    mem_free(pulled->folder);
    mem_free(pulled->name);
    *pulled = (struct hub_pulled){ 0 };
}

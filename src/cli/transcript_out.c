#include "cli/transcript_out.h"

#include "base/memory.h"
#include "cli/output_file.h"
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const extensions[] = {
    [REEL_TRANSCRIPT_TEXT] = "txt",          [REEL_TRANSCRIPT_JSON] = "json",
    [REEL_TRANSCRIPT_VERBOSE_JSON] = "json", [REEL_TRANSCRIPT_SRT] = "srt",
    [REEL_TRANSCRIPT_VTT] = "vtt",
};

static bool is_json(const struct transcript_out *o) {
    return o->format == REEL_TRANSCRIPT_JSON || o->format == REEL_TRANSCRIPT_VERBOSE_JSON;
}

/* Several recordings in one text. */
static bool together(const struct transcript_out *o) { return o->n_names > 1 && !o->folder; }

/* ---- names ---- */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *shown_name(const struct transcript_out *o, int index) {
    return strcmp(o->names[index], "-") == 0 ? "standard input" : o->names[index];
}

/* FOLDER/NAME.ext of a recording. */
static enum reel_status name_in_folder(const struct transcript_out *o, int index,
                                       struct buffer *path, struct reel_error *err) {
    const bool standard = strcmp(o->names[index], "-") == 0;
    const char *name = standard ? "standard-input" : last_part(o->names[index]);
    const char *dot = strrchr(name, '.');
    const size_t n = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    const size_t n_folder = strlen(o->folder);
    const bool slash = n_folder > 0 && o->folder[n_folder - 1] == '/';
    path->size = 0;
    return buffer_printf(path, err, "%s%s%.*s.%s", o->folder, slash ? "" : "/", (int)n, name,
                         extensions[o->format]);
}

/* ---- before the work ---- */

static enum reel_status check_no_input(const struct transcript_out *o, const char *path,
                                       const struct stat *found, struct reel_error *err) {
    struct stat in;
    for (int i = 0; i < o->n_names; i++) {
        const bool standard = strcmp(o->names[i], "-") == 0;
        if ((standard ? fstat(STDIN_FILENO, &in) : stat(o->names[i], &in)) != 0) continue;
        if (in.st_dev == found->st_dev && in.st_ino == found->st_ino && S_ISREG(in.st_mode))
            return err_set(err, REEL_E_ARGUMENT,
                           "%s is one of the recordings, which the transcript would replace", path);
    }
    return REEL_OK;
}

/* Of a file that is there. */
static enum reel_status check_old_file(const struct transcript_out *o, const char *path,
                                       struct reel_error *err) {
    struct stat found;
    if (stat(path, &found) != 0) return REEL_OK;
    if (S_ISDIR(found.st_mode))
        return err_set(err, REEL_E_ARGUMENT,
                       "%s is a folder; name a file in it, or give --output-dir %s", path, path);
    if (access(path, W_OK) != 0)
        return err_set(err, REEL_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    return check_no_input(o, path, &found, err);
}

static enum reel_status check_path(const struct transcript_out *o, struct reel_error *err) {
    enum reel_status status = check_old_file(o, o->path, err);
    return status == REEL_OK ? output_file_check(o->path, err) : status;
}

static enum reel_status check_names(const struct transcript_out *o, struct reel_error *err) {
    struct buffer path = { 0 }, other = { 0 };
    enum reel_status status = REEL_OK;
    for (int i = 0; i < o->n_names && status == REEL_OK; i++) {
        status = name_in_folder(o, i, &path, err);
        if (status == REEL_OK) status = check_old_file(o, path.bytes, err);
        for (int k = 0; k < i && status == REEL_OK; k++) {
            status = name_in_folder(o, k, &other, err);
            if (status == REEL_OK && strcmp(path.bytes, other.bytes) == 0)
                status = err_set(err, REEL_E_ARGUMENT, "%s and %s would both be written to %s",
                                 o->names[k], o->names[i], path.bytes);
        }
    }
    buffer_release(&other);
    buffer_release(&path);
    return status;
}

static enum reel_status check_folder(const struct transcript_out *o, struct reel_error *err) {
    if (!*o->folder) return err_set(err, REEL_E_ARGUMENT, "--output-dir needs a folder's name");
    if (mkdir(o->folder, 0777) != 0 && errno != EEXIST)
        return err_set(err, REEL_E_IO, "%s: this folder cannot be made: %s", o->folder,
                       strerror(errno));
    enum reel_status status = output_file_try_folder(o->folder, err);
    return status == REEL_OK ? check_names(o, err) : status;
}

enum reel_status transcript_out_open(struct transcript_out *o, struct reel_error *err) {
    const bool subtitles = o->format == REEL_TRANSCRIPT_SRT || o->format == REEL_TRANSCRIPT_VTT;
    if (o->path && o->folder)
        return err_set(err, REEL_E_ARGUMENT, "--output and --output-dir exclude each other");
    if (subtitles && together(o))
        return err_set(err, REEL_E_ARGUMENT,
                       "subtitles are of one recording and %d files are given; --output-dir FOLDER "
                       "writes a file for each",
                       o->n_names);
    enum reel_status status = REEL_OK;
    if (o->path) status = check_path(o, err);
    if (o->folder) status = check_folder(o, err);
    if (status == REEL_OK && together(o) && is_json(o)) {
        o->list = json_array();
        if (!o->list) status = err_memory(err, "transcripts", 0);
    }
    return status;
}

void transcript_out_release(struct transcript_out *o) {
    json_decref(o->list);
    buffer_release(&o->text);
    o->list = NULL;
}

/* ---- what is made ---- */

bool transcript_out_live(const struct transcript_out *o) {
    return o->format == REEL_TRANSCRIPT_TEXT && !o->path && !o->folder;
}

void transcript_out_heading(struct transcript_out *o, int index) {
    if (!together(o)) return;
    fputs(o->n_added++ ? "\n==> " : "==> ", stdout);
    terminal_write(stdout, shown_name(o, index), strlen(shown_name(o, index)));
    fputs(" <==\n", stdout);
}

/* {"file": ..., "error": ..., what the text of one alone has}. text: of an object, or NULL. */
static enum reel_status add_to_list(struct transcript_out *o, int index, const char *text, size_t n,
                                    const char *problem, struct reel_error *err) {
    json_t *made = NULL, *one = json_object();
    enum reel_status status = text ? json_read(&made, o->names[index], text, n, err) : REEL_OK;
    const char *name = o->names[index];
    bool good = one != NULL;
    if (status == REEL_OK && good) {
        json_t *file = json_string(name);
        if (!file) file = json_string("?"); /* a name that is no UTF-8 */
        good = json_object_set_new(one, "file", file) == 0;
        if (good && problem) good = json_object_set_new(one, "error", json_string(problem)) == 0;
        if (good && made) good = json_object_update(one, made) == 0;
        if (good) good = json_array_append(o->list, one) == 0;
    }
    json_decref(made);
    json_decref(one);
    if (status == REEL_OK && !good) status = err_memory(err, "a transcript", n);
    return status;
}

/* A recording's text behind those before, under its name. */
static enum reel_status append(struct transcript_out *o, int index, const char *text, size_t n,
                               struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (together(o))
        status = buffer_printf(&o->text, err, "%s==> %s <==\n", o->n_added ? "\n" : "",
                               shown_name(o, index));
    if (status == REEL_OK) status = buffer_append(&o->text, text, n, err);
    if (status == REEL_OK && (n == 0 || text[n - 1] != '\n'))
        status = buffer_text(&o->text, "\n", err);
    return status;
}

/* ---- files ---- */

static void tell_partial(const char *path, const char *name, const struct reel_transcript *t) {
    fprintf(stderr, "reel: %s holds a part of %s: %d segment%s, up to %.1f s\n", path, name,
            t->n_segments, t->n_segments == 1 ? "" : "s", t->seconds);
}

static enum reel_status write_in_folder(struct transcript_out *o, int index, const char *text,
                                        size_t n, const struct reel_transcript *partial,
                                        struct reel_error *err) {
    struct buffer path = { 0 };
    enum reel_status status = name_in_folder(o, index, &path, err);
    if (status == REEL_OK) status = output_file_write(path.bytes, text, n, err);
    if (status == REEL_OK && partial) tell_partial(path.bytes, shown_name(o, index), partial);
    buffer_release(&path);
    return status;
}

/* ---- the transcripts ---- */

static void put_on_stdout(const char *text, size_t n) {
    terminal_write(stdout, text, n);
    if (n == 0 || text[n - 1] != '\n') putchar('\n');
}

enum reel_status transcript_out_put(struct transcript_out *o, int index, const char *text, size_t n,
                                    const struct reel_transcript *t, const char *problem,
                                    struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (o->folder)
        status = write_in_folder(o, index, text, n, problem ? t : NULL, err);
    else if (o->list)
        status = add_to_list(o, index, text, n, problem, err);
    else if (o->path)
        status = append(o, index, text, n, err);
    else
        put_on_stdout(text, n);
    if (status != REEL_OK) return status;
    o->n_added++;
    if (problem && !o->folder)
        tell_partial(o->path ? o->path : "standard output", shown_name(o, index), t);
    return REEL_OK;
}

enum reel_status transcript_out_add(struct transcript_out *o, int index,
                                    const struct reel_transcript *t, const char *problem,
                                    struct reel_error *err) {
    char *text = NULL;
    size_t n = 0;
    enum reel_status status = reel_transcript_text(t, o->format, &text, &n, err);
    if (status == REEL_OK) status = transcript_out_put(o, index, text, n, t, problem, err);
    reel_free(text);
    return status;
}

enum reel_status transcript_out_fail(struct transcript_out *o, int index, const char *problem,
                                     struct reel_error *err) {
    return o->list ? add_to_list(o, index, NULL, 0, problem, err) : REEL_OK;
}

static enum reel_status close_list(struct transcript_out *o, struct reel_error *err) {
    char *text = NULL;
    enum reel_status status = json_write(&text, o->list, "transcripts", err);
    if (status == REEL_OK) status = buffer_printf(&o->text, err, "%s\n", text);
    mem_free(text);
    if (status == REEL_OK && !o->path) put_on_stdout(o->text.bytes, o->text.size);
    return status;
}

enum reel_status transcript_out_close(struct transcript_out *o, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (o->list) status = close_list(o, err);
    if (status != REEL_OK || !o->path) return status;
    if (o->n_added > 0) return output_file_write(o->path, o->text.bytes, o->text.size, err);
    fprintf(stderr, "reel: nothing was finished, and %s is left as it was\n", o->path);
    return REEL_OK;
}

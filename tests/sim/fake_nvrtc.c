/* NVRTC that hands the sources to the host's C compiler. A source and the headers that it includes,
 * with their patches, are written into a folder named by their hash, compiled there once, and found
 * there by the next that asks. */
#define _GNU_SOURCE
#include "fake_cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    NVRTC_OK = 0,
    NVRTC_OUT_OF_MEMORY = 1,
    NVRTC_INVALID_INPUT = 3,
    NVRTC_INVALID_PROGRAM = 4,
    NVRTC_INVALID_OPTION = 5,
    NVRTC_COMPILATION = 6,
    NVRTC_INTERNAL = 11
};

typedef int nvrtcResult;

struct text {
    char *bytes;
    size_t n, room;
};

struct file {
    char *name;
    struct text text;
    bool used, patched; /* used: by the source, which includes it */
};

typedef struct program {
    struct file *files; /* the source, then the headers */
    int n_files;
    char image[1100];
    struct text log;
} * nvrtcProgram;

/* Half of what -O1 takes to compile, for kernels that run as fast: most of a simulated kernel's
 * time is the simulator's. */
#define FLAGS "-Og -finline-functions-called-once -ftree-sra"

static struct fake_nvrtc fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT fake_nvrtc_control_fn fake_nvrtc_control;
EXPORT fake_nvrtc_reset_fn fake_nvrtc_reset;

void fake_nvrtc_reset(void) {
    fake = (struct fake_nvrtc){ .compiler = "cc", .flags = FLAGS, .version = 13000 };
}
__attribute__((constructor)) static void first_reset(void) { fake_nvrtc_reset(); }
struct fake_nvrtc *fake_nvrtc_control(void) {
    return &fake;
}

static nvrtcResult enter(const char *name) {
    nvrtcResult status = NVRTC_OK;
    pthread_mutex_lock(&lock);
    fake.n_calls++;
    if (fake.fail_call > 0 && --fake.fail_call == 0)
        status = fake.fail_with, fake.failed_call = name;
    pthread_mutex_unlock(&lock);
    return status;
}
#define ENTER()                                                                                    \
    do {                                                                                           \
        nvrtcResult entered = enter(__func__);                                                     \
        if (entered != NVRTC_OK) return entered;                                                   \
    } while (0)

/* ---- texts ---- */

static bool text_add(struct text *t, const char *bytes, size_t n) {
    if (t->n + n + 1 > t->room) {
        size_t room = (t->n + n + 1) * 2;
        char *grown = realloc(t->bytes, room);
        if (!grown) return false;
        t->bytes = grown, t->room = room;
    }
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    t->bytes[t->n] = 0;
    return true;
}
static bool text_print(struct text *t, const char *s) { return text_add(t, s, strlen(s)); }

static bool file_set(struct file *f, const char *name, const char *bytes) {
    f->name = strdup(name);
    return f->name && text_print(&f->text, bytes);
}

static struct file *file_named(struct program *p, const char *name) {
    for (int i = 0; i < p->n_files; i++)
        if (strcmp(p->files[i].name, name) == 0) return &p->files[i];
    return NULL;
}

/* Says in the log why a patch does not fit. A file that this program lacks is another program's. */
static bool patch(struct program *p, const struct fake_patch *patch) {
    struct file *f = file_named(p, patch->file);
    struct text whole = { 0 };
    if (!f) return true;
    const char *rest = f->text.bytes, *at;
    int n = 0;
    for (; (at = strstr(rest, patch->from)) != NULL; n++) {
        text_add(&whole, rest, (size_t)(at - rest));
        text_print(&whole, patch->to);
        rest = at + strlen(patch->from);
    }
    text_print(&whole, rest);
    if (n == 0 || (n > 1 && !patch->everywhere)) {
        text_print(&p->log, n ? "patch: found more than once in " : "patch: not found in ");
        text_print(&p->log, patch->file);
        text_print(&p->log, ": ");
        text_print(&p->log, patch->from);
        free(whole.bytes);
        return false;
    }
    free(f->text.bytes);
    f->text = whole;
    f->patched = true;
    return true;
}

/* The file that this line includes, NULL when it includes none of the program's. */
static struct file *file_included(struct program *p, const char *line) {
    char name[128];
    if (*line != '#' || sscanf(line, "# include \"%127[^\"\n]\"", name) != 1) return NULL;
    return file_named(p, name);
}

/* Marks f and all that it includes, also what conditions leave out. What is not marked cannot
 * change what the compiler makes. */
static void file_use(struct program *p, struct file *f) {
    if (f->used) return;
    f->used = true;
    const char *const end = f->text.bytes + f->text.n;
    for (const char *line = f->text.bytes; line; line = memchr(line, '\n', (size_t)(end - line))) {
        line += *line == '\n';
        struct file *included = file_included(p, line);
        if (included) file_use(p, included);
    }
}

/* ---- what calls a kernel with parameters in memory ---- */

static const char *skip_paren(const char *s) {
    int depth = 0;
    for (; *s; s++) {
        depth += *s == '(';
        depth -= *s == ')';
        if (depth == 0) return s + 1;
    }
    return s;
}

static bool in_name(char c) { return c == '_' || isalnum((unsigned char)c); }

/* "T name": the type's length. */
static size_t type_length(const char *s, size_t n) {
    while (n && isspace((unsigned char)s[n - 1]))
        n--;
    while (n && in_name(s[n - 1]))
        n--;
    return n;
}

static void caller_add(struct text *t, const char *name, size_t name_n, const char *params,
                       size_t params_n) {
    struct text call = { 0 };
    char number[64];
    text_print(t, "\n__attribute__((visibility(\"default\"))) const unsigned sim_sizes_");
    text_add(t, name, name_n);
    text_print(t, "[] = { ");
    int n = 0;
    for (size_t at = 0; at < params_n;) {
        size_t end = at;
        while (end < params_n && params[end] != ',')
            end++;
        size_t type = type_length(params + at, end - at);
        if (type) {
            text_print(t, "(unsigned)sizeof(");
            text_add(t, params + at, type);
            text_print(t, "), ");
            text_print(&call, n ? ", *(" : "*(");
            text_add(&call, params + at, type);
            snprintf(number, sizeof number, "*)sim_params[%d]", n++);
            text_print(&call, number);
        }
        at = end + 1;
    }
    text_print(t, "0 };\n__attribute__((visibility(\"default\"))) void sim_run_");
    text_add(t, name, name_n);
    text_print(t, "(void **sim_params) { (void)sim_params; ");
    text_add(t, name, name_n);
    text_print(t, "(");
    if (call.n) text_add(t, call.bytes, call.n);
    text_print(t, "); }\n");
    free(call.bytes);
}

/* A kernel that has one more parameter where several GPUs share a model (GPUS_PARAMETER in
 * kernels/shared.cuh), and so is launched on all of them together. */
static void caller_add_gpus(struct text *t, const char *name, size_t name_n, const char *params,
                            size_t params_n) {
    static const char marker[] = "GPUS_PARAMETER";
    struct text all = { 0 };
    const size_t one = params_n - (sizeof marker - 1);
    text_add(&all, params, one);
    text_print(&all, ", const struct gpu_args gpus");
    text_print(t, "\n#if P_GPUS > 1\n__attribute__((visibility(\"default\"))) const int sim_gpus_");
    text_add(t, name, name_n);
    text_print(t, " = P_GPUS;");
    caller_add(t, name, name_n, all.bytes, all.n);
    text_print(t, "#else\n");
    caller_add(t, name, name_n, params, one);
    text_print(t, "#endif\n");
    free(all.bytes);
}

static bool ends_with_gpus(const char *params, size_t n) {
    static const char marker[] = "GPUS_PARAMETER";
    const size_t m = sizeof marker - 1;
    return n > m && memcmp(params + n - m, marker, m) == 0;
}

/* Finds KERNEL(threads) name(parameters) in the source. */
static void callers_add(struct text *source) {
    struct text callers = { 0 };
    for (const char *s = source->bytes; (s = strstr(s, "KERNEL(")); s++) {
        const char *name = skip_paren(s + 6);
        name += strspn(name, " \n\t");
        size_t name_n = strcspn(name, " (\n\t");
        const char *open = name + name_n + strspn(name + name_n, " \n\t");
        if (*open != '(') continue;
        const char *close = skip_paren(open);
        const size_t n = (size_t)(close - open - 2);
        if (ends_with_gpus(open + 1, n))
            caller_add_gpus(&callers, name, name_n, open + 1, n);
        else
            caller_add(&callers, name, name_n, open + 1, n);
    }
    if (callers.n) text_add(source, callers.bytes, callers.n);
    free(callers.bytes);
}

/* ---- compiling ---- */

static uint64_t hash_add(uint64_t h, const char *s) {
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
    return (h ^ 0xff) * 0x100000001b3ull;
}

/* What is patched most often runs once: compiling it well would take longer. */
static const char *flags_of(const struct program *p) {
    for (int i = 0; i < p->n_files; i++)
        if (p->files[i].used && p->files[i].patched) return "-O0";
    return fake.flags;
}

static uint64_t program_hash(const struct program *p, int n, const char *const *options,
                             const char *device, uint64_t h) {
    h = hash_add(hash_add(h, fake.compiler), flags_of(p));
    for (int i = 0; i < p->n_files; i++)
        if (p->files[i].used) h = hash_add(hash_add(h, p->files[i].name), p->files[i].text.bytes);
    for (int i = 0; i < n; i++)
        h = hash_add(h, options[i]);
    return hash_add(h, device);
}

static bool file_write(const char *folder, const struct file *f) {
    char path[1400];
    snprintf(path, sizeof path, "%s/%s", folder, f->name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *out = fopen(path, "w");
    if (!out) return false;
    bool good = fwrite(f->text.bytes, 1, f->text.n, out) == f->text.n;
    return fclose(out) == 0 && good;
}

static void file_read(const char *path, struct text *t) {
    char part[4096];
    FILE *in = fopen(path, "r");
    if (!in) return;
    for (size_t n; (n = fread(part, 1, sizeof part, in)) > 0;)
        text_add(t, part, n);
    fclose(in);
}

static int run(const char *const *words, const char *log) {
    pid_t pid = fork();
    if (pid == 0) {
        int out = open(log, O_CREAT | O_TRUNC | O_WRONLY, 0666);
        dup2(out, 1);
        dup2(out, 2);
        unsetenv("LD_PRELOAD");
        execvp(words[0], (char *const *)words);
        dprintf(2, "%s: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0) return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

/* -D options go to the compiler, what else NVRTC knows is left out. */
static nvrtcResult options_take(int n, const char *const *options, const char **words, int *n_words,
                                struct text *log) {
    for (int i = 0; i < n; i++) {
        const char *o = options[i];
        if (strcmp(o, "-D") == 0 || strcmp(o, "-arch") == 0 || strcmp(o, "-I") == 0) {
            if (++i == n) return NVRTC_INVALID_OPTION;
            if (o[1] == 'D') words[(*n_words)++] = o, words[(*n_words)++] = options[i];
        } else if (strncmp(o, "-D", 2) == 0) {
            words[(*n_words)++] = o;
        } else if (o[0] != '-') {
            text_print(
                log,
                "nvrtc: error: invalid value for --gpu-architecture (-arch) or unknown option: ");
            text_print(log, o);
            return NVRTC_INVALID_OPTION;
        }
    }
    return NVRTC_OK;
}

/* A path that begins at this library's folder. */
static void beside_library(char *path, size_t bytes, const char *rest) {
    Dl_info info;
    dladdr((void *)fake_nvrtc_reset, &info);
    char *whole = realpath(info.dli_fname, NULL), *slash = whole ? strrchr(whole, '/') : NULL;
    if (slash) *slash = 0;
    snprintf(path, bytes, "%s/%s", whole ? whole : ".", rest);
    free(whole);
}

/* Where compiled objects are kept: beside the builds, for they are the same in all of them. */
static void cache_folder(char *cache, size_t bytes) {
    if (fake.folder)
        snprintf(cache, bytes, "%s", fake.folder);
    else
        beside_library(cache, bytes, "../../simulated");
    mkdir(cache, 0777);
}

/* What kernels include of the simulator. A build may have been carried here from elsewhere. */
static void sim_folder(char *folder, size_t bytes) {
    snprintf(folder, bytes, "%s", SIM_FOLDER);
    if (access(folder, R_OK) != 0) beside_library(folder, bytes, "../../../tests/sim");
}

static void folder_name(char *folder, size_t bytes, const struct program *p, int n,
                        const char *const *options) {
    static const char *const parts[] = { "sim_device.h", "sim_ops.h" };
    char cache[512], twins[512], path[600];
    struct text twin = { 0 };
    sim_folder(twins, sizeof twins);
    text_print(&twin, "");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", twins, parts[i]);
        file_read(path, &twin);
    }
    uint64_t high = program_hash(p, n, options, twin.bytes, 0xcbf29ce484222325ull);
    uint64_t low = program_hash(p, n, options, twin.bytes, 0x84222325cbf29ce4ull);
    free(twin.bytes);
    cache_folder(cache, sizeof cache);
    snprintf(folder, bytes, "%s/%016llx%016llx", cache, (unsigned long long)high,
             (unsigned long long)low);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

static const char *const fixed_flags[] = {
    "-std=gnu17",
    "-g1",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-DREEL_SIM",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-unused",
    "-Wno-maybe-uninitialized",
#if defined(SIM_INIT)
    "-ftrivial-auto-var-init=pattern",
#endif
};
enum { N_FIXED = (int)(sizeof fixed_flags / sizeof *fixed_flags), MOST_WORDS = 64 };

/* Compiles the files in folder `at`. */
static nvrtcResult compile_in(struct program *p, const char *at, int n, const char *const *options,
                              const char **words) {
    char object[700], source[700], log[700], include[720], twins[520] = "-I", flags[128];
    int n_words = 0;
    sim_folder(twins + 2, sizeof twins - 2);
    snprintf(object, sizeof object, "%s/kernels.so", at);
    snprintf(source, sizeof source, "%s/%s", at, p->files[0].name);
    snprintf(log, sizeof log, "%s/log", at);
    snprintf(include, sizeof include, "-I%s", at);
    snprintf(flags, sizeof flags, "%s", flags_of(p));
    words[n_words++] = fake.compiler;
    for (char *save, *word = strtok_r(flags, " ", &save); word && n_words < MOST_WORDS / 2;
         word = strtok_r(NULL, " ", &save))
        words[n_words++] = word;
    for (int i = 0; i < N_FIXED; i++)
        words[n_words++] = fixed_flags[i];
    words[n_words++] = twins;
    words[n_words++] = include;
    nvrtcResult status = options_take(n, options, words, &n_words, &p->log);
    if (status != NVRTC_OK) return status;
    const char *const last[] = { "-x", "c", source, "-o", object, "-lm" };
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        words[n_words++] = last[i];
    struct file command = { .name = (char[]){ "command" } }; /* for people */
    for (int i = 0; i < n_words; i++)
        text_print(&command.text, words[i]), text_print(&command.text, " ");
    file_write(at, &command);
    free(command.text.bytes);
    int code = run(words, log);
    file_read(log, &p->log);
    fake.n_compiled++;
    if (code == 127) return NVRTC_INTERNAL;
    return code ? NVRTC_COMPILATION : NVRTC_OK;
}

/* Other processes may be at the same: each works in a folder of its own and renames it when it is
 * done; who comes second throws his away. */
static nvrtcResult compile(struct program *p, int n, const char *const *options) {
    char folder[600], own[640], object[640];
    for (int i = 0; i < fake.n_patches; i++)
        if (!patch(p, &fake.patches[i])) return NVRTC_COMPILATION;
    file_use(p, &p->files[0]);
    callers_add(&p->files[0].text);
    folder_name(folder, sizeof folder, p, n, options);
    snprintf(object, sizeof object, "%s/kernels.so", folder);
    snprintf(p->image, sizeof p->image, "fake cubin %s\n", object);
    if (access(object, R_OK) == 0) return fake.n_cached++, NVRTC_OK;

    const char **words = calloc((size_t)n + MOST_WORDS, sizeof *words);
    if (!words) return NVRTC_OUT_OF_MEMORY;
    snprintf(own, sizeof own, "%s.%d", folder, (int)getpid());
    mkdir(own, 0777);
    nvrtcResult status = NVRTC_OK;
    for (int i = 0; i < p->n_files && status == NVRTC_OK; i++)
        if (p->files[i].used && !file_write(own, &p->files[i])) status = NVRTC_INTERNAL;
    if (status == NVRTC_OK) status = compile_in(p, own, n, options, words);
    if (status != NVRTC_OK || rename(own, folder) != 0)
        nftw(own, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    if (status == NVRTC_OK && access(object, R_OK) != 0) status = NVRTC_INTERNAL;
    free(words);
    return status;
}

/* ---- the interface ---- */

EXPORT const char *nvrtcGetErrorString(nvrtcResult status);
EXPORT nvrtcResult nvrtcVersion(int *major, int *minor);
EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int *n);
EXPORT nvrtcResult nvrtcGetSupportedArchs(int *archs);
EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name,
                                      int n, const char *const *headers, const char *const *names);
EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options);
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes);
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *image);
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes);
EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *image);
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes);
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log);

const char *nvrtcGetErrorString(nvrtcResult status) {
    switch (status) {
    case NVRTC_OK:
        return "NVRTC_SUCCESS";
    case NVRTC_OUT_OF_MEMORY:
        return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_INVALID_INPUT:
        return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_INVALID_PROGRAM:
        return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_INVALID_OPTION:
        return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_COMPILATION:
        return "NVRTC_ERROR_COMPILATION";
    case NVRTC_INTERNAL:
        return "NVRTC_ERROR_INTERNAL_ERROR";
    default:
        return "NVRTC_ERROR unknown";
    }
}

nvrtcResult nvrtcVersion(int *major, int *minor) {
    ENTER();
    *major = fake.version / 1000, *minor = fake.version % 1000 / 10;
    return NVRTC_OK;
}

static const int archs_known[] = { 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121 };

nvrtcResult nvrtcGetNumSupportedArchs(int *n) {
    ENTER();
    *n = (int)(sizeof archs_known / sizeof *archs_known);
    return NVRTC_OK;
}

nvrtcResult nvrtcGetSupportedArchs(int *archs) {
    ENTER();
    memcpy(archs, archs_known, sizeof archs_known);
    return NVRTC_OK;
}

static void program_free(struct program *p) {
    for (int i = 0; p->files && i < p->n_files; i++) {
        free(p->files[i].name);
        free(p->files[i].text.bytes);
    }
    free(p->files);
    free(p->log.bytes);
    free(p);
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int n,
                               const char *const *headers, const char *const *names) {
    ENTER();
    struct program *p = calloc(1, sizeof *p);
    if (!p) return NVRTC_OUT_OF_MEMORY;
    p->n_files = n + 1;
    p->files = calloc((size_t)n + 1, sizeof *p->files);
    bool good = p->files && file_set(&p->files[0], name ? name : "default_program", source);
    for (int i = 0; good && i < n; i++)
        good = file_set(&p->files[i + 1], names[i], headers[i]);
    if (!good) {
        program_free(p);
        return NVRTC_OUT_OF_MEMORY;
    }
    *program = p;
    return NVRTC_OK;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    if (!program || !*program) return NVRTC_INVALID_PROGRAM;
    program_free(*program);
    *program = NULL;
    return enter(__func__);
}

static void end_process(int number) {
    (void)number;
    _exit(4);
}

/* As NVIDIA's front end does, which ends the process by exit(). */
static void catch_signals(int ms) {
    const struct timespec pause = { ms / 1000, ms % 1000 * 1000000 };
    void (*interrupt)(int) = signal(SIGINT, SIG_IGN), (*term)(int) = signal(SIGTERM, SIG_IGN);
    signal(SIGINT, end_process);
    signal(SIGTERM, end_process);
    nanosleep(&pause, NULL);
    signal(SIGINT, interrupt);
    signal(SIGTERM, term);
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
    ENTER();
    pthread_mutex_lock(&lock);
    if (fake.catches_ms) catch_signals(fake.catches_ms);
    nvrtcResult status = compile(p, n, options);
    pthread_mutex_unlock(&lock);
    return status;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes) {
    ENTER();
    *bytes = strlen(p->image) + 1;
    return NVRTC_OK;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *image) {
    ENTER();
    memcpy(image, p->image, strlen(p->image) + 1);
    return NVRTC_OK;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes) { return nvrtcGetCUBINSize(p, bytes); }
nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *image) { return nvrtcGetCUBIN(p, image); }

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes) {
    ENTER();
    *bytes = p->log.n + 1;
    return NVRTC_OK;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log) {
    ENTER();
    memcpy(log, p->log.bytes ? p->log.bytes : "", p->log.n + 1);
    return NVRTC_OK;
}

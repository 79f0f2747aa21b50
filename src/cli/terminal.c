#include "cli/terminal.h"

#include "cli/raw_mode.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_is(FILE *f) { return isatty(fileno(f)) == 1; }

int terminal_columns(FILE *f) {
    struct winsize size;
    if (ioctl(fileno(f), TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
    return size.ws_col;
}

void terminal_size(FILE *f, int *columns, int *rows) {
    struct winsize size = { 0 };
    const bool known = ioctl(fileno(f), TIOCGWINSZ, &size) == 0;
    *columns = known && size.ws_col ? size.ws_col : 80;
    *rows = known && size.ws_row ? size.ws_row : 24;
}

/* C1 control characters are c2 80 to c2 9f in UTF-8. */
static bool is_c1(const char *text) {
    return (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] >= 0x80 &&
           (unsigned char)text[1] < 0xa0;
}

char terminal_byte(const char *text, size_t n_bytes, size_t i) {
    unsigned char c = (unsigned char)text[i];
    if (c < 0x20 || c == 0x7f) return c == '\n' || c == '\t' ? text[i] : '?';
    if (i + 1 < n_bytes && is_c1(text + i)) return '?';
    if (i > 0 && is_c1(text + i - 1)) return 0;
    return text[i];
}

void terminal_write(FILE *f, const char *text, size_t n_bytes) {
    if (!terminal_is(f)) {
        fwrite(text, 1, n_bytes, f);
        return;
    }
    for (size_t i = 0; i < n_bytes; i++) {
        char c = terminal_byte(text, n_bytes, i);
        if (c) fputc(c, f);
    }
}

bool terminal_has_styles(FILE *f) {
    const char *term = getenv("TERM"), *off = getenv("NO_COLOR");
    return terminal_is(f) && term && strcmp(term, "dumb") != 0 && !(off && off[0]);
}

void terminal_dim(FILE *f, bool on) { fputs(on ? "\033[2m" : "\033[0m", f); }

/* ---- signals --------------------------------------------------------------------------------- */

/* What a handler may touch: the presses not yet taken, and the session they are meant for. */
static volatile sig_atomic_t presses;
static struct reel_session *volatile target;
/* A byte for each press: a wait sees one that came just before it, on whatever thread. */
static int wake[2] = { -1, -1 };

void terminal_wake(void) {
    int saved = errno;
    if (wake[1] >= 0 && write(wake[1], "", 1) < 0) errno = saved; /* full: bytes enough are there */
}

static void on_interrupt(int number) {
    (void)number;
    if (presses >= 2) { /* nobody listens: do not hold the user */
        raw_mode_leave();
        _exit(REEL_E_CANCELLED);
    }
    interrupt_raise();
}

void interrupt_raise(void) {
    presses++;
    struct reel_session *session = target;
    if (session) reel_session_cancel(session); /* stores an atomic, nothing more */
    terminal_wake();
}

static void handle(int number, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action); /* no SA_RESTART: a read at the prompt must return */
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void interrupt_install(void) {
    if (wake[0] < 0 && pipe(wake) == 0) {
        for (int i = 0; i < 2; i++) {
            fcntl(wake[i], F_SETFL, O_NONBLOCK);
            fcntl(wake[i], F_SETFD, FD_CLOEXEC);
        }
    }
    handle(SIGINT, on_interrupt);
}

void interrupt_by_signals(void) {
    struct sigaction now;
    handle(SIGTERM, on_interrupt);
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        handle(SIGHUP, on_interrupt);
}

void interrupt_target(struct reel_session *session) { target = session; }

bool interrupt_pending(void) { return presses > 0; }

static void take_wake(void) {
    char bytes[16];
    while (wake[0] >= 0 && read(wake[0], bytes, sizeof bytes) > 0) {
    }
}

bool interrupt_take(void) {
    bool came = presses > 0;
    take_wake();
    presses = 0;
    return came;
}

bool terminal_wait(int most_ms) {
    struct pollfd wait[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                              { .fd = wake[0], .events = POLLIN } };
    if (most_ms == 0) return poll(wait, 1, 0) == 1; /* what woke is for a wait that is one */
    if (poll(wait, 2, most_ms) <= 0) return false;
    if (wait[1].revents == 0) return true;
    take_wake();
    return false;
}

bool interrupt_or_input(FILE *f) {
    struct pollfd wait[2] = { { .fd = fileno(f), .events = POLLIN },
                              { .fd = wake[0], .events = POLLIN } };
    while (poll(wait, 2, -1) < 0 && errno == EINTR && !interrupt_pending()) {
    }
    return !interrupt_pending();
}

void streams_install(void) {
    static const int wrong_way[] = { O_WRONLY, O_RDONLY, O_RDONLY };
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) < 0 && errno == EBADF && open("/dev/null", wrong_way[i]) < 0) return;
}

static void on_bus_error(int number) {
    static const char text[] =
        "\nreel: a file became shorter while it was in use, or its disk failed (SIGBUS); "
        "leave model files alone while they are open\n";
    (void)number;
    raw_mode_leave();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(REEL_E_IO);
    _exit(REEL_E_IO);
}

void faults_install(void) {
    handle(SIGBUS, on_bus_error);
    handle(SIGPIPE, SIG_DFL); /* may be inherited as ignored; `reel ... | head` ends quietly */
}

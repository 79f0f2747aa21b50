#include "cli/raw_mode.h"

#include "cli/keys.h"
#include "cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* The screen that programs like editors have, which leaves what was shown before as it was, without
 * a cursor. */
#define SCREEN_ON  "\033[?1049h\033[?25l"
#define SCREEN_OFF "\033[?25h\033[?1049l"

/* What handlers need: the terminal's mode before and as it is to be now. */
static struct termios before, now;
static volatile sig_atomic_t taken, paused, resized, resumed, stops, whole_screen;

/* What ends the program unless somebody handles it; the terminal is given back first. */
static const int fatal[] = { SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGABRT, SIGSEGV, SIGFPE, SIGILL };
#define N_FATAL (sizeof fatal / sizeof *fatal)

static void say(const char *text) {
    const ssize_t n = write(STDOUT_FILENO, text, strlen(text));
    (void)n; /* a terminal that is gone needs nothing */
}

bool raw_mode_in_front(void) {
    const pid_t front = tcgetpgrp(STDIN_FILENO);
    return front < 0 || front == getpgrp(); /* without a controlling terminal nobody is behind */
}

static void say_on(bool on) {
    if (whole_screen) say(on ? SCREEN_ON : SCREEN_OFF);
    say(on ? PASTE_ON : PASTE_OFF);
}

/* A process in the background that sets a terminal's mode is stopped for it; the mode is then not
 * its own to set. */
static void set_mode(const struct termios *mode, bool on) {
    if (!raw_mode_in_front()) return;
    tcsetattr(STDIN_FILENO, TCSANOW, mode);
    say_on(on);
}

void raw_mode_whole_screen(void) { whole_screen = true; }

void raw_mode_leave(void) {
    if (!taken) return;
    taken = false;
    set_mode(&before, false);
}

/* ---- signals --------------------------------------------------------------------------------- */

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void on_fatal(int number) { /* reset to its default when it came */
    raw_mode_leave();
    raise(number);
}

static void on_resize(int number) {
    (void)number;
    resized = true;
    terminal_wake();
}

/* After a stop whoever ran meanwhile may have set the terminal otherwise. */
static void on_continue(int number) {
    const int saved = errno;
    (void)number;
    if (taken) set_mode(&now, true);
    resumed = true;
    stops++;
    terminal_wake();
    errno = saved;
}

static void on_stop(int number) {
    const int saved = errno;
    sigset_t this_one, mask;
    if (taken) set_mode(&before, false);
    handle(number, SIG_DFL, 0);
    sigemptyset(&this_one);
    sigaddset(&this_one, number);
    sigprocmask(SIG_UNBLOCK, &this_one, &mask);
    raise(number); /* stops here */
    sigprocmask(SIG_SETMASK, &mask, NULL);
    handle(number, on_stop, SA_RESTART);
    on_continue(SIGCONT); /* without a shell that controls jobs nothing was stopped */
    errno = saved;
}

static void install(void) {
    struct sigaction is;
    for (size_t i = 0; i < N_FATAL; i++)
        if (sigaction(fatal[i], NULL, &is) == 0 && is.sa_handler == SIG_DFL)
            handle(fatal[i], on_fatal, (int)(SA_RESETHAND | SA_NODEFER));
    if (sigaction(SIGTSTP, NULL, &is) == 0 && is.sa_handler == SIG_DFL)
        handle(SIGTSTP, on_stop, SA_RESTART);
    handle(SIGCONT, on_continue, SA_RESTART);
    handle(SIGWINCH, on_resize, SA_RESTART);
}

/* ---- modes ----------------------------------------------------------------------------------- */

void raw_mode_signals(bool on) {
    if (!taken) return;
    now = before;
    now.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | IXON | ISTRIP | INPCK);
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHONL | IEXTEN | ISIG);
    now.c_lflag |= (tcflag_t)NOFLSH | (on ? (tcflag_t)ISIG : 0);
    now.c_cflag |= CS8;
    now.c_cc[VMIN] = 1;
    now.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &now); /* stops a program in the background until fg */
}

bool raw_mode_enter(void) {
    if (tcgetattr(STDIN_FILENO, &before) != 0) return false;
    install();
    taken = true;
    raw_mode_signals(true);
    say_on(true);
    return true;
}

void raw_mode_suspend(void) { raise(SIGTSTP); }

void raw_mode_pause(void) {
    paused = taken;
    raw_mode_leave();
}

void raw_mode_go_on(void) {
    if (!paused) return;
    paused = false;
    taken = true;
    raw_mode_signals(true);
    say_on(true);
}

static bool take(volatile sig_atomic_t *flag) {
    const bool was = *flag;
    *flag = false;
    return was;
}

bool raw_mode_resized(void) { return take(&resized); }
bool raw_mode_resumed(void) { return take(&resumed); }
int raw_mode_stops(void) { return stops; }

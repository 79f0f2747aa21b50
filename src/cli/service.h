/* What a service manager hears of the program, by systemd's protocol (sd_notify(3)). */
#ifndef REEL_CLI_SERVICE_H
#define REEL_CLI_SERVICE_H

/* Sends "READY=1" and the like to $NOTIFY_SOCKET; nothing happens where there is none. */
void service_notify(const char *state);

#endif

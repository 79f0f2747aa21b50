/* The program's signal handlers while NVRTC compiles. Its front end sets handlers of its own for
 * SIGINT and SIGTERM, whoever had some, and gives the old ones back half a second later. They end
 * the process by exit(), which other threads do not survive: an interrupt of a program that
 * compiles beside its work would crash it (seen with NVRTC 13.0). So a thread looks for such
 * handlers twice a millisecond and puts the program's back; an interrupt that comes in between
 * still ends the process. */
#ifndef REEL_CUDA_COMPILER_SIGNALS_H
#define REEL_CUDA_COMPILER_SIGNALS_H

/* Around every compilation; several may go on at a time. `compiler`: a function of NVRTC's.
 * Afterwards each signal is handled as before, with the flags and the mask that it had; a handler
 * that the program sets meanwhile can be lost, since the compiler gives back what it found. */
void compiler_signals_begin(const void *compiler);
void compiler_signals_end(void);

#endif

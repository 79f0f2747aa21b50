/* Where speech begins and ends, by its loudness: for clients of /v1/realtime that leave that to the
 * server. It knows levels and the noise between words, no words: music or a door is speech, too. */
#ifndef REEL_SERVER_VOICE_H
#define REEL_SERVER_VOICE_H

#include <stdbool.h>

enum { VOICE_FRAME = 320 }; /* samples at 16,000 Hz: 20 ms */

struct voice {
    double margin_db; /* above the noise: speech */
    int most_quiet;   /* frames without speech that end it */
    double noise_db;
    int n_loud, n_quiet; /* frames in a row */
    bool speaking;
    bool started; /* a frame was heard */
};

enum voice_change { VOICE_SAME, VOICE_STARTED, VOICE_STOPPED };

/* How many frames before the one that told of it speech began. */
enum { VOICE_LATE = 2 };

/* threshold: 0 to 1, 0.5 is 12 dB above the noise. */
void voice_init(struct voice *v, double threshold, int silence_ms);

/* VOICE_FRAME samples more. */
enum voice_change voice_frame(struct voice *v, const float *samples);

#endif

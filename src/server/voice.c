#include "server/voice.h"

#include <math.h>

#define LOUD_FRAMES  (VOICE_LATE + 1) /* a click is shorter */
#define LEAST_DB     -55.0            /* of full scale; what is quieter is no speech */
#define LEAST_NOISE  -80.0
#define FIRST_NOISE  -50.0 /* at most, where a recording begins in the middle of a word */
#define RISE_DB      0.06  /* of the noise, a frame: 3 dB a second */
#define RISE_SPOKEN  0.03
#define FALL         0.3  /* of the way down, a frame */
#define MARGIN_RANGE 24.0 /* dB, of threshold 1 */
#define HOLD_DB      3.0  /* speech that was found may be so much quieter */

void voice_init(struct voice *v, double threshold, int silence_ms) {
    const int frame_ms = VOICE_FRAME / 16;
    *v = (struct voice){ .margin_db = threshold * MARGIN_RANGE,
                         .most_quiet = (silence_ms + frame_ms - 1) / frame_ms };
    if (v->most_quiet < 1) v->most_quiet = 1;
}

static double level_db(const float *samples) {
    double sum = 1e-10;
    for (int i = 0; i < VOICE_FRAME; i++)
        sum += (double)samples[i] * samples[i];
    return 10 * log10(sum / VOICE_FRAME);
}

static void follow_noise(struct voice *v, double level) {
    if (!v->started) v->noise_db = fmin(level, FIRST_NOISE);
    v->started = true;
    if (level < v->noise_db)
        v->noise_db += FALL * (level - v->noise_db);
    else
        v->noise_db += v->speaking ? RISE_SPOKEN : RISE_DB;
    v->noise_db = fmax(v->noise_db, LEAST_NOISE);
}

enum voice_change voice_frame(struct voice *v, const float *samples) {
    const double level = level_db(samples);
    follow_noise(v, level);
    const double needed = fmax(v->noise_db + v->margin_db, LEAST_DB) - (v->speaking ? HOLD_DB : 0);
    const bool loud = level > needed;
    v->n_loud = loud ? v->n_loud + 1 : 0;
    v->n_quiet = loud ? 0 : v->n_quiet + 1;
    if (!v->speaking && v->n_loud >= LOUD_FRAMES) {
        v->speaking = true;
        return VOICE_STARTED;
    }
    if (v->speaking && v->n_quiet >= v->most_quiet) {
        v->speaking = false;
        return VOICE_STOPPED;
    }
    return VOICE_SAME;
}

#!/usr/bin/env python3
"""Many recordings to subtitles beside them: talk.flac becomes talk.srt.

    python transcribe_files.py MODEL FILE...
"""
import sys
from pathlib import Path

import reel


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    failed = 0
    with reel.Transcriber(sys.argv[1]) as transcriber:
        for name in sys.argv[2:]:
            try:
                made = transcriber.transcribe(name)
            except reel.ReelError as error:  # the others go on
                print(error, file=sys.stderr)
                failed += 1
                continue
            Path(name).with_suffix(".srt").write_text(made.srt(), encoding="utf-8")
            print(f"{name}: {made.seconds:.1f} s, {made.language or 'no speech'}: {made.text[:60]}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

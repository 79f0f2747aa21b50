"""python -m reel: the command `reel` that the package carries."""
import os
import sys


def main() -> None:
    from ._names import command

    words = command()
    os.execv(words[0], words + sys.argv[1:])


if __name__ == "__main__":
    main()

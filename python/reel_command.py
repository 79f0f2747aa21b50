"""The command `reel`, which the package carries. A module of its own, so that it starts at once: nothing of
the package is imported."""
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    found = find_spec("reel")
    folder = Path(found.origin).parent if found is not None and found.origin else Path(".")
    program = folder / "bin" / "reel"
    if not program.exists():
        sys.exit(f"reel: this package was built without the command ({program} is not there)")
    os.execv(program, ["reel"] + sys.argv[1:])


if __name__ == "__main__":
    main()

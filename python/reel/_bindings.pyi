# What make_bindings.py writes.
from typing import Any, List, Tuple

ffi: Any
VERSION: str
FUNCTIONS: List[str]
STATUSES: List[Tuple[str, int, str]]

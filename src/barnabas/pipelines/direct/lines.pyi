from typing import Final

GROUPS: Final[tuple[str, ...]]

"""Simulated processes that train together."""

import dataclasses

from faze.engine.parallel import World


@dataclasses.dataclass(frozen=True)
class Apart(World):
    """A process that need not wait for the others, which have the same number as it, or this one."""

    others: int | None = None

    def least(self, value: int) -> int:
        return value if self.others is None else min(value, self.others)

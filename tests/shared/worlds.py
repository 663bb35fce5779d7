"""Simulated processes that train together."""

import dataclasses

from faze.engine.parallel import World


@dataclasses.dataclass(frozen=True)
class Apart(World):
    """A process that need not wait for the others, which have this number, or the same as it."""

    others: int | None = None

    def least(self, value: int) -> int:
        return value if self.others is None else min(value, self.others)

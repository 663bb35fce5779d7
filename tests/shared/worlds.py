"""Simulated processes that train together."""

import dataclasses

from faze.engine.parallel import World


@dataclasses.dataclass(frozen=True)
class Apart(World):
    """A process that does not wait for the others; in `least`, they have the same value as it, or `others`."""

    others: int | None = None

    def least(self, value: int) -> int:
        return value if self.others is None else min(value, self.others)

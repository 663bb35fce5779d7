"""Who trains: what the run log says first, and what tells a training from another."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from faze.base.output_cache import key_of
from faze.base.run_log import RunLog, acting
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.parallel import World
from faze.engine.switches import Switch

# Of the machine, what rounds: the same steps on another processor end with slightly other weights.
ROUNDS = ("processor", "gpus", "cuda", "cudnn", "torch")


@dataclass(frozen=True)
class Trainee:
    """A training of one tier and seed, on this machine."""

    config: Resolved
    fingerprint: str  # of the code
    switches: tuple[Switch, ...]
    notes: tuple[str, ...]
    moved: str = ""  # what is another here than where the training began, if it goes on

    def key(self, world: World, read: tuple) -> str:
        """Name what is trained, by what acts: all but the tier's name and what cannot act here."""
        acted = {f"engine.{name}": words for name, words in acting(map(asdict, self.switches)).items()}
        facts = machine.describe()
        place = (world.device.type, world.size, torch.get_num_threads(), [facts.get(fact) for fact in ROUNDS])
        return key_of("train", dict(self.config.values) | acted, place, read)

    def moved_from(self, events: Sequence[Mapping[str, Any]]) -> str:
        """Say what is another here than where the training that these events are of began; "" if nothing is."""
        before = {event.get("switch"): event.get("acted") for event in events if event["event"] == "switch"}
        now = acting(map(asdict, self.switches))
        if events:
            began, here = events[0].get("machine") or {}, machine.describe()
            before |= {fact: began[fact] for fact in ROUNDS if fact in began}
            now |= {fact: str(here.get(fact)) for fact in ROUNDS}
        return "; ".join(
            f"{name} {now[name]}, before {old}" for name, old in before.items() if now.get(name, old) != old
        )

    def introduce(self, log: RunLog, pairs: int) -> None:
        """Log who is running and how each switch acts; or, if resumed, from where the run goes on, and what moved."""
        if pairs:
            log.event("resume", step=pairs, moved=self.moved)
            print(f"train: resumed after {pairs} pairs", file=sys.stderr)
            if self.moved:
                run = f"{self.config.tier}, seed {self.config.seed}"
                note = f"{run}: from {pairs} pairs on not as it began: {self.moved}"
                log.event("note", text=note)
                print(f"train: {note}", file=sys.stderr)
        else:
            log.event(
                "start",
                stage=self.config.stage,
                name=self.config.name,
                tier=self.config.tier,
                seed=self.config.seed,
                config=dict(self.config.flat),
                config_hash=self.config.hash,
                fingerprint=self.fingerprint,
                machine=machine.describe(),
            )
            for switch in self.switches:
                log.event("switch", **asdict(switch))
                if switch.reason:
                    print(f"train: {switch}", file=sys.stderr)
        for note in self.notes:
            log.event("note", text=note)

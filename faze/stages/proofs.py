"""Combine the proofs of all tiers."""

import json
from pathlib import Path

from faze.base.files import whole_file


def main(*, proofs: list[Path] = (), out: Path) -> None:
    """Write proofs.json from the stage prove's TIER.json."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in proofs}
    with whole_file(out) as temporary:
        temporary.write_text(json.dumps(found, indent=1), encoding="utf-8")

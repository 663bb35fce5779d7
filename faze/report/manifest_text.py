"""Describe a checked manifest for a terminal."""

import re
from collections import defaultdict
from collections.abc import Sequence

from faze.data.manifest_inspection import ManifestInspection, ManifestPerson
from faze.data.readers import Reject
from faze.evaluation.wording import counted
from faze.report.dataset_page import percent, text_table

_LINE = re.compile(r"line (\d+)[,:] ")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_MOST_LINES = 6  # numbers of lines that are listed for a reason
_HEAD = ("person", "split", "lines", "usable", "camera", "targets", "on screen")


def describe_manifest(found: ManifestInspection) -> str:
    """Describe people, faults and warnings of a manifest."""
    usable = sum(person.usable for person in found.people)
    people = counted(len(found.people), "person", "people")
    blocks = [
        [f"{found.path.name}: {people}, {counted(found.lines, 'line')}, {usable:,} usable"],
        text_table(_HEAD, [_row(person) for person in found.people]),
        _describe_rejects([reject for person in found.people for reject in person.rejects]),
        [f"Warning: person {p.person_id}: {warning}." for p in found.people for warning in p.warnings],
        [f"Ignored columns: {', '.join(found.ignored)}."] if found.ignored else [],
        [] if found.has_poses else ["No head poses: `faze landmarks` estimates them. The labels are not checked yet."],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _row(person: ManifestPerson) -> tuple[str, ...]:
    known = person.on_screen + person.off_screen
    # The name of a column, such as target_x_mm, is shortened to x.
    ranges = ", ".join(f"{name.split('_')[1]} {low:.4g} to {high:.4g}" for name, low, high in person.ranges)
    unit = person.ranges[0][0].rpartition("_")[2] if person.ranges else ""
    return (
        person.person_id,
        person.split,
        f"{person.lines:,}",
        f"{person.usable:,}",
        person.camera,
        f"{ranges} {unit}".strip(),
        percent(person.on_screen / known) if known else "unknown",
    )


def _describe_rejects(rejects: Sequence[Reject]) -> list[str]:
    """List similar reasons together, each with some of its lines, the most frequent first."""
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for reject in rejects:
        found = _LINE.match(reject.reason)
        text = reject.reason[found.end() :] if found else reject.reason
        groups[_NUMBER.sub("#", text)].append((found[1] if found else "", text))
    rows = []
    for members in sorted(groups.values(), key=len, reverse=True):
        numbers = [number for number, _ in members if number]
        listed = ", ".join(numbers[:_MOST_LINES]) + (", ..." if len(numbers) > _MOST_LINES else "")
        which = f" ({listed})" if numbers else ""
        rows.append(f"  {counted(len(members), 'line')}{which}: {members[0][1]}")
    return ["Rejected:", *rows] if rows else ["No line is rejected."]

"""Rule `synthesise`: synthetic people -> raw camera frames in the layouts of public data sets, and their ground truth.

A data set is rendered only if its folder is given. Its frames do not depend on the other data set.
"""

import contextlib
from pathlib import Path

from faze.base.files import whole_folder
from faze.config.stage_config import Resolved
from faze.data.synthetic import RENDERED_MARK, layouts
from faze.data.synthetic.people import render_everybody


def main(
    *,
    config: Resolved,
    laptop: Path | None = None,
    laptop_supplementary: Path | None = None,
    phone: Path | None = None,
    phone_supplementary: Path | None = None,
    threads: int,
    truth: Path,
) -> None:
    """Render all people."""
    outputs = {"mpiifacegaze": (laptop, laptop_supplementary), "gazecapture": (phone, phone_supplementary)}
    with contextlib.ExitStack() as stack:
        roots = {layout: stack.enter_context(whole_folder(folder)) for layout, (folder, _) in outputs.items() if folder}
        for root in roots.values():
            (root / RENDERED_MARK).write_text("These are not photographs: faze rendered the people.\n")
        people = render_everybody(config.synthetic, roots, threads)
        for layout in roots:
            if file := outputs[layout][1]:
                of_layout = [one for one in people if one.role.layout == layout]
                layouts.write_arrays(file, {one.role.person_id: layouts.supplementary(one) for one in of_layout})
        layouts.write_arrays(truth, {one.role.person_id: layouts.truth(one) for one in people})

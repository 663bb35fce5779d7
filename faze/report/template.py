"""The templates of the pages, with the words that they use."""

import jinja2

from faze.evaluation.wording import NAMES
from faze.report import dataset_words, formats


def load_template(name: str) -> jinja2.Template:
    """Load a template of this package; a name that it is not given is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("faze.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= formats.FILTERS | {"marked": formats.marked}
    environment.globals |= {"dataset_words": dataset_words, "names": NAMES}
    return environment.get_template(name)

"""The templates of the pages, with the words that they use."""

import jinja2

from faze.report import dataset_words, formats

FILTERS = (
    "degrees",
    "change",
    "interval",
    "ratio",
    "saving",
    "percent",
    "share",
    "digits",
    "milliseconds",
    "gibibytes",
    "duration",
    "count",
    "marked",
    "angle",
)


def load_template(name: str) -> jinja2.Template:
    """Load a template of this package; a name that it is not given is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("faze.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    for filter_name in FILTERS:
        environment.filters[filter_name] = getattr(formats, filter_name)
    environment.globals["dataset_words"] = dataset_words
    return environment.get_template(name)

"""What every stage and command does with its command line."""

import functools
import sys
from collections.abc import Callable

from faze.base.errors import UserError


def one_sentence(main: Callable[[], None]) -> Callable[[], int]:
    """Turn what a person can mend (UserError, unreadable file, full disk) into one sentence and exit code 1."""

    @functools.wraps(main)
    def run() -> int:
        try:
            main()
        except (UserError, OSError) as error:
            named = isinstance(error, OSError) and error.filename and error.strerror
            sentence = f"{error.filename}: {error.strerror}" if named else error
            print(f"{sys.argv[0].rsplit('/', 1)[-1]}: {sentence}", file=sys.stderr)
            return 1
        return 0

    return run

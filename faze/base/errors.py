"""Errors that the user can fix, as opposed to bugs in faze."""


class UserError(ValueError):
    """An error that the user can fix: the message contains the file, key or person, the problem, and the remedy.

    A command prints it as one sentence. Any other error is a bug in faze and shows its traceback.
    """


class DamagedFile(UserError):
    """An input file that cannot be read. It stops the stage, or excludes only the person or frame that it describes."""

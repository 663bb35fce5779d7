"""Errors that the user can fix, as opposed to bugs in faze."""


class UserError(ValueError):
    """An error that the user can fix: the message names the file, key or person, what is wrong, and the remedy.

    A command prints it as one sentence. Any other error is a bug in faze and shows its traceback.
    """


class DamagedFile(UserError):
    """A file is corrupt. It stops the stage, whereas gaps in a data set only exclude the frame or person."""

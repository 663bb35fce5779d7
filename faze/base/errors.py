"""Errors that the user can fix, as opposed to faults of faze."""


class UserError(ValueError):
    """An error that the user can fix: the message names the file, key or person, what is wrong, and the remedy.

    A command prints it as one sentence. Any other error is a fault of faze and shows its traceback.
    """


class DamagedFile(UserError):
    """A file is corrupt. It stops the stage; a data set's own gaps only leave out the frame or person."""

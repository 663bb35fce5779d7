"""Errors that the user can fix, as opposed to bugs in faze."""


class UserError(ValueError):
    """An error that the user can fix: the message contains the file, key or person, the problem, and the remedy.

    A command prints it as one sentence. Any other error is a bug in faze and shows its traceback.
    """


class DamagedFile(UserError):
    """A stranger's file that cannot be opened; it stops the stage. A gap only excludes a frame or a person."""

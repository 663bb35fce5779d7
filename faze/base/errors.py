"""Errors that the user can fix, as opposed to bugs in faze."""


class UserError(ValueError):
    """An error that the user can fix, with a message that names the file, key or person, the problem, and the remedy.

    Commands print only this message. Any other error is a bug in faze, for which they show a traceback.
    """

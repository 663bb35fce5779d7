"""What the user can mend, told apart from what is ours to mend."""


class UserError(ValueError):
    """Something that the user can mend: the message names the file, key or person, what is wrong, and the remedy.

    A command prints it as one sentence. Any other error is a fault of faze and shows its traceback.
    """


class DamagedFile(UserError):
    """A file is not what was written. No person or frame is left out for it, as for what a data set itself lacks."""

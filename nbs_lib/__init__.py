"""Discriminative classification losses, their metrics and their theory, as the book uses them.

Import the room you need (``from nbs_lib import losses, metrics``); importing the package itself loads nothing heavy.
"""

__version__ = "0.1.0"

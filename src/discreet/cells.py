"""What a single value says: one rule for cells of text, Python objects and records, whatever stands beside them."""

from __future__ import annotations

import math
import re
import uuid

import numpy as np

#: A number in text: decimal, ASCII, perhaps with spaces around it. Short of this, text is a bool, a name or nothing.
NUMBER = " *[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)? *"
TRUE, FALSE = " *[tT][rR][uU][eE] *", " *[fF][aA][lL][sS][eE] *"

#: Whole numbers among Python objects are below this: room for names of 128 bits, and quickly written.
LARGEST = 10**40


def text_of(value: object) -> str | None:
    """An object as the text that a file would hold; what is neither text, number nor bool is missing."""
    if isinstance(value, str):
        try:
            return str.encode(value, "utf-8").decode("utf-8")
        except UnicodeError:
            return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value)) if -LARGEST < value < LARGEST else None
    if isinstance(value, (float, np.floating)):
        return repr(float(value)) if np.isfinite(value) else None
    return str(value) if isinstance(value, uuid.UUID) else None


def number_of(text: str) -> float | None:
    """The finite number that a text is, if it is one."""
    if re.fullmatch(NUMBER, text):
        number = float(text)
        return number if math.isfinite(number) else None
    if re.fullmatch(TRUE, text):
        return 1.0
    return 0.0 if re.fullmatch(FALSE, text) else None

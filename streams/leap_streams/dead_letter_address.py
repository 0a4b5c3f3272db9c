"""How a letter is named on the command line: by the position of its source, or by its own."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from leap_streams.dead_letter_log import Letter

_FORM: Final = re.compile(r"(?:(@)|(?:(\d{1,18}):)?)(\d{1,18}):(\d{1,18})", re.ASCII)


class Address(NamedTuple):
    """`partition:offset` or `epoch:partition:offset` of the source, or `@partition:offset` of the letter itself."""

    partition: int
    offset: int
    epoch: int | None = None
    of_letter: bool = False

    def names(self, letter: Letter) -> bool:
        """Whether it names `letter`."""
        if self.of_letter:
            return (letter.partition, letter.offset) == (self.partition, self.offset)
        at = letter.position
        return at is not None and at[1:] == (self.partition, self.offset) and self.epoch in (None, at.epoch)


def parse(text: str) -> Address:
    """The address that `text` gives.

    Raises:
        ValueError: it has none of the forms.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(
            f"must be partition:offset or epoch:partition:offset of the record's source, or @partition:offset of the "
            f"letter itself, got {text!r}"
        )
    own, epoch, partition, offset = found.groups()
    return Address(int(partition), int(offset), int(epoch) if epoch else None, own is not None)

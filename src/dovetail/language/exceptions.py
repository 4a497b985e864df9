"""What an exception says, in the reader's language: the fact `{error}` of many texts."""

from __future__ import annotations

from dovetail.language.recognition import recognized
from dovetail.language.system_errors import system_error


def words_of(error: BaseException) -> str:
    """Our own errors are Korean already; a library's is in English and made of a template that we may know."""
    if isinstance(error, OSError) and error.strerror and type(error).__str__ is OSError.__str__:
        return system_error(error) if error.filename is None else f"{error.filename}: {system_error(error)}"
    return recognized(str(error))

"""Words: everything people read, in English and Turkish."""

from gpuguide.text.text import LANGUAGES, SEPARATORS, Text, texts

__all__ = ["LANGUAGES", "SEPARATORS", "Text", "texts"]

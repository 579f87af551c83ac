"""The room that a label takes in a drawing, where nothing can measure a font: by the widest usual sans-serif letters.

The widths are those of DejaVu Sans, in parts of the font size, rounded up; other fonts are narrower.
"""

from __future__ import annotations

import unicodedata

_NARROW, _USUAL, _CAPITAL, _WIDE, _SYMBOL = 0.42, 0.65, 0.8, 1.0, 1.4
_NARROW_LETTERS = frozenset(" !'()*,-./:;[]`fijlrt{|}")
_WIDE_LETTERS = frozenset("%@MWmw")
_CUT = "…"


def label_width(text: str, font_px: int) -> float:
    return sum(map(_advance, text)) * font_px


def fitted_label(text: str, width_px: float, font_px: int) -> str:
    """The text, or as much of its end as fits: names differ at their ends."""
    if label_width(text, font_px) <= width_px:
        return text
    room, kept = width_px - label_width(_CUT, font_px), len(text)
    while kept and (advance := _advance(text[kept - 1]) * font_px) <= room:
        room, kept = room - advance, kept - 1
    return _CUT + text[kept:]


def _advance(letter: str) -> float:
    if letter in _NARROW_LETTERS:
        return _NARROW
    if letter in _WIDE_LETTERS or letter == _CUT:
        return _WIDE
    if letter.isascii():
        return _CAPITAL if letter.isupper() else _USUAL
    if unicodedata.combining(letter):
        return 0.0
    return _SYMBOL if unicodedata.category(letter) == "So" or unicodedata.east_asian_width(letter) in "WF" else _WIDE

"""The grammar of numbers on plain text, written a second time with regular expressions: what the tests compare with."""

import re


def places_of_text(text, decimal_point=".", thousands_separator=","):
    """(place, part place) of each ASCII digit of a text, in order."""
    p = re.escape(decimal_point) if decimal_point else "(?!)"
    s = re.escape(thousands_separator) if thousands_separator else "(?!)"
    places = {}

    def mark_integer(start, run):
        for i in range(len(run)):
            places[start + i] = (len(run) - 1 - i, len(run) - 1 - i)

    # codes: their runs are integers, and nothing else may use their digits (from here on "c")
    chars = list(text)
    for match in re.finditer(rf"[0-9]+(?:{p}[0-9]+)+", text):
        has_point_before = bool(decimal_point) and text[: match.start()].endswith(decimal_point)
        if len(re.findall(p, match[0])) + has_point_before >= 2:
            for run in re.finditer("[0-9]+", match[0]):
                mark_integer(match.start() + run.start(), run[0])
            chars[match.start() : match.end()] = re.sub("[0-9]", "\1", match[0])
    text = "".join(chars)

    grouped = rf"(?<![0-9\1])[1-9][0-9]{{0,2}}(?:{s}[0-9]{{3}})+(?![0-9\1])(?!{s}[0-9\1])"
    number = re.compile(rf"(?P<integer>{grouped}|[0-9]+)(?:{p}(?P<after>[0-9]+))?|{p}(?P<leading>[0-9]+)")
    position = 0
    while match := number.search(text, position):
        position = match.end()
        start = match.start()
        if match["leading"]:
            previous = text[start - 1] if start else " "
            if previous.isalpha() or previous in ("\1", decimal_point):
                position = start + 1
                continue
        if match["integer"]:
            digits = [i for i in range(*match.span("integer")) if text[i].isdigit()]
            for later, i in enumerate(reversed(digits)):
                places[i] = (later, later)
        group = "after" if match["after"] else "leading"
        if match[group]:
            first, end = match.span(group)
            for i in range(first, end):
                places[i] = (first - 1 - i, end - 1 - i)
    return [places[i] for i in sorted(places)]

"""The run-time check of annotations under pytest; an int may stand for a float, as type checkers have it."""

from beartype import BeartypeConf, beartype

typechecked = beartype(conf=BeartypeConf(is_pep484_tower=True))

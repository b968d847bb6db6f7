"""The README and the pages under docs/ are code: their Python blocks run as tests, each page in a folder of its own.

The folder holds what the pages speak of: a model and tokenizer in `my-model`, and problems in `problems.jsonl`.
"""

import json
import os
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory):
    from fakes import one_digit_tokenizer, small_llama

    folder = tmp_path_factory.mktemp("page")
    tokenizer = one_digit_tokenizer()
    tokenizer.save_pretrained(folder / "my-model")
    small_llama(len(tokenizer)).save_pretrained(folder / "my-model")
    problems = [{"question": f"{n} + 0.5?", "answer": f"{n}.5"} for n in range(12)]
    (folder / "problems.jsonl").write_text("\n".join(json.dumps(problem) for problem in problems))
    home = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(home)


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"], fixtures=["page_folder"]
).pytest()

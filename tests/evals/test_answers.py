r"""Answers extracted and compared: tables written by hand from the benchmarks' conventions, and hostile texts."""

import os
import subprocess
import sys
import threading
import time

import pytest

from digitloss.errors import MissingExtraError
from digitloss.evals import _symbolic, _symbolic_worker, answers

NUMBERS = [  # output, answer
    # GSM8K: the solution ends with `#### number`
    ("Janet sells 16 - 3 - 4 = 9 eggs.\nShe makes 9 * 2 = $18.\n#### 18", "18"),
    ("#### 2,125", "2,125"),
    ("#### -7", "-7"),
    ("1 + 1 = 2\n#### 2\n\nQuestion: What is 3 + 4?", "2"),
    ("#### 5\nWait, again.\n#### 6", "6"),
    ("#### $1,234.50", "$1,234.50"),
    ("#### 12 boxes of 3", "12"),
    ("#### none", None),
    ("####", None),
    # marked in words
    ("The answer is 16.", "16"),
    ("The answer is: 180", "180"),
    ("The final answer is $42. She has 3 left.", "$42"),
    ("Answer: 7 apples, 2 of them red", "7"),
    ("**Answer:** 3.5", "3.5"),
    ("ANSWER: 1e3", "1e3"),
    ("So the answer is 24 * 60 / 12 = 120 minutes.\n\nThat is 2 hours.", "120"),
    ("The answer is 3. The answer is 4.", "4"),
    ("The answer to 5 + 3 is 8", "8"),
    ("The final answer is:\n\n$18$", "18"),
    ("The answer is approx. 5.", "5"),
    ("my answer is \u221212", "-12"),
    ("The answer is unknown, but 5 is near.", "5"),
    ("The answer is 18. Check: x = 5.", "18"),
    ("The answer is Rs. 360", "Rs. 360"),
    ("Ans: 4", "4"),
    ("The answer is not known. There are 5 of them.", None),
    (r"The answer is $\boxed{36}$, not 35.", "36"),
    (r"\boxed{7}. The answer is 8.", "7"),
    (r"\boxed{\text{seven}}", None),
    (r"$\boxed{\$1{,}250}$", "$1,250"),
    (r"\boxed{2\frac{1}{2}}", "2 1/2"),
    # nothing is marked: the last number
    ("Therefore, Janet makes 624 dollars per day.", "624"),
    ("It will be 4000 centimeters shorter from 1:00 PM to 5:00 PM.", "4000"),
    ("He uses version 1.2.3", None),
    ("7 boxes, see version 1.2.3", "7"),
    ("10 - 5 = 5", "5"),
    ("x = -5", "-5"),
    ("that is 5-3", "3"),
    ("an area of 12 km^2", "12"),
    (r"an area of $12\,\text{m}^{2}$", "12"),
    ("let x_1 and x2 be the roots", None),
    ("Rs.360", "Rs.360"),
    ("about 50% of them", "50%"),
    ("2\u00bd cups", "2 1/2"),
    ("in 12,34 ways", None),
    ("on 12/05/2020", None),
    ("3.0\n", "3.0"),
    ("-0.75", "-0.75"),
    (".5", ".5"),
    ("wait...5", "5"),
    ("eighteen", None),
    ("", None),
    ("\N{ARABIC-INDIC DIGIT THREE}", None),
]

FORMULAS = [
    (r"Thus $x = \boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
    (r"\boxed{\frac{\sqrt{3}}{2}}", r"\frac{\sqrt{3}}{2}"),
    (r"\fbox{5}", "5"),
    (r"\boxed {12}", "12"),
    (r"\boxed{1} or rather \boxed{2}", "2"),
    (r"\boxed{7}, so \boxed{\frac{1}{", "7"),
    (r"\boxed{}", None),
    (r"\boxed{(0,1]\cup[2,\infty)}", r"(0,1]\cup[2,\infty)"),
    (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"),
    (r"Final Answer: The final answer is $\frac{3}{4}$. I hope it is correct.", r"\frac{3}{4}"),
    ("The final answer is 2x + 1. I hope it is correct.", "2x + 1"),
    ("The answer is 3.5.", "3.5"),
    ("The answer is \\(x^2\\), as shown.", "x^2"),
    ("The answer is the interval $[0, 1]$. It is closed.", "[0, 1]"),
    ("The answer is $3$, since $1 + 2 = 3$.", "3"),
    ("Hence \\[ y = 4 \\] holds.", "y = 4"),
    ("It costs $5 and then $6.", "6"),
    ("we get $3$ and then $5$", "5"),
    ("so x equals 5.", "5"),
    ("I do not know.", None),
    (r"\boxed{" + "1+" * 1000 + "1} or so", None),
    (r"\boxed{" + "{" * 30 + "1" + "}" * 31, None),
]

OPTIONS = [
    ("The answer is (C) 24 minutes.", "C"),
    ("The answer is C", "C"),
    ("Answer: B", "B"),
    ("**Answer: (D)**", "D"),
    ("The correct answer is option E.", "E"),
    ("The correct option is **D**.", "D"),
    ("Therefore, option B is correct.", "B"),
    ("Let's see. (A) is 5, (B) is 6. The answer is (B).", "B"),
    ("The answer is E) None of these", "E"),
    (r"\boxed{B}", "B"),
    (r"\boxed{\text{(C)}}", "C"),
    ("#### A", "A"),
    ("B", "B"),
    ("(d)", "D"),
    (" B.\n", "B"),
    ("B) 15 km", "B"),
    ("5 + 3 = 8, which is\n(C)", "C"),
    ("So we choose (C) here.", "C"),
    ("5 + 3 = 8.\nI choose B.", "B"),
    ("Thus it must be D", "D"),
    ("C is the correct answer.", "C"),
    ("The correct one is E.", "E"),
    ("The answer is A.", "A"),
    ("The answer is A because 3 < 4.", "A"),
    ("The answer is b.", "B"),
    ("The answer is (B), not (A).", "B"),
    ("The answer is (A). Wait. The answer is (D).", "D"),
    # no option is named
    ("A man walks 5 miles.", None),
    ("The answer is A man.", None),
    ("The answer is a 5% increase.", None),
    ("The answer is c = 5.", None),
    ("The answer is none of these.", None),
    ("The answer is I think unclear.", None),
    ("The answer is 24.", None),
    ("The answer is A or B.", None),
    ("The answer is (A) and (C).", None),
    ("The answer is Zebra", None),
    ("(A) 2\n(B) 3\n(C) 4\n(D) 5", None),
    ("A) 2\nB) 3", None),
    ("It is (A) or (B).", None),
    ("Angle B is 90 degrees", None),
    ("24 minutes", None),
    ("Option A is correct if x > 0. Option B is correct otherwise.", None),
    ("", None),
]


@pytest.mark.parametrize(
    ("kind", "output", "answer"),
    [
        *(("number", *row) for row in NUMBERS),
        *(("math", *row) for row in FORMULAS),
        *(("choice", *row) for row in OPTIONS),
    ],
)
def test_extractions(kind, output, answer):
    assert answers.extract(output, kind) == answer


EQUAL_NUMBERS = """
18 | 18.0
18 | 018
1,234.50 | 1234.5
1,234.50 | 1.2345e3
1234.5 | 1.2345 * 10^3
1.2345 \\times 10^{3} | 1234.5
1e-3 | 0.001
5E2 | 500
2,125 | 2125
1,450,000 | 1450000
1{,}450{,}000 | 1450000
1,\\!450,\\!000 | 1450000
$18 | 18
\\$18.00 | 18
-$5 | -5
$-5 | -5
\u22125 | -5
US$20 | 20
\u20ac3.50 | 3.5
Rs.360 | 360
18 dollars | 18
7 km | 7
12 m^2 | 12
90 degrees | 90
3 apples | 3
.5 | 0.5
0.50 | .5
1/2 | 0.5
\\frac{1}{2} | 0.5
\\dfrac{3}{4} | 3/4
\\frac34 | 0.75
-\\frac{1}{4} | -0.25
2 1/2 | 2.5
2\\frac{1}{2} | 2.5
2-1/2 | 2.5
2 and 1/2 | 2.5
2\u00bd | 2.5
\u00be | 0.75
6/2 | 3
1750/3 | 583.3333
2/3 | 0.6667
583.33 | 583.3333
583.33333333 | 583.3333
6.1111 | 6.11
83.3333 | 83.33
7.03125 | 7.03
36.455 | 36.46
46.61607142 | 46.61607
8695.652 | 8695.65
0.30000000000000004 | 0.3
17.999999999999996 | 18
50% | 50
50\\% | 50
50% | 0.5
50 percent | 50%
12.5% | 1/8
0.5 | 50%
$1.5 million | 1500000
3 thousand | 3000
1.2 billion | 1200000000
10^3 | 1000
-7 | -7.00
0 | -0
0 | 0.0
x = 5 | 5
583.3333 | 1750/3
"""

UNEQUAL_NUMBERS = """
18 | 19
18 | 18.5
18.4 | 18
583 | 583.3333
583.3 | 583.3333
28.1 | 28.08
0.67 | 0.6667
0.34 | 0.3
0.054 | 0.05
0.214 | 0.21
77.41 | 77.4
1000001 | 1000000
123456789123 | 123456789124
5 | -5
1.5 | 1.5 million
50 | 0.5
50% | 5
50% | 5000
1/3 | 0.3
1/3 | 3
2 1/2 | 21/2
2 1/2 | 1
1,234 | 1.234
5 feet 3 inches | 5
3 and 4 | 3
12,34 | 1234
1.2.3 | 1.23
5:30 | 530
5:30 | 30
9**9**9 | 9
1/0 | 0
1e9 | 1e10
 | 0
none | 0
nan | nan
inf | inf
99.95 | 100
"""

EQUAL_FORMULAS = r"""
\frac{1}{2} | \dfrac{1}{2}
\frac12 | \frac{1}{2}
0.5 | \frac{1}{2}
-\frac{3}{4} | -0.75
10,080 | 10080
1{,}000 | 1000
\$32,\!348 | 32348
50\% | 50
90^\circ | 90
90^{\circ} | 90
10\text{ cm} | 10
10\text{ cm}^2 | 10
x=5 | 5
5 | x=5
x = -3 | x=-3
\left(3, \frac{\pi}{2}\right) | (3,\frac{\pi}{2})
(3,4) | (3, 4)
[2,5) | [2, 5)
(-\infty,0)\cup(0,\infty) | (-\infty, 0) \cup (0, \infty)
\{1,2\} | \{2,1\}
1,-2 | -2,1
\sqrt{8} | 2\sqrt{2}
\frac{\sqrt{3}}{3} | \frac{1}{\sqrt{3}}
√2 | \sqrt{2}
sqrt(2) | \sqrt{2}
2\pi | 2π
(x+1)^2 | x^2+2x+1
x(x-1) | x^2 - x
(x+2)(x-2) | x^2-4
2x+3y | 3y + 2x
x^{10} | x^10
3+2i | 2i+3
\text{Evelyn} | Evelyn
\text{even} | \mathrm{even}
\text{(A)} | (A)
\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix} 1 \\ 2 \end{pmatrix}
\begin{pmatrix}\frac12\\2\end{pmatrix} | \begin{pmatrix} 0.5 \\ 2 \end{pmatrix}
5! | 120
2^{10} | 1024
\frac{10}{4} | 2.5
x \in [-2,7] | [-2,7]
y=2x+1 | 2x+1
-2 \le x \le 7 | -2 ≤ x ≤ 7
1\frac{1}{2} | \frac{3}{2}
\frac{a}{b} | a/b
"""

UNEQUAL_FORMULAS = r"""
\frac{1}{2} | \frac{1}{3}
\frac{1}{2} | 2
5x | 5
5! | 5
-(5) | 5
5\pi | 5
x=1 | y=1
(3,4) | (4,3)
[0,1) | [0,1]
(0,1) | [0,1]
\{1,2\} | \{1,3\}
\{1,2\} | \{1,2,3\}
\sqrt{2} | \sqrt{3}
\pi | 3.14
x^2 | x^3
x^2-1 | x^2+1
(x+1)^2 | x^2+1
\text{even} | \text{odd}
\text{Evelyn} | Evan
3+2i | 3-2i
\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix}2\\1\end{pmatrix}
y=2x+1 | y=2x-1
1,2 | 1,3
\frac{x}{2} | \frac{2}{x}
0.33 | \frac{1}{3}
 | 0
\frac{1}{ | \frac{1}{2}
50 | 49
\infty | -\infty
"""

EQUAL_OPTIONS = """
A | A
(A) | A
b | B
C. | C
(d) | D
**E** | E
"""

UNEQUAL_OPTIONS = """
A | B
AB | A
 | A
A man | A
1 | A
"""


def pairs(kind, table, is_equal):
    return [(kind, *(part.strip() for part in line.split(" | ")), is_equal) for line in table.strip("\n").split("\n")]


PAIRS = [
    *pairs("number", EQUAL_NUMBERS, True),
    *pairs("number", UNEQUAL_NUMBERS, False),
    *pairs("math", EQUAL_FORMULAS, True),
    *pairs("math", UNEQUAL_FORMULAS, False),
    *pairs("choice", EQUAL_OPTIONS, True),
    *pairs("choice", UNEQUAL_OPTIONS, False),
]


@pytest.mark.parametrize(("kind", "answer", "gold", "is_equal"), PAIRS)
def test_equality(kind, answer, gold, is_equal):
    assert answers.equal(answer, gold, kind) == is_equal


def test_the_tables_are_as_large_as_they_should_be():
    assert len(PAIRS) >= 150
    assert len(NUMBERS) + len(FORMULAS) + len(OPTIONS) >= 80


@pytest.mark.parametrize(
    ("output", "kind", "answer"),
    [
        ("so 35 * 3 = 90 chickens", "number", None),
        ("#### 90\nNow we", "number", "90"),
        ("The answer is 12. To check, 3 * 4", "number", "12"),
        ("we see $x = 3$ and", "math", None),
        ("which leaves (B)", "choice", None),
    ],
)
def test_an_output_that_was_cut_off_has_an_answer_only_where_it_marks_one(output, kind, answer):
    assert answers.extract(output, kind, is_cut=True) == answer


HOSTILE = [  # piece, how many of it
    ("9", 10_000_000),
    ("1,", 5_000_000),
    ("/1", 5_000_000),
    ("1 ", 5_000_000),
    ("{", 10_000_000),
    ("$", 10_000_000),
    ("#", 10_000_000),
    ("\n", 10_000_000),
    ("(A", 5_000_000),
    (r"\boxed{", 1_000_000),
    (r"\frac{1}{", 1_000_000),
    ("the answer is ", 700_000),
    ("\\left(", 100),
    ("\x00\ud800", 1),
    ("9**9**9**9", 1),
    ("__import__('os').system('touch hacked')", 1),
    ("9^{9^{9^{9}}}", 1),
    ("100000000!", 1),
    (r"\binom{10000000}{5000000}", 1),
    (r"\sum_{i=1}^{10^{12}} i^{i}", 1),
    (r"(x+1)^{10000}(x-1)^{10000}", 1),
    (r"\def\a{\a\a}\a", 1),
    ("(" * 19 + "1" + ")" * 19, 1),
]


@pytest.mark.parametrize(("piece", "count"), HOSTILE, ids=[repr(piece[:20]) for piece, _ in HOSTILE])
def test_hostile_text_ends_within_a_second(piece, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers.equal("1+x", "x+1", "math")  # the worker is up
    text = piece * count
    for kind in ("number", "math", "choice"):
        for step in (
            lambda: answers.extract(text, kind),  # noqa: B023
            lambda: answers.extract(r"The answer is \boxed{" + text + "}", kind, is_cut=True),  # noqa: B023
            lambda: answers.equal(text, "12", kind),  # noqa: B023
        ):
            start = time.perf_counter()
            step()
            assert time.perf_counter() - start < 1
    assert not list(tmp_path.iterdir())


def test_formulas_are_compared_from_any_thread():
    results = []

    def compare():
        results.append((answers.equal("x+1", "1+x", "math"), answers.equal("x+1", "x+2", "math")))

    threads = [threading.Thread(target=compare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(True, False)] * 4


def test_a_worker_that_ended_is_started_again():
    answers.equal("x+1", "1+x", "math")
    worker = _symbolic._WORKER_OF_THIS_PROCESS._process
    _symbolic._end(worker, os.getpid())
    assert answers.equal("x+1", "1+x", "math")


def test_a_worker_that_cannot_start_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text("import sys; sys.stdin.readline(); sys.exit(3)")
    monkeypatch.setattr(_symbolic, "_WORKER", tmp_path / "worker.py")
    with pytest.raises(RuntimeError, match="ended with status 3"):
        _symbolic._Worker().ask("1", "2")


def test_formulas_without_the_package(monkeypatch):
    monkeypatch.setattr(_symbolic.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'digitloss\[eval\]'"):
        _symbolic._Worker().ask("1", "2")


def test_the_worker_compares_and_stops(monkeypatch):
    assert _symbolic_worker.are_equal(r"\frac{2}{4}", r"\frac{1}{2}")
    assert not _symbolic_worker.are_equal("x", "y")
    assert _symbolic_worker.are_equal("{", "{") is False
    code = "from digitloss.evals import answers; print(answers.equal('x+1', '1+x', 'math'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.usefixtures("shapes_unchecked")
def test_unknown_kinds():
    for call in (lambda: answers.extract("1", "numbers"), lambda: answers.equal("1", "1", "numbers")):
        with pytest.raises(ValueError, match="unknown kind of answer 'numbers', did you mean 'number'"):
            call()


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from digitloss.evals import answers, benchmarks; print({'math_verify', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

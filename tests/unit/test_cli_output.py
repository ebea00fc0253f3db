"""How the command line shows things."""

import re
from collections.abc import Callable

import pytest
from ghostless.jobs.cli import output
from ghostless.jobs.cli.output import Column, aligned, clean, value, when
from ghostless.jobs.spans import distance, duration, percent


def test_columns_stand_below_each_other() -> None:
    """Every column is as wide as its widest cell, numbers at the right, and no line ends in blanks."""
    columns = [Column("NAME"), Column("N", right=True), Column("NOTE")]
    shown = aligned(columns, [["a", "7", ""], ["longer", "1234", "x"]])
    assert ["NAME       N  NOTE", "a          7", "longer  1234  x"] == shown.splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[int], list[str]]:
    """Show a table on a terminal of some width, and return its lines without colours."""
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("TERM", "dumb")

    def show(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        columns = [Column("TASK"), Column("EMPTY"), Column("N", right=True), Column("STORY")]
        output.show_table(columns, [["t1", "", "7", "one two three four five six"], ["t2", "", "12", "x"]], empty="")
        return capsys.readouterr().out.splitlines()

    return show


def test_a_terminal_shows_no_empty_columns(terminal: Callable[[int], list[str]]) -> None:
    """Where nobody has an owner, say, nobody reads about owners."""
    assert ["TASK   N  STORY", "t1     7  one two three four five six", "t2    12  x"] == terminal(80)


def test_a_narrow_terminal_loses_nothing(terminal: Callable[[int], list[str]]) -> None:
    """The last column goes on below itself where there is room, else the terminal wraps the line."""
    assert ["TASK   N  STORY", "t1     7  one two three four five", "          six", "t2    12  x"] == terminal(34)
    assert "t1     7  one two three four five six" in "".join(terminal(20))


def test_spare_columns_are_left_out_only_where_they_do_not_fit(
    terminal: Callable[[int], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The last one first, and none of them at the width that all of them need."""
    columns = [Column("NAME"), Column("FOR", is_spare=True), Column("GPU", is_spare=True), Column("QUEUES")]

    def shown(width: int) -> list[str]:
        terminal(width)
        output.show_table(columns, [["w1", "12 s", "0: 25%", "gpu"]], empty="")
        return capsys.readouterr().out.splitlines()[0].split()

    assert ["NAME", "FOR", "GPU", "QUEUES"] == shown(26)
    assert ["NAME", "FOR", "QUEUES"] == shown(25)
    assert ["NAME", "QUEUES"] == shown(17)


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0.0 s"),
        (1_234, "1.2 s"),
        (9_940, "9.9 s"),
        (59_000, "59 s"),
        (119_999, "120 s"),
        (120_000, "2 min"),
        (7_199_000, "120 min"),
        (7_200_000, "2 h"),
        (604_800_000, "7 d"),
    ],
)
def test_a_length_of_time_has_the_unit_that_fits(ms: int, shown: str) -> None:
    """Small spans are told finely, long ones roughly."""
    assert shown == duration(ms)


def test_a_time_is_told_by_the_clock_and_from_now() -> None:
    """The local clock, and how far it is in which direction; nothing for no time."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(5\.0 s ago\)", when(1_000_000_000_000, 1_000_000_005_000))
    assert "in 12 s" == distance(20_000, 8_000)
    assert "" == when(None, 0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\u202eevil", "\\u202eevil"),
        ("früh – 早い", "früh – 早い"),
    ],
)
def test_text_of_a_task_never_commands_the_terminal(text: str, shown: str) -> None:
    """Escapes, controls and direction marks are spelled out; real letters stay."""
    assert shown == clean(text)


def test_a_long_value_is_cut_and_says_so() -> None:
    """A person sees the beginning, the size, and where the rest is."""
    assert '{"a": 1}' == value({"a": 1})
    assert "" == value(None)
    assert value("x" * 1000).endswith("… (1002 characters; --json shows all)")


@pytest.mark.parametrize(
    ("fraction", "shown"), [(None, ""), (0.0, "0 %"), (0.29, "29 %"), (0.999, "99 %"), (1.0, "100 %")]
)
def test_percents_never_round_up_to_the_end(fraction: float | None, shown: str) -> None:
    """100 % is shown only when it is reached."""
    assert shown == percent(fraction)

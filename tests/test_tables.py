"""What reaches standard output."""

from __future__ import annotations

from nscaching.cli.tables import print_table, say


def test_a_name_of_a_million_characters_is_cut(capsys):
    name = "x" * 10**6
    print_table([name, "b"], [[name, "1"], ["y", "2"]], title=name)
    say(name)
    out = capsys.readouterr().out
    assert len(out) < 20_000
    assert out.count("x…") == 4

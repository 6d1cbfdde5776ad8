"""Files: what is refused before it is read, what is no part of a text, and several who write one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from faulty import SIMPLE

from coresim.errors import InputError
from coresim.files import MOST_BYTES, read_text, read_toml, write_text


def test_a_file_that_is_too_large_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(InputError, match=r"large\.json: larger than 64 MB"):
        read_text(tmp_path / "large.json")


def test_marks_and_line_ends_of_another_system_are_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "theirs.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SIMPLE.replace("\n", "\r\n").encode())
    assert read_text(path) == SIMPLE and read_toml(path)["workload"]["batch_size"] == 8


def test_of_several_who_write_one_file_each_writes_all_of_it(tmp_path: Path) -> None:
    path, texts = tmp_path / "one", [f"{number}" * 100_000 for number in range(8)]
    writers = [threading.Thread(target=write_text, args=(path, text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_text() in texts and not list(tmp_path.glob(".one*"))

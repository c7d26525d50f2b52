"""The CSV reader: what is written is what is read, and every fault of a file is told at once with its line and a cure."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.readers.prices_csv import lines_of, read_price_csv
from planner.schema.prices import ApiRow, OperatingRow, OwnRow, RentRow

RENT = "id,provider,instance,node,gpu,gpu_count,term,usd_per_node_hour,source,retrieved_on,kind,note\n"
GOOD = "northcloud.h100_sxm_x8.on_demand,northcloud,n8,h100_sxm_x8,h100_sxm_80gb,8,on_demand,31.92,https://northcloud.example,2026-08-21,list_price,\n"


def write(folder: Path, text: str, name: str = "rent.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def faults(folder: Path, text: str, model: type = RentRow) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_price_csv(write(folder, text), model, shown="rent.csv")
    return [str(fault) for fault in caught.value.faults]


def test_a_row_is_read_as_written(tmp_path: Path) -> None:
    (row,) = read_price_csv(write(tmp_path, RENT + GOOD), RentRow)
    assert row.usd_per_node_hour == Decimal("31.92")
    assert str(row.usd_per_node_hour) == "31.92"
    assert row.note is None
    assert row.region is None


def test_a_byte_order_mark_blank_lines_and_spaces_are_no_faults(tmp_path: Path) -> None:
    text = "\ufeff" + RENT.replace(",provider", " , provider") + "\n" + GOOD.replace(",8,", ", 8 ,") + ",,,,,,,,,,,\n"
    assert len(read_price_csv(write(tmp_path, text), RentRow)) == 1


def test_several_values_in_a_cell_are_parted_by_semicolons(tmp_path: Path) -> None:
    text = (
        "id,provider,model,regions,usd_per_mtok_input,usd_per_mtok_output,attributes,attributes_source,source,retrieved_on,kind\n"
        "a.m,a,m,eu; us,0.1,0.2,no_training;soc2,https://a.example,https://a.example,2026-11-20,list_price\n"
    )
    (row,) = read_price_csv(write(tmp_path, text), ApiRow)
    assert row.regions == ("eu", "us")
    assert row.attributes == ("no_training", "soc2")


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("0", "out of range"),
        ("0.00", "out of range"),
        ("-3.2", "out of range"),
        ("1e9", "out of range"),
        ("NaN", "placeholder"),
        ("N/A", "placeholder"),
        ("inf", "not a number"),
        ("1,234", "not a number"),
        ("$3.20", "not a number"),
        ("3.20 USD", "not a number"),
        ("1_000", "not a number"),
        ("３", "not a number"),
        ("", "empty, but required"),
    ],
)
def test_a_price_that_is_none_is_refused_with_its_place(tmp_path: Path, price: str, said: str) -> None:
    quoted = f'"{price}"' if "," in price else price
    (fault,) = faults(tmp_path, RENT + GOOD + GOOD.replace("31.92", quoted).replace("northcloud.h", "other.h"))
    assert fault.startswith("rent.csv:3 usd_per_node_hour: ")
    assert said in fault
    assert ";" in fault, "a fault comes with a cure"


def test_every_fault_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    rows = (GOOD.replace("31.92", "0").replace(",8,", ",eight,"), GOOD.replace("2026-08-21", "soon"), GOOD.replace("list_price", "guess"))
    text = RENT + "".join(rows)
    told = faults(tmp_path, text)
    assert [t.split(": ")[0] for t in told] == [
        "rent.csv:2 gpu_count",
        "rent.csv:2 usd_per_node_hour",
        "rent.csv:3 retrieved_on",
        "rent.csv:4 kind",
    ]


def test_columns_unknown_repeated_or_missing(tmp_path: Path) -> None:
    text = RENT.replace("usd_per_node_hour", "usd_per_node_hours").replace(",note", ",note,note") + GOOD.rstrip("\n") + ",\n"
    told = faults(tmp_path, text)
    assert any("usd_per_node_hours: unknown column; did you mean 'usd_per_node_hour'" in t for t in told)
    assert any("note: this column stands twice" in t for t in told)
    assert any("usd_per_node_hour: this column is missing" in t for t in told)
    assert len(told) == 3


def test_an_id_written_twice_names_the_first_line(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, RENT + GOOD + GOOD)
    assert fault.startswith("rent.csv:3 id: 'northcloud.h100_sxm_x8.on_demand' was used on line 2")


def test_ragged_and_broken_records(tmp_path: Path) -> None:
    assert "11 cells under 12 columns" in faults(tmp_path, RENT + GOOD.rsplit(",", 1)[0] + "\n")[0]
    assert "13 cells under 12 columns; quote cells that hold a comma" in faults(tmp_path, RENT + GOOD.rstrip("\n") + "a,b\n")[0]
    assert "not CSV" in faults(tmp_path, RENT + GOOD.rstrip("\n") + '"never closed\n')[0]


def test_lines_count_a_quoted_line_break(tmp_path: Path) -> None:
    noted = GOOD.rstrip("\n") + '"a note\nof two lines"\n'
    path = write(tmp_path, RENT + noted + GOOD.replace("northcloud.h", "other.h"))
    assert lines_of(path) == {"northcloud.h100_sxm_x8.on_demand": 2, "other.h100_sxm_x8.on_demand": 4}
    (fault,) = faults(tmp_path, RENT + noted + GOOD.replace("northcloud.h", "other.h").replace("31.92", "0"))
    assert fault.startswith("rent.csv:4 ")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    assert "the file is empty" in faults(tmp_path, "")[0]
    with pytest.raises(InputError, match="no such file"):
        read_price_csv(tmp_path / "none.csv", RentRow)
    with pytest.raises(InputError, match="folder"):
        read_price_csv(tmp_path, RentRow)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(RENT.encode() + b"\xff\xfe")
    with pytest.raises(InputError, match=r"binary.csv:2.*not UTF-8"):
        read_price_csv(binary, RentRow)
    assert read_price_csv(write(tmp_path, RENT), RentRow) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("list_price,", "derived,"), "a derived price needs a note"),
        (("https://northcloud.example", "their page"), "source must be a URL"),
        (("northcloud.h100", "North Cloud.h100"), "is not an id"),
    ],
)
def test_what_a_row_must_say(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert said in faults(tmp_path, RENT + GOOD.replace(*change))[0]


def test_columns_that_belong_to_other_terms(tmp_path: Path) -> None:
    header = RENT.replace(",source", ",upfront_frac,availability_frac,source")
    told = faults(tmp_path, header + GOOD.replace(",31.92,", ",31.92,0.5,,"))
    assert "upfront_frac belongs to reserved rows" in told[0]
    told = faults(tmp_path, header + GOOD.replace(",31.92,", ",31.92,,0.8,"))
    assert "availability_frac belongs to spot rows" in told[0]
    told = faults(tmp_path, header + GOOD.replace("on_demand,31.92,", "spot,31.92,,0,"))
    assert "never delivered" in told[0]


def test_ranges_hold_their_value(tmp_path: Path) -> None:
    own = "id,node,usd_per_node,usd_per_node_low,source,retrieved_on,kind\na,h100_sxm_x8,10,11,https://a.example,2026-01-01,quote\n"
    assert "between its low and high" in faults(tmp_path, own, OwnRow)[0]
    figure = "id,category,name,value,value_high,unit,source,retrieved_on,kind\na,pue,a,1.5,1.4,ratio,https://a.example,2026-01-01,published\n"
    assert "between its low and high" in faults(tmp_path, figure, OperatingRow)[0]


def test_a_tier_needs_its_threshold(tmp_path: Path) -> None:
    head = "id,provider,model,usd_per_mtok_input,usd_per_mtok_output,tier_threshold_tok,usd_per_mtok_tier_input,source,retrieved_on,kind\n"
    row = "a.m,a,m,1,2,{},{},https://a.example,2026-11-20,list_price\n"
    assert "needs tier_threshold_tok" in faults(tmp_path, head + row.format("", "2"), ApiRow)[0]
    assert "needs usd_per_mtok_tier_input" in faults(tmp_path, head + row.format("200000", ""), ApiRow)[0]


@given(price=st.decimals(min_value="0.0001", max_value="99999", places=4))
def test_prices_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, price: Decimal) -> None:
    path = write(tmp_path_factory.mktemp("prices"), RENT + GOOD.replace("31.92", f"{price:f}"))
    (row,) = read_price_csv(path, RentRow)
    assert row.usd_per_node_hour == price

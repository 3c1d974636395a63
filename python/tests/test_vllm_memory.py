"""The memory of engines that share a GPU with versions: arithmetic, without vLLM and a GPU."""

from typing import Any

import pytest

import gpuwm
from gpuwm.vllm import memory

GIB = memory.GIB
TOTAL = 80 * GIB
DEFAULT = 0.92  # vLLM's


@pytest.mark.parametrize("engines", [1, 2, 4])
@pytest.mark.parametrize("versions", [0, 16 * GIB])
def test_all_engines_and_the_version_fill_the_utilisation_and_no_more(
    engines: int, versions: int
) -> None:
    how = memory.Sharing(engines)
    each = memory.budget(TOTAL, DEFAULT, versions, how)
    used = versions + engines * (each + (how.overhead if engines > 1 else 0))
    requested = memory.requested(TOTAL, DEFAULT)
    assert requested - engines < used <= requested


def test_a_version_counts_once_however_many_engines_use_it() -> None:
    how = memory.Sharing(4, overhead=0)
    without, with_it = (memory.budget(TOTAL, DEFAULT, v, how) for v in (0, 16 * GIB))
    assert without - with_it == 4 * GIB


def test_a_single_engine_without_versions_has_what_vllm_gives_it() -> None:
    assert memory.budget(TOTAL, DEFAULT, 0, memory.Sharing()) == memory.requested(TOTAL, DEFAULT)
    assert memory.requested(1000, 0.9001) == 901  # as vLLM rounds


@pytest.mark.parametrize("overhead", [0, GIB])
def test_what_does_not_fit_says_both_figures(overhead: int) -> None:
    with pytest.raises(
        gpuwm.NoRoom, match="holds 73.00 GiB on this GPU, and with them 2 engines may"
    ):
        memory.budget(TOTAL, DEFAULT, 73 * GIB, memory.Sharing(2, overhead or 2 * GIB))
    with pytest.raises(gpuwm.NoRoom, match="1 engine may fill 73.60 GiB of the GPU's 80.00"):
        memory.budget(TOTAL, DEFAULT, 74 * GIB, memory.Sharing(1, overhead))


@pytest.mark.parametrize("engines", [2, 3])
def test_an_engine_that_serves_has_what_those_that_stand_by_leave(engines: int) -> None:
    how = memory.sharing({"standby": "/run/a.lock", "engines": engines})
    assert how == memory.Sharing(engines, memory.OVERHEAD, standby=True)
    left = memory.budget(TOTAL, DEFAULT, 16 * GIB, how)
    assert left == memory.requested(TOTAL, DEFAULT) - 16 * GIB - engines * memory.OVERHEAD
    assert memory.sharing({"standby": "/run/a.lock"}).engines == 2
    with pytest.raises(gpuwm.NoRoom, match="each 1.00 GiB beside torch's memory"):
        memory.budget(TOTAL, DEFAULT, 73 * GIB, how)


# ---- what gpuwm holds ----


def test_each_version_that_is_there_counts_with_its_parts_on_the_gpu() -> None:
    def part(device: str, size: int) -> dict[str, Any]:
        return {"device": device, "bytes": size}

    listing = {
        "versions": [
            {"version": "a", "state": "ready", "parts": [part("GPU-0", 1), part("GPU-1", 2)]},
            {"version": "b", "state": "retiring", "parts": [part("GPU-1", 4), part("GPU-1", 8)]},
            {"version": "c", "state": "building", "parts": [part("GPU-1", 16)]},
            {"version": "d", "state": "failed", "parts": []},
        ]
    }
    assert memory.held(listing, "GPU-1") == {"a": 2, "b": 12}
    assert memory.held(listing, "host") == {}
    assert memory.held(listing, "GPU-1", {"a"}) == {"b": 12}


# ---- what is free at the start ----


def test_engines_start_one_after_the_other() -> None:
    how = memory.Sharing(4)
    versions = 16 * GIB
    each = memory.budget(TOTAL, DEFAULT, versions, how) + how.overhead
    for running in range(4):
        free = TOTAL - versions - running * each
        memory.check_free(free, TOTAL, DEFAULT, versions, how)


def test_an_engine_that_does_not_fit_beside_others_is_told_to_share() -> None:
    versions = 16 * GIB
    with pytest.raises(gpuwm.NoRoom, match=r'10.00 of the GPU.*57.60 GiB.*"engines": 2'):
        memory.check_free(10 * GIB, TOTAL, DEFAULT, versions, memory.Sharing())


def test_an_engine_starts_where_vllm_would_refuse_for_the_version() -> None:
    versions = 40 * GIB
    free = TOTAL - versions - GIB
    assert free < memory.requested(TOTAL, DEFAULT)
    memory.check_free(free, TOTAL, DEFAULT, versions, memory.Sharing())


def test_a_cache_for_which_there_is_no_room_is_refused_before_it_is_made() -> None:
    memory.check_cache(GIB, GIB)
    with pytest.raises(gpuwm.NoRoom, match=r"have 2.00 GiB, and 1.00 GiB of the GPU are free"):
        memory.check_cache(GIB, 2 * GIB)


# ---- vLLM that asks the loader ----


def cache_of(external: int, grown: int, own: int, total: int = TOTAL) -> int:
    """As vLLM 0.33 computes a KV cache. grown: of the GPU's use since the start, versions made
    meanwhile included; own: what torch has at its peak."""
    return memory.requested(total, DEFAULT) - external - grown - own


@pytest.mark.parametrize("engines", [1, 2, 4])
def test_the_builder_gets_the_cache_that_all_others_get(engines: int) -> None:
    how = memory.Sharing(engines)
    versions, own = 16 * GIB, 3 * GIB
    attached = memory.external(TOTAL, DEFAULT, versions, how)
    built = memory.external(TOTAL, DEFAULT, versions, how, builds=True)
    expected = memory.budget(TOTAL, DEFAULT, versions, how) - own
    assert cache_of(attached, 0, own) == expected
    assert cache_of(built, versions, own) == expected


def test_a_single_builder_needs_no_size() -> None:
    assert memory.external(TOTAL, DEFAULT, 0, memory.Sharing(), builds=True) == 0


# ---- what the user says ----


def test_without_a_word_an_engine_is_alone() -> None:
    assert memory.sharing(None) == memory.Sharing(1, memory.OVERHEAD)
    assert memory.sharing({}, ranks=2).overhead == memory.OVERHEAD + memory.COMMUNICATION_OVERHEAD


def test_what_the_user_says_counts() -> None:
    given = {"ref": "m@v", "engines": 4, "engine_overhead_gib": 1.5}
    assert memory.sharing(given, ranks=2) == memory.Sharing(4, 3 * GIB // 2)


@pytest.mark.parametrize("value", [0, -1, 65, True, "4", 2.0, None])
def test_a_number_of_engines_that_can_not_be_is_named(value: Any) -> None:
    with pytest.raises(gpuwm.Invalid, match='"engines" .* is .*1 to 64'):
        memory.sharing({"engines": value})


@pytest.mark.parametrize("value", [-1, 65, True, "1", float("nan"), None])
def test_an_overhead_that_can_not_be_is_named(value: Any) -> None:
    with pytest.raises(gpuwm.Invalid, match='"engine_overhead_gib" .* is .*0 to 64'):
        memory.sharing({"engine_overhead_gib": value})


def test_a_version_leaves_if_all_its_leases_are_parked() -> None:
    rows = [("all", 2), ("one", 2), ("nobody", 0), ("others", 1)]
    listing = {"versions": [{"version": name, "leases": leases} for name, leases in rows]}
    leases: list[dict[str, Any]] = [
        {"version": "all", "parked": True},
        {"version": "one", "parked": True},
        {"version": "one"},
    ]
    clients: list[dict[str, Any]] = [
        {"leases": leases},
        {"leases": [{"version": "all", "parked": True}]},
        {"leases": []},
    ]
    assert memory.parked(listing, clients) == {"all"}

"""What an engine's own loader can do with a whole tensor of which one rank's rows are there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import gpuwm
from gpuwm._c.handle import TensorInfo
from gpuwm._cuts import Cut
from gpuwm._version import Version

torch = pytest.importorskip("torch")
from gpuwm.engines.wholes import LazyWhole, Rows, nothing_of  # noqa: E402

WHOLE = torch.arange(48.0).reshape(8, 6)
WORLD = 2
Selection = Callable[[Any], Any]


def lazy(dim: int = 0, rank: int = 1, whole: Any = WHOLE) -> Any:
    rows = whole.shape[dim] // WORLD
    cut = Cut(dim, rank * rows, rows, tuple(whole.shape))
    version = Version("id", "llama", "v1", "host", rank, WORLD, 0, 0, 1, "", "")
    part = whole.narrow(dim, cut.first, rows).contiguous()
    return LazyWhole(Rows("q_proj.weight", cut, version), part)


def test_it_looks_like_the_whole() -> None:
    one = lazy()
    assert isinstance(one, torch.Tensor)
    for describe in (
        *(lambda t: (t.shape, t.size(), t.size(1), len(t), t.ndim, t.dim(), t.numel(), t.nbytes),),
        *(lambda t: (t.dtype, t.device, t.layout, t.is_cuda, t.element_size(), t.requires_grad),),
        *(lambda t: (t.is_floating_point(), torch.is_complex(t), t.is_contiguous()),),
    ):
        assert describe(one) == describe(WHOLE)
    one.shard_id = "q"  # vLLM's mappers of names mark tensors
    assert one.shard_id == "q"
    assert f"{one}" == "<gpuwm LazyWhole of q_proj.weight: (8, 6), torch.float32>"


# Rows 4 to 7 of 8 are there.
@pytest.mark.parametrize(
    "select",
    [
        lambda t: t.narrow(0, 4, 4),
        lambda t: t.narrow(0, 5, 2),
        lambda t: t.narrow(0, -4, 3),
        lambda t: t.narrow(dim=-2, start=4, length=4),
        lambda t: torch.narrow(t, 0, 4, 4),
        lambda t: t.narrow(0, 2, 0),
        lambda t: t[4:],
        lambda t: t[-2:],
        lambda t: t[..., 2:4][4:6],
        lambda t: t[4:6, 1],
        lambda t: t[:, None][4:8],
        lambda t: t[7],
        lambda t: t[-1, 3],
        lambda t: t.select(0, 6),
        lambda t: t[:].narrow(0, 4, 4),
        lambda t: t.narrow(1, 2, 2).narrow(0, 4, 4),
        lambda t: t.t().narrow(1, 4, 4),
        lambda t: t.T[1:3, 4:],
        lambda t: t.transpose(-1, 0).contiguous().narrow(1, 4, 2),
        lambda t: t.unsqueeze(0).unbind()[0].narrow(0, 4, 4),
        lambda t: t.unsqueeze(-1).permute(2, 1, 0)[0, :, 5:],
        lambda t: t.chunk(2)[1],
        lambda t: t.chunk(3, dim=1)[2][4:],
        lambda t: t.split(2)[3],
        lambda t: t.split(3)[1][1:],
        lambda t: t.split([3, 5])[1].narrow(0, 1, 4),
        lambda t: t.split_with_sizes([6, 2])[1],
        lambda t: t.split(2, dim=1)[1][4],
        lambda t: t.unbind()[5],
        lambda t: list(t)[4],
        lambda t: t.to(torch.float64).narrow(0, 4, 4),
        lambda t: t.clone().detach().data.cpu()[4:8],
    ],
)
def test_rows_that_are_there_are_those_of_the_whole(select: Selection) -> None:
    found = select(lazy())
    assert type(found) is torch.Tensor
    assert torch.equal(found, select(WHOLE))


def test_the_other_dimension_and_the_other_rank() -> None:
    assert torch.equal(lazy(dim=1).narrow(1, 3, 3), WHOLE[:, 3:])
    assert torch.equal(lazy(dim=1)[2:3, 4], WHOLE[2:3, 4])
    assert torch.equal(lazy(dim=1, rank=0).t()[:2], WHOLE.t()[:2])
    assert torch.equal(lazy(rank=0).chunk(4)[1], WHOLE[2:4])


def test_a_selection_is_a_view() -> None:
    one = lazy()
    view = one[4:6]
    view.fill_(0)
    assert torch.equal(one.narrow(0, 4, 4)[:2], torch.zeros(2, 6))


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        (lambda t: t.narrow(0, 0, 4), "rows 0 to 3"),
        (lambda t: t.narrow(0, 3, 2), "rows 3 to 4"),
        (lambda t: t.narrow(0, 6, 3), "rows 6 to 8"),
        (lambda t: t[:5], "rows 0 to 4"),
        (lambda t: t[0], "rows 0 to 0"),
        (lambda t: t.t()[:, 2:6], "rows 2 to 5"),
        (lambda t: t.split([3, 5])[1].narrow(0, 0, 4), "rows 3 to 6"),
        (lambda t: t.chunk(2)[0].clone().sum(), "all rows"),
        (lambda t: t.unbind()[1].to(torch.float64), "all rows"),
        (lambda t: torch.empty(8, 6).copy_(t), "all rows of tensor q_proj.weight for copy_"),
        (lambda t: torch.cat([WHOLE, t]), "all rows of tensor q_proj.weight for cat"),
        (lambda t: torch.empty(8, 6).set_(t), "all rows"),
        (lambda t: torch.add(input=WHOLE, other=t), "all rows"),
        (lambda t: torch.narrow(input=t, dim=0, start=4, length=4), "all rows"),
        (lambda t: t + 1, "all rows"),
        (lambda t: torch.empty(1, 8, 6).__setitem__(0, t), "all rows"),
        (lambda t: t.fill_(0), "all rows"),
        (lambda t: t.view(-1), "all rows"),
        (lambda t: t.reshape(8, 6), "all rows"),
        (lambda t: t[torch.tensor([4])], "an index of Tensor"),
        (lambda t: t[4:8:2], "an index of slice"),
        (lambda t: t[True], "an index of bool"),
        (lambda t: t == t, "all rows"),
        (lambda t: t.tolist(), "all rows"),
        (lambda t: t.numpy(), "all rows"),
        (lambda t: t.data_ptr(), "all rows of tensor q_proj.weight for data_ptr"),
        (lambda t: t.untyped_storage(), "all rows"),
        (lambda t: t.share_memory_(), "all rows"),
        (lambda t: t.__dlpack__(), "all rows"),
        (lambda t: t.grad, "all rows of tensor q_proj.weight for grad"),
        (lambda t: t.as_strided((2,), (1,)), "all rows"),
        (lambda t: pickle.dumps(t), "all rows"),
        (lambda t: copy.deepcopy(t), "all rows"),
        (lambda t: torch.ops.aten.abs(t), "all rows of tensor q_proj.weight for abs"),
    ],
)
def test_all_else_is_refused(select: Selection, wanted: str) -> None:
    with pytest.raises(gpuwm.Mismatch) as refused:
        select(lazy())
    said = str(refused.value)
    assert wanted in said
    assert "rank 1 of 2 of llama@v1 has rows 4 to 7 of 8 in dimension 0" in said
    assert '"q_proj.weight copy"' in said


def nothing(*shape: int) -> Any:
    info = TensorInfo("experts.3.weight", "BF16", shape, (), 0, None)
    version = Version("id", "llama", "v1", "host", 1, WORLD, 0, 0, 1, "", "")
    return nothing_of(info, version, torch.device("cpu"))


@pytest.mark.parametrize("shape", [(), (4,), (4, 6)])
def test_of_what_another_rank_has_only_the_shape_is_known(shape: tuple[int, ...]) -> None:
    one = nothing(*shape)
    assert (tuple(one.shape), one.dtype) == (shape, torch.bfloat16)
    with pytest.raises(
        gpuwm.Mismatch, match=r"all rows of tensor experts.3.weight for copy_.*rank 1"
    ):
        torch.empty(shape).copy_(one)


def test_a_loader_may_pass_over_what_another_rank_has() -> None:
    (one,) = nothing(4, 6).unsqueeze(0).unbind()
    assert one.shape == (4, 6)
    with pytest.raises(gpuwm.Mismatch, match="rows 2 to 3 of .* of llama@v1 has nothing of it"):
        one.narrow(0, 2, 2)


def test_code_in_c_gets_no_address() -> None:
    with pytest.raises(RuntimeError, match="data pointer"):
        torch.utils.dlpack.to_dlpack(lazy())


def test_a_split_that_does_not_add_up_is_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="add up"):
        lazy().split([3, 4])

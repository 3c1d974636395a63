import pytest
from .conftest import Start

@pytest.mark.parametrize("kind", ["dense","tied","experts","latent","fp8","dense-q"])
def test_loads(start: Start, kind):
    a={}
    if kind=="dense-q": kind="dense"; a["quantization"]="fp8"
    one = start(kind, **a)
    print(one.loaded()[:2000])

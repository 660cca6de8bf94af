from concurrent.futures import Future

import pytest

from penstock.common import CompletableFuture


def test_a_result_or_an_error_comes_out_as_it_went_in() -> None:
    source: Future[int] = Future()
    future = CompletableFuture(source)
    assert not future.done()
    assert future.exception() is None
    source.set_result(3)
    assert future.done()
    assert future.result() == 3


def test_an_error_is_raised_by_result_and_returned_by_exception() -> None:
    source: Future[int] = Future()
    source.set_exception(KeyError("k"))
    future = CompletableFuture(source)
    assert isinstance(future.exception(), KeyError)
    with pytest.raises(KeyError):
        future.result()


def test_a_pending_future_can_be_cancelled() -> None:
    future: CompletableFuture[int] = CompletableFuture(Future())
    assert future.cancel()
    assert future.cancelled()
    assert future.exception() is None

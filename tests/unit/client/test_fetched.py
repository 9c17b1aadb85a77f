"""What the answer to a fetch means: records, positions, and errors that name the partition."""

from __future__ import annotations

import pytest

from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.fetching import Fetched, OffsetOutOfRange, fetched_of
from barnabas.records.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)


def answer(**fields: object) -> FetchResponse:
    row = PartitionData(partition_index=3, **fields)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])


def fetched(response: FetchResponse, offset: int = 5, max_bytes: int = 1 << 20) -> Fetched:
    return fetched_of(response, "t", 3, offset, max_bytes)


def batch(base: int, count: int, size: int = 1) -> bytes:
    records = [Record(base + number, 0, None, b"x" * size, ()) for number in range(count)]
    return build_batch(records, base_offset=base)


def test_the_position_after_the_last_whole_batch() -> None:
    whole, cut = batch(4, 3), batch(7, 2)[:-1]
    part = fetched(answer(records=whole + cut, high_watermark=9, last_stable_offset=8, log_start_offset=1))
    assert (part.start, part.next_offset) == (5, 7)
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (9, 8, 1)
    assert bytes(part.records) == whole + cut


def test_an_answer_without_a_whole_batch_stays_where_it_is() -> None:
    assert fetched(answer(records=None)).next_offset == 5
    assert fetched(answer(records=batch(5, 1)[:-1])).next_offset == 5
    assert fetched(answer(records=batch(2, 2))).next_offset == 5  # a batch that ends before the position


def test_a_batch_that_no_fetch_can_hold_is_an_error() -> None:
    large = batch(5, 1, 4096)
    with pytest.raises(
        ClientError, match=r"t-3 from offset 5: the next batch is over 1000 bytes; raise fetch.max.bytes"
    ):
        fetched(answer(records=large[:1000]), max_bytes=1000)


def test_aborted_transactions() -> None:
    aborted = [
        AbortedTransaction(producer_id=7, first_offset=5),
        AbortedTransaction(producer_id=8, first_offset=6),
    ]
    assert fetched(answer(aborted_transactions=aborted)).aborted == ((7, 5), (8, 6))
    assert fetched(answer(aborted_transactions=None)).aborted == ()


def test_a_position_outside_of_the_log() -> None:
    with pytest.raises(
        OffsetOutOfRange, match="offset 5 of t-3 is not there: the log holds 10 to 20"
    ) as caught:
        fetched(answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=10, high_watermark=20))
    assert (caught.value.offset, caught.value.log_start, caught.value.log_end) == (5, 10, 20)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_errors_of_a_partition_and_of_the_whole_answer(code: ErrorCode) -> None:
    for response in (answer(error_code=code), FetchResponse(error_code=code)):
        with pytest.raises(BrokerError, match="fetching t-3 from offset 5") as caught:
            fetched(response)
        assert caught.value.code == code


def test_a_client_that_has_used_up_its_quota_gets_an_empty_answer() -> None:
    part = fetched(FetchResponse(responses=[]))
    assert (part.next_offset, len(part.records), part.high_watermark) == (5, 0, -1)

from __future__ import annotations

import errno

from epd.api.names import Reason
from epd.collector.ledger import VICTIMS_LIMIT, Ledger
from epd.collector.result import Cause, TroubleFacts, Victim


def test_20_the_list_of_victims_is_bounded() -> None:
    ledger = Ledger()
    for number in range(VICTIMS_LIMIT + 5):
        ledger.list_victim(str(number), Cause.TTL, 1, 2.0)

    assert (len(ledger.victims), ledger.victims_left_out) == (VICTIMS_LIMIT, 5)
    assert ledger.victims[0] == Victim(path="0", cause=Cause.TTL, used_bytes=1, age=2.0)


def test_errors_are_counted_by_call_and_name() -> None:
    ledger = Ledger()
    ledger.error("unlink", OSError(errno.EIO, ""))
    ledger.error("unlink", OSError(errno.EIO, ""))
    ledger.error("open", OSError("no number"))

    assert ledger.errors == {("unlink", "EIO"): 2, ("open", "None"): 1}


def test_the_first_message_of_a_trouble_stays() -> None:
    ledger = Ledger()
    ledger.trouble(Reason.COLLECTION_FAILED, "one")
    ledger.trouble(Reason.LIVENESS_UNKNOWN, "two")
    ledger.trouble(Reason.COLLECTION_FAILED, "three")

    assert ledger.told() == (
        TroubleFacts(reason=Reason.COLLECTION_FAILED, message="one"),
        TroubleFacts(reason=Reason.LIVENESS_UNKNOWN, message="two"),
    )

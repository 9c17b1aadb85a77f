"""PURE: group membership protocols and committed offsets.

    from barnabas.cores.group import GroupCoordinatorCore, GroupLimits, JoinGroup, JoinReply, ...

`core` holds the entry point and says how the broker drives it; `events` what can be asked and answered; `turn` the
Decision. `classic/` is the classic protocol, `consumer/` KIP-848, `migration` and `consumer/classic_members` serve groups
with members of both. `share/` is KIP-932; its `partition` (a queue, at the partition's leader) and `state` (the share
coordinator) are cores of their own. `offsets` keeps committed offsets; the modules called `records` know the bytes.
Rules that hold throughout:

* A core is one partition of the offsets topic. No clock, no randomness: both come in with the event.
* Tokens are opaque, never None for a request that wants an answer, and each is answered exactly once.
* A decision's records go into the log as one batch, and its replies leave only when the high watermark
  covers all that the shard has appended: so an answer never shows what a crash could take back.
* Memory is the log plus what may be lost with the process (who waits, running rebalances): a failed append
  is undone by `abandon`, a lost leadership by `unload`.
"""

from barnabas.cores.decision import Decision, DoneReply, Note, Producer, Timer, TimerFired
from barnabas.cores.group.core import GroupCoordinatorCore
from barnabas.cores.group.events import (
    CommitOffsets,
    CommitReply,
    ConsumerDescribeReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsReply,
    DeleteReply,
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedMember,
    DescribeGroup,
    DescribeReply,
    EndTransaction,
    ExpireOffsets,
    FetchedOffset,
    FetchOffsets,
    FetchReply,
    ForgetOffsets,
    Heartbeat,
    HeartbeatReply,
    JoinedMember,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    ListedGroup,
    ListGroups,
    ListReply,
    OffsetToCommit,
    PartitionResult,
    SyncGroup,
    SyncReply,
    TimerKey,
)
from barnabas.cores.group.limits import GroupLimits
from barnabas.cores.group.share.events import (
    AlterShareOffsets,
    AlterShareReply,
    DeleteShareOffsets,
    DeleteShareState,
    DescribedSharer,
    DescribeShareGroup,
    InitializeShareState,
    ShareDescribeReply,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareInitialized,
)
from barnabas.cores.group.state import TopicInfo

__all__ = [
    "AlterShareOffsets",
    "AlterShareReply",
    "CommitOffsets",
    "CommitReply",
    "ConsumerDescribeReply",
    "ConsumerHeartbeat",
    "ConsumerHeartbeatReply",
    "Decision",
    "DeleteGroup",
    "DeleteOffsets",
    "DeleteOffsetsReply",
    "DeleteReply",
    "DeleteShareOffsets",
    "DeleteShareState",
    "DescribeConsumerGroup",
    "DescribeGroup",
    "DescribeReply",
    "DescribeShareGroup",
    "DescribedConsumer",
    "DescribedMember",
    "DescribedSharer",
    "DoneReply",
    "EndTransaction",
    "ExpireOffsets",
    "FetchOffsets",
    "FetchReply",
    "FetchedOffset",
    "ForgetOffsets",
    "GroupCoordinatorCore",
    "GroupLimits",
    "Heartbeat",
    "HeartbeatReply",
    "InitializeShareState",
    "JoinGroup",
    "JoinReply",
    "JoinedMember",
    "LeaveGroup",
    "LeaveReply",
    "LeavingMember",
    "LeftMember",
    "ListGroups",
    "ListReply",
    "ListedGroup",
    "Note",
    "OffsetToCommit",
    "PartitionResult",
    "Producer",
    "ShareDescribeReply",
    "ShareHeartbeat",
    "ShareHeartbeatReply",
    "ShareInitialized",
    "SyncGroup",
    "SyncReply",
    "Timer",
    "TimerFired",
    "TimerKey",
    "TopicInfo",
]

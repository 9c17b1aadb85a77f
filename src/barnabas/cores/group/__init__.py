"""PURE: group membership protocols and committed offsets.

    from barnabas.cores.group import GroupCoordinatorCore, GroupLimits, JoinGroup, JoinReply, ...

`core` is the entry point and says how the broker drives it; `events` are the requests and answers; `proposal` makes the
Decision. `classic/` is the classic protocol, `consumer/` KIP-848; `migration` and `consumer/classic_members` serve groups
with members of both. `share/` is KIP-932; its `partition` (a queue, at the partition's leader) and `state` (the share
coordinator) are cores of their own. `streams/` is KIP-1071, with tasks of Kafka Streams in place of partitions. `offsets`
are the committed offsets; modules called `records` know the stored formats.
Rules for all of them:

* A core is one partition of the offsets topic. It has no clock and no randomness: both arrive in the event.
* Tokens are opaque, never None for a request that wants an answer, and each is answered exactly once.
* A decision's entries are appended as one batch, and its replies are sent only when the high watermark covers all that
  the core has appended: an answer never shows what a crash could take back.
* Memory is the log plus what may be lost with the process (waiting requests, running rebalances): it changes when a decision
  is applied, after its entries were appended. When leadership is lost the whole core is dropped.
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
    TopicsMatched,
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
from barnabas.cores.group.streams.events import (
    DescribeStreamsGroup,
    StreamsDescribeReply,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)

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
    "DescribeStreamsGroup",
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
    "StreamsDescribeReply",
    "StreamsHeartbeat",
    "StreamsHeartbeatReply",
    "SyncGroup",
    "SyncReply",
    "Timer",
    "TimerFired",
    "TimerKey",
    "TopicInfo",
    "TopicsMatched",
]

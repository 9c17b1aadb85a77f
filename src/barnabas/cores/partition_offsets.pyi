from barnabas.cores.epochs import LeaderEpochs
from barnabas.cores.producers import Producers
from barnabas.records.units import Offset

class PartitionOffsets:
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    epochs: LeaderEpochs
    producers: Producers

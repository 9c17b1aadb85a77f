"""`barnabas log`: partitions on the disks of brokers."""

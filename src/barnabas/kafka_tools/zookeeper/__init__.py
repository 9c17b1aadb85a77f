"""The znodes that tools of the ZooKeeper era ask for, served by a ZooKeeper or by a broker's own file."""

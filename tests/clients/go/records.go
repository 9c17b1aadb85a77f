package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

const partitions = 4

// header is one record header; a nil value is a null.
type header struct {
	key   string
	value []byte
}

// message is a record as every client here must send and receive it.
type message struct {
	partition int32
	offset    int64
	timeMs    int64
	key       []byte
	value     []byte
	headers   []header
}

var firstTime = time.UnixMilli(1_700_000_000_000)

// messageNumber makes record i: some without a key, with a null or an empty value, with many headers.
func messageNumber(i int) message {
	m := message{partition: int32(i % partitions), timeMs: firstTime.UnixMilli() + int64(i)}
	if i%10 != 9 {
		m.key = fmt.Appendf(nil, "key-%d", i%1000)
	}
	switch {
	case i%17 == 0:
	case i%13 == 0:
		m.value = []byte{}
	default:
		m.value = bytes.Repeat([]byte{byte(i)}, 20+i%180)
	}
	m.headers = []header{{"number", binary.BigEndian.AppendUint32(nil, uint32(i))}}
	if i%3 == 0 {
		m.headers = append(m.headers, header{"empty", []byte{}}, header{"number", []byte("twice é")})
	}
	return m
}

// checker sees every received record and says at the end whether all came once, whole and in order.
type checker struct {
	count int
	seen  []bool
	total int
	next  [partitions]int64
	last  [partitions]int
}

func newChecker(count int) *checker {
	c := &checker{count: count, seen: make([]bool, count)}
	for p := range c.last {
		c.last[p] = -1
	}
	return c
}

func (c *checker) complete() bool { return c.total == c.count }

func (c *checker) take(got message) error {
	if got.offset != c.next[got.partition] {
		return fmt.Errorf("offset %d where %d comes next in partition %d", got.offset, c.next[got.partition], got.partition)
	}
	c.next[got.partition]++
	if len(got.headers) == 0 {
		return fmt.Errorf("no headers at offset %d of partition %d", got.offset, got.partition)
	}
	i := int(binary.BigEndian.Uint32(got.headers[0].value))
	if i <= c.last[got.partition] || c.seen[i] {
		return fmt.Errorf("record %d after %d in partition %d", i, c.last[got.partition], got.partition)
	}
	c.last[got.partition], c.seen[i] = i, true
	c.total++
	sent := messageNumber(i)
	if sent.partition != got.partition || sent.timeMs != got.timeMs {
		return fmt.Errorf("record %d: partition %d, time %d", i, got.partition, got.timeMs)
	}
	if !same(sent.key, got.key) || !same(sent.value, got.value) {
		return fmt.Errorf("record %d: key %q, value %q", i, got.key, got.value)
	}
	if len(sent.headers) != len(got.headers) {
		return fmt.Errorf("record %d: headers %v", i, got.headers)
	}
	for k, h := range sent.headers {
		if h.key != got.headers[k].key || !bytes.Equal(h.value, got.headers[k].value) {
			return fmt.Errorf("record %d: header %v", i, got.headers[k])
		}
	}
	return nil
}

// same tells null from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

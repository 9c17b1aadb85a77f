package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

// kafkagoRead: arguments topic and the offset of its last record. Reads partition 0 from its beginning on; each record
// must lie behind the one before it.
func kafkagoRead(bootstrap string, arguments []string) (map[string]any, error) {
	last, err := strconv.ParseInt(arguments[1], 10, 64)
	if err != nil {
		return nil, err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: arguments[0], Partition: 0, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(kafka.FirstOffset); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	offsets := []int64{}
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, fmt.Errorf("after offsets %v: %w", offsets, err)
		}
		if len(offsets) > 0 && message.Offset <= offsets[len(offsets)-1] {
			return nil, fmt.Errorf("offset %d comes after %v", message.Offset, offsets)
		}
		offsets = append(offsets, message.Offset)
		if message.Offset >= last {
			return map[string]any{"offsets": offsets}, nil
		}
	}
}

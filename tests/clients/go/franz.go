package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const fetchWait = 500 * time.Millisecond

// newest holds the versions of all requests to those of an older Kafka, when it is set.
var newest *kversion.Versions

func franzClient(bootstrap string, options ...kgo.Opt) (*kgo.Client, error) {
	if newest != nil {
		options = append(options, kgo.MaxVersions(newest))
	}
	return kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
}

// franzVersions: argument a release such as v2.1. What a client of that release's protocol asks, in its versions.
func franzVersions(bootstrap string, arguments []string) (map[string]any, error) {
	newest = kversion.FromString(arguments[0])
	if newest == nil {
		return nil, fmt.Errorf("no release %q", arguments[0])
	}
	options := []kgo.Opt{kgo.ProducerBatchCompression(kgo.GzipCompression())}
	if err := franzThereAndBack(bootstrap, 5000, options); err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	if _, err := franzOffsets(bootstrap, nil); err != nil {
		return nil, fmt.Errorf("offsets: %w", err)
	}
	if !newest.HasKey(int16(kmsg.DeleteGroups)) {
		return map[string]any{"release": arguments[0], "admin": "has no such requests yet"}, nil
	}
	if _, err := franzAdmin(bootstrap, nil); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	return map[string]any{"release": arguments[0]}, nil
}

func franzTopic(ctx context.Context, bootstrap, prefix string, count int32) (string, error) {
	client, err := franzClient(bootstrap)
	if err != nil {
		return "", err
	}
	defer client.Close()
	topic := unique(prefix)
	admin := kadm.NewClient(client)
	if _, err = admin.CreateTopic(ctx, count, 1, nil, topic); err != nil {
		return "", err
	}
	return topic, serving(topic, func() error {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		return ends.Error()
	})
}

// franzRoundTrip: arguments codec and number of records; once for each acks.
func franzRoundTrip(bootstrap string, arguments []string) (map[string]any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return nil, err
	}
	for name, acks := range map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()} {
		options := []kgo.Opt{kgo.ProducerBatchCompression(codecs[arguments[0]]), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()}
		if err := franzThereAndBack(bootstrap, count, options); err != nil {
			return nil, fmt.Errorf("acks %s: %w", name, err)
		}
	}
	return map[string]any{"codec": arguments[0], "records": 3 * count}, nil
}

// franzIdempotent: argument number of records; small batches, so that many requests are in flight.
func franzIdempotent(bootstrap string, arguments []string) (map[string]any, error) {
	count, err := strconv.Atoi(arguments[0])
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{kgo.ProducerBatchMaxBytes(8192), kgo.ProducerLinger(0)}
	return map[string]any{"records": count}, franzThereAndBack(bootstrap, count, options)
}

func franzThereAndBack(bootstrap string, count int, options []kgo.Opt) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, err := franzTopic(ctx, bootstrap, "go-roundtrip", partitions)
	if err != nil {
		return err
	}
	if err := franzProduce(ctx, bootstrap, topic, count, options); err != nil {
		return err
	}
	client, err := franzClient(bootstrap, kgo.ConsumeTopics(topic), kgo.FetchMaxWait(fetchWait))
	if err != nil {
		return err
	}
	defer client.Close()
	check := newChecker(count)
	for !check.complete() {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d of %d records: %w", check.total, count, err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			if err := check.take(fromFranz(iter.Next())); err != nil {
				return err
			}
		}
	}
	return nil
}

func fromFranz(r *kgo.Record) message {
	m := message{partition: r.Partition, offset: r.Offset, timeMs: r.Timestamp.UnixMilli(), key: r.Key, value: r.Value}
	for _, h := range r.Headers {
		m.headers = append(m.headers, header{h.Key, h.Value})
	}
	return m
}

func franzProduce(ctx context.Context, bootstrap, topic string, count int, options []kgo.Opt) error {
	options = append(options, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	client, err := franzClient(bootstrap, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	var first error
	var once sync.Once
	for i := range count {
		m := messageNumber(i)
		record := &kgo.Record{Partition: m.partition, Key: m.key, Value: m.value, Timestamp: timeOf(m)}
		for _, h := range m.headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.key, Value: h.value})
		}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return first
}

// franzOffsets: commit, resume, read from an offset, offsets for times, reset when out of range.
func franzOffsets(bootstrap string, _ []string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, err := franzTopic(ctx, bootstrap, "go-offsets", partitions)
	if err != nil {
		return nil, err
	}
	const count = 1000 // record i is at offset i/4 of partition i%4
	if err := franzProduce(ctx, bootstrap, topic, count, nil); err != nil {
		return nil, err
	}
	client, err := franzClient(bootstrap)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	listed, err := admin.ListOffsetsAfterMilli(ctx, firstTime.UnixMilli()+401, topic)
	if err != nil {
		return nil, err
	}
	for p, want := range []int64{101, 100, 100, 100} {
		if got, _ := listed.Lookup(topic, int32(p)); got.Offset != want {
			return nil, fmt.Errorf("offset for +401 ms in partition %d: %d, not %d", p, got.Offset, want)
		}
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	if got, _ := ends.Lookup(topic, 3); got.Offset != count/partitions {
		return nil, fmt.Errorf("end offset %d", got.Offset)
	}
	if err := franzFirst(ctx, bootstrap, topic, 2, kgo.NewOffset().At(77), 77); err != nil {
		return nil, fmt.Errorf("from 77: %w", err)
	}
	if err := franzFirst(ctx, bootstrap, topic, 2, kgo.NewOffset().At(99_999), 0); err != nil {
		return nil, fmt.Errorf("out of range: %w", err)
	}
	group := unique("go-offsets")
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 1, 200, -1)
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return nil, err
	}
	resumed, err := franzClient(bootstrap, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(fetchWait))
	if err != nil {
		return nil, err
	}
	defer resumed.Close()
	least := map[int32]int64{}
	for got := 0; got < count-200; {
		fetches := resumed.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if at, ok := least[r.Partition]; !ok || r.Offset < at {
				least[r.Partition] = r.Offset
			}
			got++
		})
	}
	if least[1] != 200 || least[0] != 0 {
		return nil, fmt.Errorf("resumed at %v", least)
	}
	if err := resumed.CommitUncommittedOffsets(ctx); err != nil {
		return nil, err
	}
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	if at, _ := committed.Lookup(topic, 1); at.At != count/partitions {
		return nil, fmt.Errorf("committed %d", at.At)
	}
	return map[string]any{"records": count}, nil
}

func franzFirst(ctx context.Context, bootstrap, topic string, partition int32, from kgo.Offset, want int64) error {
	reset := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	start := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: from}})
	client, err := franzClient(bootstrap, start, reset, kgo.FetchMaxWait(fetchWait))
	if err != nil {
		return err
	}
	defer client.Close()
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return err
	}
	if record := fetches.Records()[0]; record.Offset != want {
		return fmt.Errorf("first record at %d, not %d", record.Offset, want)
	}
	return nil
}

// franzRead: arguments topic and count. Reads partition 0 from its beginning on: offset, key and value of each record.
func franzRead(bootstrap string, arguments []string) (map[string]any, error) {
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return nil, err
	}
	start := map[string]map[int32]kgo.Offset{arguments[0]: {0: kgo.NewOffset().AtStart()}}
	client, err := franzClient(bootstrap, kgo.ConsumePartitions(start))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows := [][]any{}
	for len(rows) < count {
		fetches := client.PollFetches(ctx)
		if errors := fetches.Errors(); len(errors) > 0 {
			return nil, fmt.Errorf("after %d records: %w", len(rows), errors[0].Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			rows = append(rows, []any{record.Offset, string(record.Key), string(record.Value)})
		})
	}
	return map[string]any{"rows": rows}, nil
}

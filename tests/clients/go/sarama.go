package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func timeOf(m message) time.Time { return time.UnixMilli(m.timeMs) }

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Return.Errors = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	return config
}

func saramaTopic(bootstrap, prefix string, count int32) (string, error) {
	client, err := sarama.NewClient([]string{bootstrap}, saramaConfig())
	if err != nil {
		return "", err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return "", err
	}
	topic := unique(prefix)
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: 1}, false)
	if err != nil {
		return "", err
	}
	return topic, serving(topic, func() error {
		for p := range count {
			if _, err := client.GetOffset(topic, p, sarama.OffsetNewest); err != nil {
				return err
			}
		}
		return nil
	})
}

// saramaRoundTrip: arguments codec and number of records; once for each acks, the last one idempotent.
func saramaRoundTrip(bootstrap string, arguments []string) (map[string]any, error) {
	var codec sarama.CompressionCodec
	if err := codec.UnmarshalText([]byte(arguments[0])); err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return nil, err
	}
	for _, acks := range []sarama.RequiredAcks{sarama.NoResponse, sarama.WaitForLocal, sarama.WaitForAll} {
		config := saramaConfig()
		config.Producer.Compression = codec
		config.Producer.RequiredAcks = acks
		config.Producer.Flush.Frequency = 5 * time.Millisecond
		config.Net.MaxOpenRequests = 1
		config.Producer.Idempotent = acks == sarama.WaitForAll
		topic, err := saramaTopic(bootstrap, "sarama-roundtrip", partitions)
		if err != nil {
			return nil, err
		}
		if err := saramaProduce(bootstrap, topic, count, config); err != nil {
			return nil, fmt.Errorf("acks %d: %w", acks, err)
		}
		if err := saramaVerify(bootstrap, topic, count); err != nil {
			return nil, fmt.Errorf("acks %d: %w", acks, err)
		}
	}
	return map[string]any{"codec": arguments[0], "records": 3 * count}, nil
}

func saramaProduce(bootstrap, topic string, count int, config *sarama.Config) error {
	producer, err := sarama.NewAsyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	go func() {
		for i := range count {
			m := messageNumber(i)
			out := &sarama.ProducerMessage{Topic: topic, Partition: m.partition, Timestamp: timeOf(m)}
			if m.key != nil {
				out.Key = sarama.ByteEncoder(m.key)
			}
			if m.value != nil {
				out.Value = sarama.ByteEncoder(m.value)
			}
			for _, h := range m.headers {
				out.Headers = append(out.Headers, sarama.RecordHeader{Key: []byte(h.key), Value: h.value})
			}
			producer.Input() <- out
		}
		producer.AsyncClose()
	}()
	var failed error
	done := 0
	errorsLeft, successes := producer.Errors(), producer.Successes()
	for errorsLeft != nil || successes != nil {
		select {
		case e, ok := <-errorsLeft:
			if !ok {
				errorsLeft = nil
			} else {
				failed = e
			}
		case _, ok := <-successes:
			if !ok {
				successes = nil
			} else {
				done++
			}
		}
	}
	if failed == nil && done != count {
		failed = fmt.Errorf("%d of %d were acknowledged", done, count)
	}
	return failed
}

func saramaVerify(bootstrap, topic string, count int) error {
	consumer, err := sarama.NewConsumer([]string{bootstrap}, saramaConfig())
	if err != nil {
		return err
	}
	defer consumer.Close()
	arrived := make(chan *sarama.ConsumerMessage, 1000)
	stop := make(chan struct{})
	defer close(stop)
	for p := range int32(partitions) {
		one, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		defer one.AsyncClose()
		go func() {
			for m := range one.Messages() {
				select {
				case arrived <- m:
				case <-stop:
					return
				}
			}
		}()
	}
	check := newChecker(count)
	deadline := time.After(patience)
	for !check.complete() {
		select {
		case m := <-arrived:
			if err := check.take(fromSarama(m)); err != nil {
				return err
			}
		case <-deadline:
			return fmt.Errorf("%d of %d records came back", check.total, count)
		}
	}
	return nil
}

func fromSarama(m *sarama.ConsumerMessage) message {
	got := message{partition: m.Partition, offset: m.Offset, timeMs: m.Timestamp.UnixMilli(), key: m.Key, value: m.Value}
	for _, h := range m.Headers {
		got.headers = append(got.headers, header{string(h.Key), h.Value})
	}
	return got
}

// saramaOffsets: offsets for times, end offsets, a seek, an offset out of range.
func saramaOffsets(bootstrap string, _ []string) (map[string]any, error) {
	const count = 1000 // record i is at offset i/4 of partition i%4
	topic, err := saramaTopic(bootstrap, "sarama-offsets", partitions)
	if err != nil {
		return nil, err
	}
	if err := saramaProduce(bootstrap, topic, count, saramaConfig()); err != nil {
		return nil, err
	}
	client, err := sarama.NewClient([]string{bootstrap}, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, want := range []struct{ time, offset int64 }{
		{sarama.OffsetOldest, 0}, {sarama.OffsetNewest, count / partitions}, {firstTime.UnixMilli() + 401, 101},
		{firstTime.UnixMilli(), 0}, {firstTime.UnixMilli() + 100_000, -1},
	} {
		if got, err := client.GetOffset(topic, 0, want.time); err != nil || got != want.offset {
			return nil, fmt.Errorf("offset for %d: %d, not %d (%v)", want.time, got, want.offset, err)
		}
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	one, err := consumer.ConsumePartition(topic, 3, 77)
	if err != nil {
		return nil, err
	}
	if m := <-one.Messages(); m.Offset != 77 {
		return nil, fmt.Errorf("a read from 77 begins at %d", m.Offset)
	}
	one.AsyncClose()
	if _, err := consumer.ConsumePartition(topic, 2, 99_999); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return nil, fmt.Errorf("an offset out of range: %v", err)
	}
	return map[string]any{"records": count}, nil
}

// saramaHandler is one member of a consumer group.
type saramaHandler struct {
	mu    sync.Mutex
	owned int
	seen  map[string]bool
}

func (h *saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owned = 0
	for _, claimed := range session.Claims() {
		h.owned += len(claimed)
	}
	return nil
}

func (h *saramaHandler) Cleanup(sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owned = 0
	return nil
}

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.mu.Lock()
		h.seen[fmt.Sprint(m.Partition, "/", m.Offset)] = true
		h.mu.Unlock()
		session.MarkMessage(m, "")
	}
	return nil
}

func (h *saramaHandler) counts() (owned, seen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owned, len(h.seen)
}

func saramaMember(bootstrap, group, topic string) (*saramaHandler, func() error, error) {
	handler := &saramaHandler{seen: map[string]bool{}}
	member, err := sarama.NewConsumerGroup([]string{bootstrap}, group, saramaConfig())
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := member.Consume(ctx, []string{topic}, handler); err != nil && ctx.Err() == nil {
				fmt.Println("consume:", err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return handler, func() error { cancel(); <-done; return member.Close() }, nil
}

// saramaGroup: two members share, one leaves, the other reads all; the commits of both are kept.
func saramaGroup(bootstrap string, _ []string) (map[string]any, error) {
	const count = 2000
	topic, err := saramaTopic(bootstrap, "sarama-group", partitions)
	if err != nil {
		return nil, err
	}
	group := unique("sarama-group")
	stays, closeStays, err := saramaMember(bootstrap, group, topic)
	if err != nil {
		return nil, err
	}
	leaves, closeLeaves, err := saramaMember(bootstrap, group, topic)
	if err != nil {
		return nil, err
	}
	if err := await("two members share four partitions", func() (bool, error) {
		a, _ := stays.counts()
		b, _ := leaves.counts()
		return a == 2 && b == 2, nil
	}); err != nil {
		return nil, err
	}
	if err := closeLeaves(); err != nil {
		return nil, err
	}
	if err := await("the other has all", func() (bool, error) { a, _ := stays.counts(); return a == partitions, nil }); err != nil {
		return nil, err
	}
	if err := saramaProduce(bootstrap, topic, count, saramaConfig()); err != nil {
		return nil, err
	}
	if err := await("all is read", func() (bool, error) { _, n := stays.counts(); return n == count, nil }); err != nil {
		return nil, err
	}
	if err := closeStays(); err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3}})
	if err != nil {
		return nil, err
	}
	for p := range int32(partitions) {
		if block := committed.GetBlock(topic, p); block == nil || block.Offset != count/partitions {
			return nil, fmt.Errorf("committed in partition %d: %+v", p, block)
		}
	}
	return map[string]any{"records": count}, nil
}

// saramaAdmin: topics, configs, partitions, groups.
func saramaAdmin(bootstrap string, _ []string) (map[string]any, error) {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	topic := unique("sarama-admin")
	policy := "compact"
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"cleanup.policy": &policy}}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return nil, err
	}
	if err := admin.CreateTopic(topic, detail, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return nil, fmt.Errorf("a second creation: %w", err)
	}
	if err := admin.CreatePartitions(topic, 4, nil, false); err != nil {
		return nil, err
	}
	if err := await("the topic has 4 partitions and its config", func() (bool, error) {
		topics, err := admin.ListTopics()
		made, ok := topics[topic]
		return ok && made.NumPartitions == 4 && made.ConfigEntries["cleanup.policy"] != nil, err
	}); err != nil {
		return nil, err
	}
	value := "5000"
	entry := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, entry, false); err != nil {
		return nil, err
	}
	if err := await("retention.ms is 5000", func() (bool, error) {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
		return err == nil && len(entries) == 1 && entries[0].Value == "5000", err
	}); err != nil {
		return nil, err
	}
	if _, _, err := admin.DescribeCluster(); err != nil {
		return nil, err
	}
	group := unique("sarama-admin")
	handler, leave, err := saramaMember(bootstrap, group, topic)
	if err != nil {
		return nil, err
	}
	if err := await("the member has all", func() (bool, error) { n, _ := handler.counts(); return n == 4, nil }); err != nil {
		return nil, err
	}
	described, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil || described[0].State != "Stable" || len(described[0].Members) != 1 {
		return nil, fmt.Errorf("described as %+v (%v)", described, err)
	}
	if err := leave(); err != nil {
		return nil, err
	}
	if err := admin.DeleteConsumerGroup(group); err != nil {
		return nil, fmt.Errorf("delete group: %w", err)
	}
	groups, err := admin.ListConsumerGroups()
	if _, still := groups[group]; err != nil || still {
		return nil, fmt.Errorf("the group is still listed (%v)", err)
	}
	return map[string]any{"parts": 3}, admin.DeleteTopic(topic)
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sustainTick = 50 * time.Millisecond
	sustainEnd  = 180 * time.Second
)

// sustained is what a client has heard of: it writes and reads until its standard input ends, whatever happens meanwhile.
type sustained struct {
	mu           sync.Mutex
	acknowledged [][]any
	errors       []string
	seen         map[string]bool
}

func (s *sustained) ack(partition int32, offset int64, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acknowledged = append(s.acknowledged, []any{partition, offset, value})
}

func (s *sustained) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errors) < 10 {
		s.errors = append(s.errors, err.Error())
	}
}

func (s *sustained) saw(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[value] = true
}

func (s *sustained) unseen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, row := range s.acknowledged {
		if !s.seen[row[2].(string)] {
			count++
		}
	}
	return count
}

// found waits until the client has read what it has written.
func (s *sustained) found() map[string]any {
	for deadline := time.Now().Add(sustainEnd); s.unseen() > 0 && time.Now().Before(deadline); {
		time.Sleep(sustainTick)
	}
	unseen := s.unseen()
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"acknowledged": s.acknowledged, "errors": append([]string{}, s.errors...), "unseen": unseen}
}

// untilInputEnds calls send every 50 ms.
func untilInputEnds(send func(number int)) {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for number := 0; ; number++ {
		select {
		case <-ended:
			return
		case <-time.After(sustainTick):
			send(number)
		}
	}
}

// franzSustain: argument topic. The bootstrap addresses are separated by commas.
func franzSustain(bootstrap string, arguments []string) (map[string]any, error) {
	topic, told := arguments[0], &sustained{seen: map[string]bool{}}
	seeds := kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
	writer, err := kgo.NewClient(seeds, kgo.DefaultProduceTopic(topic), kgo.MetadataMinAge(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	reader, err := kgo.NewClient(seeds, kgo.ConsumerGroup(topic+"-franz"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { told.saw(string(r.Value)) })
		}
	}()
	untilInputEnds(func(number int) {
		value := fmt.Sprintf("franz-%d", number)
		writer.Produce(context.Background(), &kgo.Record{Value: []byte(value)}, func(r *kgo.Record, err error) {
			if err != nil {
				told.fail(err)
				return
			}
			told.ack(r.Partition, r.Offset, value)
		})
	})
	flushing, stop := context.WithTimeout(context.Background(), sustainEnd)
	defer stop()
	if err := writer.Flush(flushing); err != nil {
		return nil, fmt.Errorf("flush: %w", err)
	}
	found := told.found()
	cancel()
	<-done
	reader.Close()
	return found, nil
}

type sustainHandler struct{ told *sustained }

func (sustainHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (sustainHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h sustainHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.told.saw(string(m.Value))
		session.MarkMessage(m, "")
	}
	return nil
}

// saramaSustain: argument topic. Idempotent, acks=all; the bootstrap addresses are separated by commas.
func saramaSustain(bootstrap string, arguments []string) (map[string]any, error) {
	topic, told := arguments[0], &sustained{seen: map[string]bool{}}
	config := saramaConfig()
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = 3*time.Second, 15*time.Second, 10*time.Second
	config.Producer.Retry.Max, config.Producer.Retry.Backoff = 1000, 250*time.Millisecond
	config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 100, 250*time.Millisecond
	config.Metadata.RefreshFrequency = 5 * time.Second
	brokers := strings.Split(bootstrap, ",")
	writer, err := sarama.NewAsyncProducer(brokers, config)
	if err != nil {
		return nil, err
	}
	reader, err := sarama.NewConsumerGroup(brokers, topic+"-sarama", config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Add(3)
	go func() {
		defer running.Done()
		for m := range writer.Successes() {
			told.ack(m.Partition, m.Offset, m.Metadata.(string))
		}
	}()
	go func() {
		defer running.Done()
		for failed := range writer.Errors() {
			told.fail(failed.Err)
		}
	}()
	go func() {
		defer running.Done()
		for ctx.Err() == nil {
			if err := reader.Consume(ctx, []string{topic}, sustainHandler{told}); err != nil {
				time.Sleep(sustainTick)
			}
		}
	}()
	untilInputEnds(func(number int) {
		value := fmt.Sprintf("sarama-%d", number)
		writer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value), Metadata: value}
	})
	writer.AsyncClose() // sends what waits, then closes both channels
	found := make(chan map[string]any)
	go func() { found <- told.found() }()
	result := <-found
	cancel()
	running.Wait()
	return result, reader.Close()
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// franzTransactions: argument a release, whose protocol is spoken. Commits, aborts, fences, and reads what is committed.
func franzTransactions(bootstrap string, arguments []string) (map[string]any, error) {
	newest = kversion.FromString(arguments[0])
	if newest == nil {
		return nil, fmt.Errorf("no release %q", arguments[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, err := franzTopic(ctx, bootstrap, "go-transactions", partitions)
	if err != nil {
		return nil, err
	}
	producer, err := franzTransactional(bootstrap, topic)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	wanted := 0
	for number := 0; number < 30; number++ {
		commit := number%3 != 2
		if err := franzTransaction(ctx, producer, topic, fmt.Sprint(number, commit), commit); err != nil {
			return nil, fmt.Errorf("transaction %d: %w", number, err)
		}
		if commit {
			wanted += int(partitions)
		}
	}
	heir, err := franzTransactional(bootstrap, topic)
	if err != nil {
		return nil, err
	}
	defer heir.Close()
	if err := franzTransaction(ctx, heir, topic, "heir true", true); err != nil {
		return nil, fmt.Errorf("heir: %w", err)
	}
	if err := franzTransaction(ctx, producer, topic, "zombie false", true); err == nil {
		return nil, fmt.Errorf("the zombie committed")
	}
	if err := franzAbortsAtOnce(ctx, bootstrap); err != nil {
		return nil, err
	}
	return franzCommitted(ctx, bootstrap, topic, wanted+int(partitions))
}

// franzAbortsAtOnce commits over many partitions and ends the next, empty transaction while the markers are still written.
func franzAbortsAtOnce(ctx context.Context, bootstrap string) error {
	const wide = 100
	topic, err := franzTopic(ctx, bootstrap, "go-wide", wide)
	if err != nil {
		return err
	}
	client, err := franzClient(bootstrap)
	if err != nil {
		return err
	}
	defer client.Close()
	slowly := kadm.AlterConfig{Op: kadm.SetConfig, Name: "flush.messages", Value: kadm.StringPtr("1")}
	if _, err := kadm.NewClient(client).AlterTopicConfigs(ctx, []kadm.AlterConfig{slowly}, topic); err != nil {
		return err
	}
	for number := 0; number < 5; number++ {
		producer, err := franzTransactional(bootstrap, topic)
		if err != nil {
			return err
		}
		defer producer.Close()
		records := make([]*kgo.Record, wide)
		for partition := range records {
			records[partition] = &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte("true")}
		}
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return fmt.Errorf("wide transaction %d: %w", number, err)
		}
		if err := producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return fmt.Errorf("wide commit %d: %w", number, err)
		}
		if err := franzEndsAgain(ctx, producer, topic); err != nil {
			return fmt.Errorf("abort at once %d: %w", number, err)
		}
	}
	_, err = franzCommitted(ctx, bootstrap, topic, 5*wide)
	return err
}

func franzEndsAgain(ctx context.Context, producer *kgo.Client, id string) error {
	request := kmsg.NewPtrEndTxnRequest()
	var err error
	request.TransactionalID = id
	if request.ProducerID, request.ProducerEpoch, err = producer.ProducerID(ctx); err != nil {
		return err
	}
	for {
		response, err := request.RequestWith(ctx, producer)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(response.ErrorCode)
		if request.Version < 5 && errors.Is(err, kerr.InvalidTxnState) {
			return nil // before KIP-890, an empty transaction cannot be ended
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
	}
}

func franzTransactional(bootstrap, id string) (*kgo.Client, error) {
	return franzClient(bootstrap, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
}

func franzTransaction(ctx context.Context, client *kgo.Client, topic, value string, commit bool) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for partition := int32(0); partition < partitions; partition++ {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func franzCommitted(ctx context.Context, bootstrap, topic string, wanted int) (map[string]any, error) {
	client, err := franzClient(bootstrap, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	seen := 0
	for seen < wanted {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", seen, wanted, err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			record := iter.Next()
			end, _ := ends.Lookup(topic, record.Partition)
			value := string(record.Value)
			if value[len(value)-4:] != "true" || record.Offset >= end.Offset {
				return nil, fmt.Errorf("read %q at %d, the last stable offset is %d", value, record.Offset, end.Offset)
			}
			seen++
		}
	}
	return map[string]any{"release": newest.VersionGuess(), "records": seen}, nil
}

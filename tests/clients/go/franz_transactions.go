package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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
	return franzCommitted(ctx, bootstrap, topic, wanted+int(partitions))
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

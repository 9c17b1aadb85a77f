// sarama of one release at its default Kafka version, or at others:
// oldsarama BOOTSTRAP write TOPIC COUNT CODECS VERSIONS | read TOPIC COUNT VERSIONS | group TOPIC COUNT VERSIONS.
// A version is `default` or a number such as 0.8.2.0. Prints one line of JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Shopify/sarama"
)

const timeout = 30 * time.Second

// release is set by the linker.
var release = "?"

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
}

func config(version string) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.ClientID = "sarama-" + release
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.CommitInterval = 20 * time.Millisecond
	if version != "default" {
		parsed, err := sarama.ParseKafkaVersion(version)
		if err != nil {
			return nil, err
		}
		c.Version = parsed
	}
	return c, nil
}

func text(value []byte) any {
	if value == nil {
		return nil
	}
	return string(value)
}

// encoder keeps a null a null; sarama takes a nil Encoder for one.
func encoder(value any) sarama.Encoder {
	if value == nil {
		return nil
	}
	return sarama.StringEncoder(value.(string))
}

func write(bootstrap, topic string, count int, names, versions []string) (map[string]any, error) {
	var written [][]any
	for _, version := range versions {
		for _, name := range names {
			c, err := config(version)
			if err != nil {
				return nil, err
			}
			codec, known := codecs[name]
			if !known {
				return nil, fmt.Errorf("no codec %q", name)
			}
			// lz4 came to sarama with 0.10.
			if codec == sarama.CompressionLZ4 && !c.Version.IsAtLeast(sarama.V0_10_0_0) {
				continue
			}
			c.Producer.Compression = codec
			producer, err := sarama.NewSyncProducer([]string{bootstrap}, c)
			if err != nil {
				return nil, err
			}
			who := fmt.Sprintf("sarama %s as %s %s", release, version, name)
			var batch []*sarama.ProducerMessage
			for i := 0; i < count; i++ {
				var key, value any
				if i%7 != 0 {
					key = "key-" + strconv.Itoa(i)
				}
				if i%11 != 3 || key == nil {
					value = who + "/" + strconv.Itoa(i)
				}
				batch = append(batch, &sarama.ProducerMessage{Topic: topic, Key: encoder(key), Value: encoder(value)})
				written = append(written, []any{who, key, value})
			}
			if err := producer.SendMessages(batch); err != nil {
				return nil, fmt.Errorf("%s: %w", who, err)
			}
			if err := producer.Close(); err != nil {
				return nil, err
			}
		}
	}
	return map[string]any{"written": written}, nil
}

func read(bootstrap, topic string, count int, versions []string) (map[string]any, error) {
	found := map[string]any{}
	for _, version := range versions {
		c, err := config(version)
		if err != nil {
			return nil, err
		}
		consumer, err := sarama.NewConsumer([]string{bootstrap}, c)
		if err != nil {
			return nil, err
		}
		partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		rows := [][]any{}
		late := time.After(timeout)
		for len(rows) < count {
			select {
			case one := <-partition.Messages():
				var at any
				if !one.Timestamp.IsZero() {
					at = one.Timestamp.UnixNano() / int64(time.Millisecond)
				}
				rows = append(rows, []any{one.Offset, at, text(one.Key), text(one.Value)})
			case <-late:
				return nil, fmt.Errorf("as %s: %d of %d records within %s", version, len(rows), count, timeout)
			}
		}
		found[version] = rows
		partition.Close()
		consumer.Close()
	}
	return map[string]any{"found": found}, nil
}

// group commits without being a member, which is all that versions before 0.10.2 can do.
func group(bootstrap, topic string, count int, versions []string) (map[string]any, error) {
	positions := map[string]any{}
	for _, version := range versions {
		c, err := config(version)
		if err != nil {
			return nil, err
		}
		client, err := sarama.NewClient([]string{bootstrap}, c)
		if err != nil {
			return nil, err
		}
		var seen []int64
		for turn := 0; turn < 2; turn++ {
			offsets, err := sarama.NewOffsetManagerFromClient(fmt.Sprintf("group-%s-%s-%s", topic, release, version), client)
			if err != nil {
				return nil, err
			}
			partition, err := offsets.ManagePartition(topic, 0)
			if err != nil {
				return nil, err
			}
			next, _ := partition.NextOffset()
			seen = append(seen, next)
			if turn == 0 {
				partition.MarkOffset(int64(count), "noted")
			}
			if err := partition.Close(); err != nil {
				return nil, err
			}
			if err := offsets.Close(); err != nil {
				return nil, err
			}
		}
		positions[version] = seen
		client.Close()
	}
	return map[string]any{"positions": positions}, nil
}

func run(arguments []string) (map[string]any, error) {
	count, err := strconv.Atoi(arguments[3])
	if err != nil {
		return nil, err
	}
	bootstrap, topic, last := arguments[0], arguments[2], strings.Split(arguments[len(arguments)-1], ",")
	switch arguments[1] {
	case "write":
		return write(bootstrap, topic, count, strings.Split(arguments[4], ","), last)
	case "read":
		return read(bootstrap, topic, count, last)
	default:
		return group(bootstrap, topic, count, last)
	}
}

func main() {
	found, err := run(os.Args[1:])
	if found == nil {
		found = map[string]any{}
	}
	found["ok"] = err == nil
	if err != nil {
		found["error"] = err.Error()
	}
	line, _ := json.Marshal(found)
	fmt.Println(string(line))
	if err != nil {
		os.Exit(1)
	}
}

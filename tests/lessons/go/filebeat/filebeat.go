// The lines of standard input to a topic, as events in JSON, by sarama with the settings of Filebeat's output.kafka:
// its defaults, and those that its configuration in the guide gives.
//
//	filebeat HOST:PORT TOPIC VERSION COMPRESSION
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/Shopify/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
}

func settings(version string, compression string) *sarama.Config {
	config := sarama.NewConfig()
	parsed, err := sarama.ParseKafkaVersion(version)
	if err != nil {
		panic(err)
	}
	config.Version = parsed
	config.ClientID = "filebeat"
	config.ChannelBufferSize = 256
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = 30*time.Second, 30*time.Second, 30*time.Second
	config.Net.KeepAlive = 0
	config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 3, 250*time.Millisecond
	config.Metadata.RefreshFrequency = 10 * time.Minute
	config.Metadata.Full = false
	config.Producer.MaxMessageBytes = 1000000
	config.Producer.RequiredAcks = sarama.WaitForLocal
	config.Producer.Timeout = 10 * time.Second
	config.Producer.Compression = codecs[compression]
	config.Producer.CompressionLevel = sarama.CompressionLevelDefault
	config.Producer.Flush.MaxMessages = 2048
	config.Producer.Retry.Max = 3
	config.Producer.Return.Successes, config.Producer.Return.Errors = true, true
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	return config
}

func main() {
	producer, err := sarama.NewAsyncProducer([]string{os.Args[1]}, settings(os.Args[3], os.Args[4]))
	if err != nil {
		panic(err)
	}
	sent, acknowledged := 0, make(chan int)
	go func() {
		count := 0
		for range producer.Successes() {
			count++
		}
		acknowledged <- count
	}()
	go func() {
		for failed := range producer.Errors() {
			fmt.Fprintln(os.Stderr, failed)
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		now := time.Now().UTC()
		event, _ := json.Marshal(map[string]any{"@timestamp": now, "message": lines.Text(), "agent": map[string]string{"type": "filebeat"}})
		producer.Input() <- &sarama.ProducerMessage{Topic: os.Args[2], Value: sarama.ByteEncoder(event), Timestamp: now}
		sent++
	}
	producer.AsyncClose()
	fmt.Printf("sent %d, acknowledged %d\n", sent, <-acknowledged)
}

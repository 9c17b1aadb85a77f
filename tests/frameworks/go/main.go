// Confluent's Go client: a consumer with commits of its own and a producer whose answers are waited for.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	consumer, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers":  os.Args[1],
		"group.id":           "confluent-go",
		"auto.offset.reset":  "earliest",
		"enable.auto.commit": false,
	})
	must(err)
	must(consumer.SubscribeTopics([]string{"confluent-go-in"}, nil))
	producer, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": os.Args[1], "acks": "all"})
	must(err)
	topic := "confluent-go-out"
	for {
		message, err := consumer.ReadMessage(-1)
		must(err)
		delivered := make(chan kafka.Event, 1)
		must(producer.Produce(&kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny},
			Value:          []byte(strings.ToUpper(string(message.Value))),
		}, delivered))
		must((<-delivered).(*kafka.Message).TopicPartition.Error)
		_, err = consumer.CommitMessage(message)
		must(err)
	}
}

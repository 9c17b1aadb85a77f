// Go clients against a broker: probe BOOTSTRAP SCENARIO [ARGUMENT ...].
//
// Prints one line of JSON, {"scenario": ..., "ok": true, ...} or {"ok": false, "error": ...}, and ends with 0 or 1.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"
)

// A scenario says what it found, or why the broker did not do what Kafka does.
type scenario func(bootstrap string, arguments []string) (map[string]any, error)

var scenarios = map[string]scenario{
	"franz-roundtrip":    franzRoundTrip,
	"franz-idempotent":   franzIdempotent,
	"franz-group":        franzGroup,
	"franz-member":       franzMember,
	"franz-logins":       franzLogins,
	"franz-offsets":      franzOffsets,
	"franz-admin":        franzAdmin,
	"franz-versions":     franzVersions,
	"franz-transactions": franzTransactions,
	"franz-sustain":      franzSustain,
	"franz-read":         franzRead,
	"franz-registry":     franzRegistry,
	"kafkago-read":       kafkagoRead,
	"sarama-roundtrip":   saramaRoundTrip,
	"sarama-group":       saramaGroup,
	"sarama-logins":      saramaLogins,
	"sarama-sustain":     saramaSustain,
	"sarama-offsets":     saramaOffsets,
	"sarama-admin":       saramaAdmin,
}

const patience = 60 * time.Second

func main() {
	if len(os.Args) < 3 || scenarios[os.Args[2]] == nil {
		names := make([]string, 0, len(scenarios))
		for name := range scenarios {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "usage: probe BOOTSTRAP SCENARIO [ARGUMENT ...]; scenarios:", names)
		os.Exit(2)
	}
	found, err := scenarios[os.Args[2]](os.Args[1], os.Args[3:])
	if found == nil {
		found = map[string]any{}
	}
	found["scenario"], found["ok"] = os.Args[2], err == nil
	if err != nil {
		found["error"] = err.Error()
	}
	line, _ := json.Marshal(found)
	fmt.Println(string(line))
	if err != nil {
		os.Exit(1)
	}
}

func unique(prefix string) string {
	return prefix + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// serving waits until every partition of a new topic answers. Apache Kafka says who leads some milliseconds before the
// leader serves, and a record sent with acks 0 in that moment is lost without a word.
func serving(topic string, ask func() error) error {
	return await("the partitions of "+topic+" serve", func() (bool, error) { return ask() == nil, nil })
}

// await asks until the condition holds, for at most 20 seconds.
func await(what string, holds func() (bool, error)) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		done, err := holds()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within 20 s: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// member polls in the background and notes its partitions and the records it saw.
type member struct {
	client *kgo.Client
	mu     sync.Mutex
	owned  map[int32]bool
	seen   map[int64]map[int32]bool
	cancel context.CancelFunc
	done   chan struct{}
}

func newMember(bootstrap, group, topic string) (*member, error) {
	m := &member{owned: map[int32]bool{}, seen: map[int64]map[int32]bool{}, done: make(chan struct{})}
	set := func(value bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range changed[topic] {
				if value {
					m.owned[p] = true
				} else {
					delete(m.owned, p)
				}
			}
		}
	}
	client, err := franzClient(bootstrap, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(set(true)), kgo.OnPartitionsRevoked(set(false)), kgo.OnPartitionsLost(set(false)),
	)
	if err != nil {
		return nil, err
	}
	m.client = client
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.poll(ctx)
	return m, nil
}

func (m *member) poll(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		m.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.seen[r.Offset] == nil {
				m.seen[r.Offset] = map[int32]bool{}
			}
			m.seen[r.Offset][r.Partition] = true
		})
	}
}

func (m *member) leave() {
	m.cancel()
	<-m.done
	m.client.Close()
}

func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owned)
}

func (m *member) hasSeen(offset int64, partition int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[offset][partition]
}

// franzGroup: three members, one leaves, one (a process of its own) is killed; the last ends with every partition.
func franzGroup(bootstrap string, _ []string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, err := franzTopic(ctx, bootstrap, "go-group", partitions)
	if err != nil {
		return nil, err
	}
	group := unique("go-group")
	stays, err := newMember(bootstrap, group, topic)
	if err != nil {
		return nil, err
	}
	defer stays.leave()
	leaves, err := newMember(bootstrap, group, topic)
	if err != nil {
		return nil, err
	}
	killed := exec.Command(os.Args[0], bootstrap, "franz-member", group, topic)
	lines, err := killed.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := killed.Start(); err != nil {
		return nil, err
	}
	defer killed.Wait()
	defer killed.Process.Kill()
	var others atomic.Int64 // how many partitions the third member has
	go func() {
		for scan := bufio.NewScanner(lines); scan.Scan(); {
			var now int64
			if _, err := fmt.Sscanf(scan.Text(), "assigned %d", &now); err == nil {
				others.Store(now)
			}
		}
	}()
	if err := await("three members share the partitions", func() (bool, error) {
		a, b, c := stays.count(), leaves.count(), int(others.Load())
		return a > 0 && b > 0 && c > 0 && a+b+c == partitions, nil
	}); err != nil {
		return nil, err
	}
	leaves.leave()
	if err := await("the other two share what the member that left had", func() (bool, error) {
		return stays.count() == 2 && others.Load() == 2, nil
	}); err != nil {
		return nil, err
	}
	if err := killed.Process.Kill(); err != nil {
		return nil, err
	}
	const count = 2000
	if err := franzProduce(ctx, bootstrap, topic, count, nil); err != nil {
		return nil, err
	}
	if err := await("the last member has every partition", func() (bool, error) { return stays.count() == partitions, nil }); err != nil {
		return nil, err
	}
	return map[string]any{"records": count}, await("every record written after the kill is read", func() (bool, error) {
		for i := range count {
			if !stays.hasSeen(int64(i/partitions), int32(i%partitions)) {
				return false, nil
			}
		}
		return true, nil
	})
}

// franzMember: arguments group and topic; says its number of partitions whenever it changes, until it is killed.
func franzMember(bootstrap string, arguments []string) (map[string]any, error) {
	m, err := newMember(bootstrap, arguments[0], arguments[1])
	if err != nil {
		return nil, err
	}
	for said := -1; ; time.Sleep(20 * time.Millisecond) {
		if now := m.count(); now != said {
			fmt.Printf("assigned %d\n", now)
			said = now
		}
	}
}

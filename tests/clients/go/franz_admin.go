package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// franzAdmin: topics, configs, partitions, groups.
func franzAdmin(bootstrap string, _ []string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := franzClient(bootstrap)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for name, part := range map[string]func(context.Context, *kadm.Client, string) error{
		"topics": franzTopics, "configs": franzConfigs, "groups": franzGroups,
	} {
		if err := part(ctx, admin, bootstrap); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return map[string]any{"parts": 3}, nil
}

func franzTopics(ctx context.Context, admin *kadm.Client, _ string) error {
	topic := unique("go-admin")
	made, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}, topic)
	if err != nil {
		return err
	}
	if made.NumPartitions != 2 && made.NumPartitions != -1 { // not told before version 5
		return fmt.Errorf("created with %d partitions", made.NumPartitions)
	}
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("a second creation: %v", err)
	}
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, "not legal!"); !errors.Is(err, kerr.InvalidTopicException) {
		return fmt.Errorf("an illegal name: %v", err)
	}
	grown, err := admin.UpdatePartitions(ctx, 5, topic)
	if err != nil {
		return err
	}
	if err := grown.Error(); err != nil {
		return err
	}
	if err := await("five partitions with leaders", func() (bool, error) {
		listed, err := admin.ListTopics(ctx, topic)
		return err == nil && len(listed[topic].Partitions) == 5 && listed[topic].Err == nil, err
	}); err != nil {
		return err
	}
	deleted, err := admin.DeleteTopics(ctx, topic)
	if err != nil {
		return err
	}
	if err := deleted.Error(); err != nil {
		return err
	}
	return await("the topic is gone", func() (bool, error) {
		listed, err := admin.ListTopics(ctx)
		return err == nil && !listed.Has(topic), err
	})
}

func franzConfigs(ctx context.Context, admin *kadm.Client, bootstrap string) error {
	if newest != nil && !newest.HasKey(int16(kmsg.IncrementalAlterConfigs)) {
		return nil
	}
	topic, err := franzTopic(ctx, bootstrap, "go-configs", 1)
	if err != nil {
		return err
	}
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("5000")}}
	altered, err := admin.AlterTopicConfigs(ctx, set, topic)
	if err != nil {
		return err
	}
	if one, err := altered.On(topic, nil); err != nil || one.Err != nil {
		return fmt.Errorf("alter: %v %v", err, one.Err)
	}
	if err := await("retention.ms is 5000", func() (bool, error) {
		described, err := admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return false, err
		}
		for _, config := range described[0].Configs {
			if config.Key == "retention.ms" {
				return config.MaybeValue() == "5000", nil
			}
		}
		return false, errors.New("no retention.ms")
	}); err != nil {
		return err
	}
	set[0].Value = kadm.StringPtr("soon")
	altered, err = admin.AlterTopicConfigs(ctx, set, topic)
	if err != nil {
		return err
	}
	if one, _ := altered.On(topic, nil); !errors.Is(one.Err, kerr.InvalidConfig) {
		return fmt.Errorf("a bad value: %v", one.Err)
	}
	return nil
}

func franzGroups(ctx context.Context, admin *kadm.Client, bootstrap string) error {
	topic, err := franzTopic(ctx, bootstrap, "go-groups", partitions)
	if err != nil {
		return err
	}
	group := unique("go-groups")
	member, err := newMember(bootstrap, group, topic)
	if err != nil {
		return err
	}
	left := false
	defer func() {
		if !left {
			member.leave()
		}
	}()
	if err := await("all partitions", func() (bool, error) { return member.count() == partitions, nil }); err != nil {
		return err
	}
	described, err := admin.DescribeGroups(ctx, group)
	if err != nil {
		return err
	}
	if one := described[group]; one.State != "Stable" || len(one.Members) != 1 {
		return fmt.Errorf("described as %+v", one)
	}
	listed, err := admin.ListGroups(ctx)
	if err != nil {
		return err
	}
	if one, ok := listed[group]; !ok || one.ProtocolType != "consumer" {
		return fmt.Errorf("listed as %+v", one)
	}
	if _, err := admin.DeleteGroup(ctx, group); !errors.Is(err, kerr.NonEmptyGroup) {
		return fmt.Errorf("deleting a live group: %v", err)
	}
	member.leave()
	left = true
	return await("the empty group is deleted", func() (bool, error) {
		_, err := admin.DeleteGroup(ctx, group)
		if errors.Is(err, kerr.NonEmptyGroup) {
			return false, nil
		}
		return err == nil, err
	})
}

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
	krbclient "github.com/jcmturner/gokrb5/v8/client"
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	franzscram "github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/xdg-go/scram"
)

// A login is one way to be let in. Without a mechanism the certificate, or nothing, says who the client is. Without a CA the
// connection is not encrypted. GSSAPI takes Realm, Keytab and Krb5Conf, and the service is "kafka".
type login struct {
	Name, Bootstrap, Topic, Mechanism, User, Password, Token, Ca, Cert, Key, Realm, Keytab, Krb5Conf string
}

// logins: the argument is a file with a JSON list of logins. One record there and back by each.
func logins(arguments []string, thereAndBack func(login, *tls.Config, []byte) error) (map[string]any, error) {
	data, err := os.ReadFile(arguments[0])
	if err != nil {
		return nil, err
	}
	var rows []login
	if err = json.Unmarshal(data, &rows); err != nil {
		return nil, err
	}
	for _, row := range rows {
		config, err := row.tls()
		if err == nil {
			err = thereAndBack(row, config, []byte(unique("login")))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.Name, err)
		}
	}
	return map[string]any{"logins": len(rows)}, nil
}

func (row login) tls() (*tls.Config, error) {
	if row.Ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(row.Ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if row.Cert != "" {
		pair, err := tls.LoadX509KeyPair(row.Cert, row.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// kerberos is the client of tickets that franz-go wants ready made; sarama makes the same one of its own options.
func (row login) kerberos() (*krbclient.Client, error) {
	config, err := krbconfig.Load(row.Krb5Conf)
	if err != nil {
		return nil, err
	}
	keys, err := keytab.Load(row.Keytab)
	if err != nil {
		return nil, err
	}
	return krbclient.NewWithKeytab(row.User, row.Realm, keys, config), nil
}

func franzLogins(_ string, arguments []string) (map[string]any, error) {
	return logins(arguments, func(row login, config *tls.Config, value []byte) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		options := []kgo.Opt{kgo.ConsumeTopics(row.Topic), kgo.DefaultProduceTopic(row.Topic)}
		if config != nil {
			options = append(options, kgo.DialTLSConfig(config))
		}
		var mechanism sasl.Mechanism
		switch row.Mechanism {
		case "PLAIN":
			mechanism = plain.Auth{User: row.User, Pass: row.Password}.AsMechanism()
		case "SCRAM-SHA-256":
			mechanism = franzscram.Auth{User: row.User, Pass: row.Password}.AsSha256Mechanism()
		case "SCRAM-SHA-512":
			mechanism = franzscram.Auth{User: row.User, Pass: row.Password}.AsSha512Mechanism()
		case "OAUTHBEARER":
			mechanism = oauth.Auth{Token: row.Token}.AsMechanism()
		case "GSSAPI":
			tickets, err := row.kerberos()
			if err != nil {
				return err
			}
			mechanism = kerberos.Auth{Client: tickets, Service: "kafka"}.AsMechanismWithClose()
		}
		if mechanism != nil {
			options = append(options, kgo.SASL(mechanism))
		}
		client, err := franzClient(row.Bootstrap, options...)
		if err != nil {
			return err
		}
		defer client.Close()
		if err = client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return err
		}
		for {
			fetches := client.PollFetches(ctx)
			if err = fetches.Err(); err != nil {
				return err
			}
			for _, record := range fetches.Records() {
				if string(record.Value) == string(value) {
					return nil
				}
			}
		}
	})
}

// saramaScram is what sarama leaves to its users: the exchange of SCRAM.
type saramaScram struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (s *saramaScram) Begin(user, password, authzID string) error {
	client, err := s.hash.NewClient(user, password, authzID)
	if err == nil {
		s.ClientConversation = client.NewConversation()
	}
	return err
}

type saramaToken string

func (t saramaToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func saramaLogins(_ string, arguments []string) (map[string]any, error) {
	return logins(arguments, func(row login, tlsConfig *tls.Config, value []byte) error {
		config := saramaConfig()
		config.Net.TLS.Enable, config.Net.TLS.Config = tlsConfig != nil, tlsConfig
		if row.Mechanism != "" {
			config.Net.SASL.Enable = true
			config.Net.SASL.Mechanism = sarama.SASLMechanism(row.Mechanism)
			config.Net.SASL.User, config.Net.SASL.Password = row.User, row.Password
			config.Net.SASL.GSSAPI = sarama.GSSAPIConfig{
				AuthType: sarama.KRB5_KEYTAB_AUTH, KeyTabPath: row.Keytab, KerberosConfigPath: row.Krb5Conf,
				ServiceName: "kafka", Username: row.User, Realm: row.Realm,
			}
			config.Net.SASL.TokenProvider = saramaToken(row.Token)
			hash := scram.SHA256
			if strings.HasSuffix(row.Mechanism, "512") {
				hash = scram.SHA512
			}
			config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{hash: hash} }
		}
		client, err := sarama.NewClient([]string{row.Bootstrap}, config)
		if err != nil {
			return err
		}
		defer client.Close()
		producer, err := sarama.NewSyncProducerFromClient(client)
		if err != nil {
			return err
		}
		_, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: row.Topic, Value: sarama.ByteEncoder(value)})
		if err != nil {
			return err
		}
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			return err
		}
		partition, err := consumer.ConsumePartition(row.Topic, 0, offset)
		if err != nil {
			return err
		}
		defer partition.Close()
		message := <-partition.Messages()
		if message == nil || string(message.Value) != string(value) {
			return fmt.Errorf("another record came back: %v", message)
		}
		return nil
	})
}

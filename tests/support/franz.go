// A journey of franz-go: `franz HOST:PORT` prints what it did, a line each; the first failure ends it with 1.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "from-franz"

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		panic(err)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	seed := kgo.SeedBrokers(os.Args[1])
	client := must(kgo.NewClient(seed))
	defer client.Close()
	admin := kadm.NewClient(client)
	created := must(admin.CreateTopics(ctx, 1, 1, nil, topic))
	check(created.Error())
	fmt.Println("created", created[topic].NumPartitions)
	compact := "compact"
	changes := []kadm.AlterConfig{{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &compact}}
	check(must(admin.AlterTopicConfigs(ctx, changes, topic))[0].Err)
	configs := must(must(admin.DescribeTopicConfigs(ctx, topic)).On(topic, nil))
	for _, each := range configs.Configs {
		if each.Key == "cleanup.policy" {
			fmt.Println("configured", *each.Value)
		}
	}

	written := 0
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for _, codec := range codecs {
		for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
			options := []kgo.Opt{seed, kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks)}
			if acks != kgo.AllISRAcks() {
				options = append(options, kgo.DisableIdempotentWrite())
			}
			producer := must(kgo.NewClient(options...))
			headers := []kgo.RecordHeader{{Key: "h", Value: []byte{1}}}
			record := &kgo.Record{Topic: topic, Key: []byte("k"), Value: make([]byte, 2000), Headers: headers}
			check(producer.ProduceSync(ctx, record).FirstErr())
			producer.Close()
			written++
		}
	}
	writer := must(kgo.NewClient(seed, kgo.TransactionalID("franz")))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		check(writer.BeginTransaction())
		value := []byte("committed")
		if end == kgo.TryAbort {
			value = []byte("aborted")
		} else {
			written++
		}
		check(writer.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte("t"), Value: value}).FirstErr())
		check(writer.EndTransaction(ctx, end))
	}
	writer.Close()
	fmt.Println("written", written)

	for _, group := range []string{"franz-classic", "franz-consumer"} {
		own := ctx
		if group == "franz-consumer" { // franz-go's name for the protocol of KIP-848
			own = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
		}
		reader := must(kgo.NewClient(seed, kgo.WithContext(own), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
		read, aborted := 0, false
		for read < written {
			fetches := reader.PollFetches(ctx)
			check(fetches.Err())
			fetches.EachRecord(func(record *kgo.Record) {
				read++
				aborted = aborted || string(record.Value) == "aborted"
			})
		}
		check(reader.CommitUncommittedOffsets(ctx))
		reader.Close()
		fmt.Println("read", group, read, aborted)
	}

	ends := must(admin.ListEndOffsets(ctx, topic))
	check(ends.Error())
	end, _ := ends.Lookup(topic, 0)
	fmt.Println("end", end.Offset)
	check(must(admin.DeleteGroups(ctx, "franz-classic", "franz-consumer")).Error())
	check(must(admin.DeleteTopics(ctx, topic)).Error())
	fmt.Println("done")
}

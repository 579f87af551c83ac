// A journey of kafkajs: `node kafkajs.js HOST:PORT` prints what it did, a line each; the first failure ends it with 1.
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, Partitioners, logLevel } = require("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const kafka = new Kafka({ clientId: "kafkajs", brokers: [process.argv[2]], logLevel: logLevel.ERROR });
const options = { createPartitioner: Partitioners.DefaultPartitioner };
const topic = "from-kafkajs";
const codecs = [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy];

function say(what, value) {
  console.log(what, value);
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  say("created", await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true }));
  await admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] });
  const entries = [{ name: "retention.ms", value: "1000000" }];
  await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: entries }] });
  const described = await admin.describeConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] }],
  });
  say("configured", described.resources[0].configEntries[0].configValue);

  const message = (value) => ({ key: "k", value, partition: 0, headers: { h: "1" } });
  let written = 0;
  for (const acks of [0, 1, -1]) {
    const producer = kafka.producer({ ...options, idempotent: acks === -1 });
    await producer.connect();
    for (const compression of codecs) {
      await producer.send({ topic, acks, compression, messages: [message(`${acks} ${compression}`.padEnd(300))] });
      written += 1;
    }
    await producer.disconnect();
  }
  const writer = kafka.producer({ ...options, transactionalId: "kafkajs", idempotent: true, maxInFlightRequests: 1 });
  await writer.connect();
  const committed = await writer.transaction();
  await committed.send({ topic, messages: [message("committed")] });
  await committed.sendOffsets({
    consumerGroupId: "kafkajs-offsets",
    topics: [{ topic, partitions: [{ partition: 0, offset: "2" }] }],
  });
  await committed.commit();
  const aborted = await writer.transaction();
  await aborted.send({ topic, messages: [message("aborted")] });
  await aborted.abort();
  const last = await writer.transaction();
  await last.send({ topic, messages: [message("last")] });
  await last.commit();
  await writer.disconnect();
  say("written", written + 2);

  const consumer = kafka.consumer({ groupId: "kafkajs", readUncommitted: false, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer
      .run({
        eachMessage: async ({ message: found }) => {
          values.push(found.value.toString());
          if (values.at(-1) === "last") resolve();
        },
      })
      .catch(reject);
  });
  say("group", (await admin.describeGroups(["kafkajs"])).groups[0].state);
  await consumer.disconnect();
  say("read", values.length);
  say("aborted", values.includes("aborted"));

  say("offsets", (await admin.fetchOffsets({ groupId: "kafkajs-offsets", topics: [topic] }))[0].partitions[0].offset);
  await admin.setOffsets({ groupId: "kafkajs", topic, partitions: [{ partition: 0, offset: "3" }] });
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "3" }] });
  const ends = (await admin.fetchTopicOffsets(topic)).find((each) => each.partition === 0);
  say("ends", `${ends.low} ${ends.high}`);
  await admin.deleteGroups(["kafkajs", "kafkajs-offsets"]);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
}

main().then(
  () => say("done", true),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

// kafkajs against a broker: node probe.js BOOTSTRAP SCENARIO [ARGUMENT ...].
// Prints one line of JSON, {"scenario": ..., "ok": true, ...} or {"ok": false, "error": ...}; ends with 0 or 1.
const assert = require('node:assert')
const fs = require('node:fs')
const { createRequire } = require('node:module')
// The package is installed in a cache folder, not beside this file.
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } =
  createRequire(process.env.PROBE_MODULES + '/')('kafkajs')

const PARTITIONS = 3
const unique = (prefix) => `${prefix}-${process.hrtime.bigint().toString(36)}`
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(what, holds) {
  const deadline = Date.now() + 20000
  while (!(await holds())) {
    assert(Date.now() < deadline, `not within 20 s: ${what}`)
    await sleep(20)
  }
}

async function withAdmin(kafka, work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

async function newTopic(kafka, prefix) {
  const topic = unique(prefix)
  const topics = [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }]
  await withAdmin(kafka, async (admin) => {
    await admin.createTopics({ topics, waitForLeaders: true })
    await admin.fetchTopicOffsets(topic) // a leader may be known before it serves: this asks until it does
  })
  return topic
}

function record(i) {
  const value = i % 17 === 0 ? null : i % 13 === 0 ? '' : `value ${i} `.repeat(1 + (i % 9))
  const headers = { number: String(i), ...(i % 3 === 0 ? { empty: '', other: 'é' } : {}) }
  return { partition: i % PARTITIONS, key: i % 10 === 9 ? null : `key ${i % 100}`, value, headers }
}

const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString())

function check(partition, message) {
  const i = Number(message.headers.number.toString())
  const sent = record(i)
  assert.strictEqual(partition, sent.partition)
  assert.strictEqual(text(message.key), sent.key, `key of record ${i}`)
  assert.strictEqual(text(message.value), sent.value, `value of record ${i}`)
  const headers = Object.fromEntries(Object.entries(message.headers).map(([k, v]) => [k, v.toString()]))
  assert.deepStrictEqual(headers, sent.headers, `headers of record ${i}`)
  return i
}

async function produce(kafka, topic, count, { acks = -1, compression = CompressionTypes.None, idempotent = false } = {}) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  for (let from = 0; from < count; from += 2000) {
    const messages = Array.from({ length: Math.min(2000, count - from) }, (_, k) => record(from + k))
    await producer.send({ topic, acks, compression, messages })
  }
  await producer.disconnect()
}

const memberOptions = (groupId) => ({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 200 })

async function verify(kafka, topic, count) {
  const consumer = kafka.consumer(memberOptions(unique('node-roundtrip')))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const last = Array(PARTITIONS).fill(-1)
  let total = 0
  let failure = null
  await consumer.run({
    eachBatch: async ({ batch }) => {
      try {
        for (const message of batch.messages) {
          const i = check(batch.partition, message)
          assert(i > last[batch.partition], `record ${i} after ${last[batch.partition]}`)
          last[batch.partition] = i
          total += 1
        }
      } catch (error) {
        failure = failure || error
      }
    },
  })
  await until(`${count} records`, async () => failure || total >= count)
  await consumer.disconnect()
  if (failure) throw failure
  assert.strictEqual(total, count)
}

async function roundtrip(kafka, codec, count) {
  const compression = codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None
  for (const acks of [0, 1, -1]) {
    const topic = await newTopic(kafka, 'node-roundtrip')
    await produce(kafka, topic, Number(count), { acks, compression, idempotent: false })
    await verify(kafka, topic, Number(count))
  }
  const topic = await newTopic(kafka, 'node-idempotent')
  await produce(kafka, topic, Number(count), { compression, idempotent: true })
  await verify(kafka, topic, Number(count))
  return { records: 4 * Number(count) }
}

async function startMember(kafka, groupId, topic, seen) {
  const consumer = kafka.consumer(memberOptions(groupId))
  const member = { consumer, owned: 0 }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.owned = (payload.memberAssignment[topic] || []).length
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ partition, message }) => void seen.add(`${partition}/${message.offset}`) })
  return member
}

async function group(kafka) {
  const topic = await newTopic(kafka, 'node-group')
  const groupId = unique('node-group')
  const seen = new Set()
  await produce(kafka, topic, 3000)
  const one = await startMember(kafka, groupId, topic, seen)
  await until('one member has all', async () => one.owned === PARTITIONS)
  const two = await startMember(kafka, groupId, topic, seen)
  await until('two members share', async () => one.owned + two.owned === PARTITIONS && two.owned > 0 && one.owned > 0)
  await two.consumer.disconnect()
  await until('the first has all again', async () => one.owned === PARTITIONS)
  await until('all is read', async () => seen.size === 3000)
  await withAdmin(kafka, async (admin) => {
    const described = (await admin.describeGroups([groupId])).groups[0]
    assert.strictEqual(described.state, 'Stable')
    assert.strictEqual(described.members.length, 1)
    await one.consumer.disconnect()
    const [offsets] = await admin.fetchOffsets({ groupId, topics: [topic] })
    const sum = offsets.partitions.reduce((n, p) => n + Number(p.offset), 0)
    assert.strictEqual(sum, 3000, `committed ${JSON.stringify(offsets)}`)
    await admin.deleteGroups([groupId])
    assert(!(await admin.listGroups()).groups.some((g) => g.groupId === groupId), 'the group is still listed')
  })
  return { records: 3000 }
}

async function admin(kafka) {
  const topic = unique('node-admin')
  await withAdmin(kafka, async (client) => {
    const entry = { topic, numPartitions: 1, replicationFactor: 1 }
    assert.strictEqual(await client.createTopics({ topics: [entry], waitForLeaders: true }), true)
    assert.strictEqual(await client.createTopics({ topics: [entry] }), false)
    await client.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS }] })
    await until('three partitions', async () => {
      const found = await client.fetchTopicMetadata({ topics: [topic] })
      return found.topics[0].partitions.length === PARTITIONS
    })
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const { resources } = await client.describeConfigs({ includeSynonyms: false, resources: [resource] })
    assert(resources[0].configEntries.some((c) => c.configName === 'retention.ms'), 'no retention.ms')
    await produce(kafka, topic, 300)
    const ends = await client.fetchTopicOffsets(topic)
    assert.deepStrictEqual(ends.map((p) => p.high).sort(), ['100', '100', '100'])
    assert((await client.describeCluster()).brokers.length > 0)
    await client.deleteTopics({ topics: [topic] })
    await until('the topic is gone', async () => !(await client.listTopics()).includes(topic))
  })
  return { parts: 5 }
}

/** Commits, aborts, offsets in a transaction; only what was committed is read. */
async function transactions(kafka) {
  const topic = await newTopic(kafka, 'node-transactions')
  const producer = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  const wanted = []
  for (let number = 1; number <= 6; number++) {
    const transaction = await producer.transaction()
    const value = `number ${number}`
    await transaction.send({ topic, messages: [{ partition: 0, value }] })
    const offsets = [{ topic, partitions: [{ partition: 0, offset: String(number) }] }]
    await transaction.sendOffsets({ consumerGroupId: topic, topics: offsets })
    if (number % 2 === 0) {
      await transaction.commit()
      wanted.push(value)
    } else {
      await transaction.abort()
    }
    const [committed] = await withAdmin(kafka, (admin) => admin.fetchOffsets({ groupId: topic, topics: [topic] }))
    const offset = Number(committed.partitions.find((one) => one.partition === 0).offset)
    assert.strictEqual(Math.max(0, offset), number - (number % 2))
  }
  await producer.disconnect()
  const consumer = kafka.consumer(memberOptions(unique('node-transactions')))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const found = []
  await consumer.run({ eachMessage: async ({ message }) => void found.push(text(message.value)) })
  await until('all that was committed', async () => found.length >= wanted.length)
  await consumer.disconnect()
  assert.deepStrictEqual(found, wanted)
  return { committed: wanted.length }
}

/** The argument is a file with a JSON list of ways to log in. One record there and back by each. */
async function logins(_, file) {
  const rows = JSON.parse(fs.readFileSync(file, 'utf8'))
  for (const row of rows) {
    try {
      await thereAndBack(row)
    } catch (error) {
      throw new Error(`${row.name}: ${error.stack}`)
    }
  }
  return { logins: rows.length }
}

async function thereAndBack(row) {
  const read = (name) => (row[name] ? fs.readFileSync(row[name]) : undefined)
  const ssl = { ca: [read('ca')], cert: read('cert'), key: read('key') }
  let sasl
  if (row.mechanism === 'OAUTHBEARER') {
    sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: row.token }) }
  } else if (row.mechanism) {
    sasl = { mechanism: row.mechanism.toLowerCase(), username: row.user, password: row.password }
  }
  const brokers = [row.bootstrap]
  const kafka = new Kafka({ clientId: 'probe', brokers, ssl, sasl, logLevel: logLevel.NOTHING })
  const value = unique('login')
  const producer = kafka.producer()
  await producer.connect()
  const [{ baseOffset }] = await producer.send({ topic: row.topic, messages: [{ partition: 0, value }] })
  await producer.disconnect()
  const consumer = kafka.consumer(memberOptions(unique('login')))
  await consumer.connect()
  await consumer.subscribe({ topics: [row.topic], fromBeginning: true })
  let found = false
  await consumer.run({
    eachMessage: async ({ message }) => {
      found = found || (message.offset === baseOffset && message.value.toString() === value)
    },
  })
  await until('the record comes back', async () => found)
  await consumer.disconnect()
}

const scenarios = { roundtrip, group, admin, transactions, logins }

async function main() {
  const [bootstrap, scenario, ...rest] = process.argv.slice(2)
  if (!scenarios[scenario]) {
    console.error(`usage: node probe.js BOOTSTRAP SCENARIO ...; scenarios: ${Object.keys(scenarios)}`)
    process.exit(2)
  }
  const kafka = new Kafka({ clientId: 'probe', brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const said = await scenarios[scenario](kafka, ...rest).then(
    (found) => ({ ok: true, ...found }),
    (error) => ({ ok: false, error: String(error && error.stack ? error.stack : error) }),
  )
  console.log(JSON.stringify({ scenario, ...said }))
  process.exit(said.ok ? 0 : 1)
}

main()

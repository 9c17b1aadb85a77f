// kafkajs: node probe.js BOOTSTRAP write TOPIC COUNT CODECS | read TOPIC COUNT. Prints one line of JSON.
const { createRequire } = require('node:module')
const { Kafka, CompressionTypes, logLevel } = createRequire(process.env.PROBE_MODULES + '/')('kafkajs')

const TIMEOUT_MS = 30000
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString())

async function write(kafka, topic, count, names) {
  const written = []
  const producer = kafka.producer()
  await producer.connect()
  for (const name of names) {
    const who = `kafkajs ${name}`
    const messages = []
    for (let i = 0; i < count; i++) {
      const key = i % 7 === 0 ? null : `key-${i}`
      const value = i % 11 === 3 && key ? null : `${who}/${i}`
      messages.push({ key, value, partition: 0 })
      written.push([who, key, value])
    }
    await producer.send({ topic, messages, compression: codecs[name], acks: -1 })
  }
  await producer.disconnect()
  return { written }
}

async function read(kafka, topic, count) {
  const rows = []
  const consumer = kafka.consumer({ groupId: `kafkajs-${topic}`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${rows.length} of ${count} records`)), TIMEOUT_MS)
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        rows.push([Number(message.offset), Number(message.timestamp), text(message.key), text(message.value)])
        if (rows.length === count) {
          clearTimeout(timer)
          resolve()
        }
      },
    })
  })
  await consumer.disconnect()
  return { found: { kafkajs: rows } }
}

async function main([bootstrap, operation, topic, count, names]) {
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING })
  return operation === 'write'
    ? write(kafka, topic, Number(count), names.split(','))
    : read(kafka, topic, Number(count))
}

main(process.argv.slice(2)).then(
  (found) => {
    console.log(JSON.stringify({ ok: true, ...found }))
    process.exit(0)
  },
  (error) => {
    console.log(JSON.stringify({ ok: false, error: String(error.stack || error) }))
    process.exit(1)
  },
)

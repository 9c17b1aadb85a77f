//! Rust's client rskafka against a broker: probe BOOTSTRAP rskafka. Prints one line of JSON.
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const COUNT: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let outcome = match arguments[2].as_str() {
        "rskafka" => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(rskafka_all(&arguments[1])),
        other => Err(format!("no client {other}").into()),
    };
    let error = outcome.as_ref().err().map(|e| format!("{e:?}")).unwrap_or_default();
    println!("{{\"ok\": {}, \"error\": {:?}}}", outcome.is_ok(), error.replace('"', "'"));
    std::process::exit(if outcome.is_ok() { 0 } else { 1 });
}

fn require(holds: bool, otherwise: String) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

fn value(number: usize) -> Vec<u8> {
    format!("value {number}").into_bytes()
}

/// rskafka: creates a topic, writes with each codec, reads, deletes records and the topic.
async fn rskafka_all(bootstrap: &str) -> Outcome {
    use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let topic = format!("rskafka-{nanoseconds}");
    let client = rskafka::client::ClientBuilder::new(vec![bootstrap.to_owned()]).build().await?;
    let controller = client.controller_client()?;
    controller.create_topic(&topic, 1, 1, 30_000).await?;
    let partition = client.partition_client(&topic, 0, UnknownTopicHandling::Retry).await?;
    let codecs = [
        Compression::NoCompression, Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd,
    ];
    for (index, codec) in codecs.into_iter().enumerate() {
        let records = (0..COUNT)
            .map(|number| rskafka::record::Record {
                key: (number % 7 != 0).then(|| b"key".to_vec()),
                value: Some(value(index * COUNT + number)),
                headers: BTreeMap::from([("header".to_owned(), b"h".to_vec())]),
                timestamp: chrono::DateTime::from_timestamp_millis(1_700_000_000_000 + number as i64).unwrap(),
            })
            .collect();
        let offsets = partition.produce(records, codec).await?;
        require(offsets[0] == (index * COUNT) as i64, format!("offsets {offsets:?}"))?;
    }
    let total = codecs.len() * COUNT;
    let mut found = Vec::new();
    while found.len() < total {
        let next = found.len() as i64;
        let (records, _) = partition.fetch_records(next, 1..1_000_000, 1_000).await?;
        found.extend(records.into_iter().filter(|one| one.offset >= next).map(|one| one.record));
    }
    for (number, record) in found.iter().enumerate() {
        require(record.value == Some(value(number)), format!("record {number}: {record:?}"))?;
    }
    require(partition.get_offset(OffsetAt::Latest).await? == total as i64, "latest".into())?;
    partition.delete_records(5, 30_000).await?;
    require(partition.get_offset(OffsetAt::Earliest).await? == 5, "earliest".into())?;
    controller.delete_topic(&topic, 30_000).await?;
    Ok(())
}

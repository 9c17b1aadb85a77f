--@test: the quickstart: riders near Mountain View
CREATE STREAM riderLocations (profileId VARCHAR, latitude DOUBLE, longitude DOUBLE)
  WITH (kafka_topic='locations', value_format='json', partitions=1);
CREATE TABLE currentLocation AS
  SELECT profileId,
         LATEST_BY_OFFSET(latitude) AS la,
         LATEST_BY_OFFSET(longitude) AS lo
  FROM riderlocations
  GROUP BY profileId
  EMIT CHANGES;
CREATE TABLE ridersNearMountainView AS
  SELECT ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1) AS distanceInMiles,
         COLLECT_LIST(profileId) AS riders,
         COUNT(*) AS count
  FROM currentLocation
  GROUP BY ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('c2309eec', 37.7877, -122.4205);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('18f4ea86', 37.3903, -122.0643);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('4ab5cbad', 37.3952, -122.0813);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('8b6eae59', 37.3944, -122.0813);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('4a7c7b41', 37.4049, -122.0822);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('4ddad000', 37.7857, -122.4011);
ASSERT VALUES ridersNearMountainView (distanceInMiles, riders, count) VALUES (50.0, ARRAY['c2309eec'], 1);
ASSERT VALUES ridersNearMountainView (distanceInMiles, riders, count) VALUES (10.0, ARRAY['18f4ea86'], 1);
ASSERT VALUES ridersNearMountainView (distanceInMiles, riders, count) VALUES (0.0, ARRAY['4ab5cbad'], 1);
ASSERT VALUES ridersNearMountainView (distanceInMiles, riders, count) VALUES (0.0, ARRAY['4ab5cbad', '8b6eae59'], 2);
ASSERT VALUES ridersNearMountainView (distanceInMiles, riders, count) VALUES (0.0, ARRAY['4a7c7b41', '4ab5cbad', '8b6eae59'], 3);
ASSERT VALUES ridersNearMountainView (distanceInMiles, riders, count) VALUES (50.0, ARRAY['4ddad000', 'c2309eec'], 2);

--@test: the tutorial of the materialized view: calls for support
CREATE STREAM calls (name VARCHAR, reason VARCHAR, duration_seconds INT) WITH (kafka_topic='calls', value_format='json');
CREATE TABLE support_view AS
    SELECT name,
           count_distinct(reason) AS distinct_reasons,
           latest_by_offset(reason) AS last_reason
    FROM calls
    GROUP BY name
    EMIT CHANGES;
CREATE TABLE lifetime_view AS
    SELECT name,
           count(reason) AS total_calls,
           (sum(duration_seconds) / 60) as minutes_engaged
    FROM calls
    GROUP BY name
    EMIT CHANGES;
INSERT INTO calls (name, reason, duration_seconds) VALUES ('derek', 'purchase', 540);
INSERT INTO calls (name, reason, duration_seconds) VALUES ('derek', 'help', 224);
ASSERT VALUES support_view (name, distinct_reasons, last_reason) VALUES ('derek', 1, 'purchase');
ASSERT VALUES support_view (name, distinct_reasons, last_reason) VALUES ('derek', 2, 'help');
ASSERT VALUES lifetime_view (name, total_calls, minutes_engaged) VALUES ('derek', 1, 9);
ASSERT VALUES lifetime_view (name, total_calls, minutes_engaged) VALUES ('derek', 2, 12);

--@test: the tutorial of events: transactions that look like fraud
CREATE STREAM transactions (
    tx_id VARCHAR KEY,
    email_address VARCHAR,
    card_number VARCHAR,
    timestamp VARCHAR,
    amount DECIMAL(12, 2)
) WITH (
    kafka_topic = 'transactions',
    partitions = 8,
    value_format = 'avro',
    timestamp = 'timestamp',
    timestamp_format = 'yyyy-MM-dd''T''HH:mm:ss'
);
CREATE TABLE possible_anomalies WITH (
    kafka_topic = 'possible_anomalies',
    VALUE_AVRO_SCHEMA_FULL_NAME = 'io.ksqldb.tutorial.PossibleAnomaly'
)   AS
    SELECT card_number AS `card_number_key`,
           as_value(card_number) AS `card_number`,
           latest_by_offset(email_address) AS `email_address`,
           count(*) AS `n_attempts`,
           sum(amount) AS `total_amount`,
           collect_list(tx_id) AS `tx_ids`,
           WINDOWSTART as `start_boundary`,
           WINDOWEND as `end_boundary`
    FROM transactions
    WINDOW TUMBLING (SIZE 30 SECONDS, RETENTION 1000 DAYS)
    GROUP BY card_number
    HAVING count(*) >= 3
    EMIT CHANGES;
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('michael@example.com', '358579699410099', 'f88c5ebb-699c-4a7b-b544-45b30681cc39', '2020-04-22T03:19:58', 50.25);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('derek@example.com', '352642227248344', '0cf100ca-993c-427f-9ea5-e892ef350363', '2020-04-22T12:50:30', 18.97);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('colin@example.com', '373913272311617', 'de9831c0-7cf1-4ebf-881d-0415edec0d6b', '2020-04-22T09:45:15', 12.50);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('michael@example.com', '358579699410099', '044530c0-b15d-4648-8f05-940acc321eb7', '2020-04-22T03:19:54', 103.43);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('derek@example.com', '352642227248344', '5d916e65-1af3-4142-9fd3-302dd55c512f', '2020-04-22T12:50:25', 3200.80);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('derek@example.com', '352642227248344', 'd7d47fdb-75e9-46c0-93f6-d42ff1432eea', '2020-04-22T12:51:55', 154.32);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('michael@example.com', '358579699410099', 'c5719d20-8d4a-47d4-8cd3-52ed784c89dc', '2020-04-22T03:19:32', 78.73);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('colin@example.com', '373913272311617', '2360d53e-3fad-4e9a-b306-b166b7ca4f64', '2020-04-22T09:45:35', 234.65);
INSERT INTO transactions (email_address, card_number, tx_id, timestamp, amount)
VALUES ('colin@example.com', '373913272311617', 'de9831c0-7cf1-4ebf-881d-0415edec0d6b', '2020-04-22T09:44:03', 150.00);
ASSERT NULL VALUES possible_anomalies (`card_number_key`) KEY ('358579699410099');
ASSERT NULL VALUES possible_anomalies (`card_number_key`) KEY ('352642227248344');
ASSERT NULL VALUES possible_anomalies (`card_number_key`) KEY ('373913272311617');
ASSERT NULL VALUES possible_anomalies (`card_number_key`) KEY ('358579699410099');
ASSERT NULL VALUES possible_anomalies (`card_number_key`) KEY ('352642227248344');
ASSERT NULL VALUES possible_anomalies (`card_number_key`) KEY ('352642227248344');
ASSERT VALUES possible_anomalies (`card_number_key`, `card_number`, `email_address`, `n_attempts`, `total_amount`, `tx_ids`,
    WINDOWSTART, `start_boundary`, `end_boundary`)
  VALUES ('358579699410099', '358579699410099', 'michael@example.com', 3, 232.41,
    ARRAY['f88c5ebb-699c-4a7b-b544-45b30681cc39', '044530c0-b15d-4648-8f05-940acc321eb7',
          'c5719d20-8d4a-47d4-8cd3-52ed784c89dc'], 1587525570000, 1587525570000, 1587525600000);

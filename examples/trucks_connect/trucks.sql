SET 'auto.offset.reset'='earliest';

CREATE STREAM truck_position_s (ts VARCHAR, truckId VARCHAR, driverId BIGINT, routeId BIGINT, eventType VARCHAR,
  latitude DOUBLE, longitude DOUBLE, correlationId VARCHAR)
  WITH (kafka_topic='truck_position', value_format='DELIMITED');

CREATE STREAM dangerous_driving_s WITH (kafka_topic='dangerous_driving_s', value_format='JSON')
  AS SELECT * FROM truck_position_s WHERE eventType != 'Normal' EMIT CHANGES;

CREATE TABLE driver_t (id BIGINT PRIMARY KEY, name VARCHAR, last_update BIGINT)
  WITH (kafka_topic='truckng_driver', key_format='JSON', value_format='JSON');

CREATE STREAM dangerous_driving_and_driver_s
  WITH (kafka_topic='dangerous_driving_and_driver_s', value_format='JSON')
  AS SELECT driverId, name, truckId, routeId, eventType
  FROM dangerous_driving_s LEFT JOIN driver_t ON dangerous_driving_s.driverId = driver_t.id EMIT CHANGES;

--@test: a stream, asserted
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');
CREATE STREAM o AS SELECT id, v * 2 AS v FROM s EMIT CHANGES;
INSERT INTO s (id, v, ROWTIME) VALUES (1, 5, 1234);
INSERT INTO s (id, v) VALUES (2, 1 + 2);
ASSERT VALUES o (id, v, ROWTIME) VALUES (1, 10, 1234);
ASSERT VALUES o (id, v) VALUES (2, 6);
ASSERT STREAM o (id INT KEY, v INT) WITH (kafka_topic='O', value_format='JSON');

--@test: a table with a delete
CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON');
CREATE TABLE o AS SELECT id, v FROM t WHERE v > 1;
INSERT INTO t (id, v) VALUES (1, 5);
INSERT INTO t (id, v) VALUES (1, 0);
ASSERT VALUES o (id, v) VALUES (1, 5);
ASSERT NULL VALUES o (id) KEY (1);
ASSERT TABLE o (id INT PRIMARY KEY, v INT) WITH (kafka_topic='O');

--@test: windows, asserted
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');
CREATE TABLE o AS SELECT id, COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY id;
INSERT INTO s (id, v, ROWTIME) VALUES (1, 5, 12000);
ASSERT VALUES o (id, c, WINDOWSTART, WINDOWEND) VALUES (1, 1, 10000, 20000);

--@test: a row that is not as asserted
--@expected.error: AssertionError
--@expected.message: row 1 is {"V": 10}, not {"V": 11}
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');
CREATE STREAM o AS SELECT id, v * 2 AS v FROM s;
INSERT INTO s (id, v) VALUES (1, 5);
ASSERT VALUES o (id, v) VALUES (1, 11);

--@test: rows that are missing
--@expected.message: there are 0 rows only
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');
ASSERT VALUES s (id, v) VALUES (1, 11);

--@test: a stream that is declared in another way
--@expected.message: its columns are ID INTEGER KEY, V INTEGER, not ID INTEGER KEY, V BIGINT
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');
ASSERT STREAM s (id INT KEY, v BIGINT);

--@test: values may be expressions, and are converted
CREATE STREAM s (id INT KEY, d DOUBLE, m DECIMAL(4, 2), t TIMESTAMP, e DATE, b BYTES, l ARRAY<INT>, u STRUCT<a INT>, p MAP<STRING, INT>)
  WITH (kafka_topic='s', value_format='JSON');
INSERT INTO s VALUES (1, 2, 1.5, '2021-01-01T00:00:00', '2021-01-02', 'IQ==', ARRAY[1, 2], STRUCT(a := 3), MAP('k' := 4));
ASSERT VALUES s VALUES (1, 4 / 2, CAST('1.5' AS DECIMAL(4, 2)), 1609459200000, 18629, TO_BYTES('21', 'hex'), ARRAY[1, 2], STRUCT(a := 3), MAP('k' := 4));

/* Load through librdkafka, so that what a real client reaches stands beside the raw sockets of load.c.
 *
 *   rdload LIBRARY produce BOOTSTRAP TOPIC RECORD_BYTES WARMUP_S SECONDS [name=value ...]
 *   rdload LIBRARY consume BOOTSTRAP TOPIC RECORDS                       [name=value ...]
 *
 * LIBRARY is the librdkafka that the confluent-kafka wheel ships: the same code that Python users run, without
 * Python in the way. It comes without headers, so the few functions used are declared here (its ABI is stable).
 * Partition 0 only. Prints one line of JSON.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { int err; void *rkt; int32_t partition; void *payload; size_t len; void *key; size_t key_len;
                 int64_t offset; void *private_; } message_t;
enum { PRODUCER = 0, CONSUMER = 1, MSG_F_NONE = 0, PARTITION_EOF = -191 };

static void *library;
static uint64_t delivered, failed, payload_bytes;
static int64_t next_offset, gaps;
static int measuring;

static void die(const char *what, const char *detail) {
    printf("{\"failed\": \"%s: %s\"}\n", what, detail);
    exit(1);
}

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (!found) die("no such function", name);
    return found;
}

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_delivery(void *client, const message_t *message, void *opaque) {
    (void)client; (void)opaque;
    if (message->err) failed++;
    else if (measuring) { delivered++; payload_bytes += message->len; }
}

static void on_message(message_t *message, void *opaque) {
    (void)opaque;
    if (message->err) { if (message->err != PARTITION_EOF) failed++; return; }
    if (message->offset != next_offset) gaps++;
    next_offset = message->offset + 1;
    delivered++;
    payload_bytes += message->len;
}

static void *open_client(int type, const char *bootstrap, int options, char **option) {
    void *(*conf_new)(void) = function("rd_kafka_conf_new");
    int (*conf_set)(void *, const char *, const char *, char *, size_t) = function("rd_kafka_conf_set");
    void *(*client_new)(int, void *, char *, size_t) = function("rd_kafka_new");
    void (*on_dr)(void *, void (*)(void *, const message_t *, void *)) = function("rd_kafka_conf_set_dr_msg_cb");
    char error[512] = "";
    void *conf = conf_new();
    if (conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error)) die("bootstrap.servers", error);
    for (int i = 0; i < options; i++) {
        char *value = strchr(option[i], '=');
        if (!value) die("not name=value", option[i]);
        *value++ = 0;
        if (conf_set(conf, option[i], value, error, sizeof error)) die(option[i], error);
    }
    if (type == PRODUCER) on_dr(conf, on_delivery);
    void *client = client_new(type, conf, error, sizeof error);
    if (!client) die("client", error);
    return client;
}

static double produce(void *client, void *topic, size_t record_bytes, double warmup, double seconds) {
    int (*send)(void *, int32_t, int, void *, size_t, const void *, size_t, void *) = function("rd_kafka_produce");
    int (*poll)(void *, int) = function("rd_kafka_poll");
    int (*flush)(void *, int) = function("rd_kafka_flush");
    uint8_t *noise = malloc(record_bytes + 4096);
    for (size_t i = 0; i < record_bytes + 4096; i++) noise[i] = (uint8_t)rand();
    double start = now_seconds(), from = start + warmup, until = from + seconds, now = start;
    for (uint64_t i = 0; (now = now_seconds()) < until;) {
        if (!measuring && now >= from) { measuring = 1; from = now; }
        for (int k = 0; k < 200; k++, i++)
            if (send(topic, 0, MSG_F_NONE, noise + i % 4096, record_bytes, NULL, 0, NULL)) { poll(client, 1); break; }
        poll(client, 0);
    }
    measuring = 0;
    flush(client, 10000);
    return now - from;
}

static double consume(void *topic, uint64_t records) {
    int (*start)(void *, int32_t, int64_t) = function("rd_kafka_consume_start");
    int (*stop)(void *, int32_t) = function("rd_kafka_consume_stop");
    int (*take)(void *, int32_t, int, void (*)(message_t *, void *), void *) = function("rd_kafka_consume_callback");
    double began = now_seconds(), first = 0;
    if (start(topic, 0, 0)) die("consume", "cannot start");
    while (delivered < records && now_seconds() < began + 60) {
        take(topic, 0, 100, on_message, NULL);
        if (!first && delivered) first = now_seconds();
    }
    double seconds = now_seconds() - first;
    stop(topic, 0);
    return seconds;
}

int main(int argc, char **argv) {
    int producing = argc >= 8 && !strcmp(argv[2], "produce");
    if (!producing && (argc < 6 || strcmp(argv[2], "consume"))) {
        fputs("usage: rdload LIBRARY produce BOOTSTRAP TOPIC RECORD_BYTES WARMUP_S SECONDS [name=value ...]\n"
              "       rdload LIBRARY consume BOOTSTRAP TOPIC RECORDS [name=value ...]\n", stderr);
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW);
    if (!library) die("librdkafka", dlerror());
    int options_at = producing ? 8 : 6;
    void *client = open_client(producing ? PRODUCER : CONSUMER, argv[3], argc - options_at, argv + options_at);
    void *(*topic_new)(void *, const char *, void *) = function("rd_kafka_topic_new");
    void *topic = topic_new(client, argv[4], NULL);
    double seconds = producing ? produce(client, topic, (size_t)atoi(argv[5]), atof(argv[6]), atof(argv[7]))
                               : consume(topic, strtoull(argv[5], NULL, 10));
    printf("{\"seconds\": %.4f, \"records\": %llu, \"bytes\": %llu, \"errors\": %llu, \"gaps\": %lld}\n", seconds,
           (unsigned long long)delivered, (unsigned long long)payload_bytes, (unsigned long long)failed, (long long)gaps);
    fflush(stdout);
    _exit(0);
}

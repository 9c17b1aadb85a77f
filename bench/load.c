/* Load generator: pre-built Kafka requests over raw non-blocking sockets, one thread, epoll.
 *
 *   load run HOST PORT key=value ...       drive a broker, print one line of JSON
 *   load sink PORT FETCH_RESPONSE_FILE     a server that does nothing, to find the generator's own ceiling
 *
 * keys of `run`:
 *   produce=FILE fetch=FILE   request templates, each a complete frame (4-byte length first), one after the other;
 *                             connection i uses template i modulo their number
 *   connections=N in_flight=K requests outstanding per connection (a fetch connection always has one)
 *   warmup=S seconds=S        only answers that arrive inside the `seconds` after the warm-up are counted
 *   max_bytes=B               end the measured time early after B bytes (0: never)
 *   requests=N                send exactly N requests per connection, then end (preloading; 0: by time)
 *   rate=R                    open loop: R produce requests a second over all connections (0: as fast as answered)
 *   end=OFFSET                fetch connections start again at offset 0 when they reach OFFSET (0: tail the log)
 *   partitions=N              each request goes to another of N partitions, all connections in turn (0: as the template says)
 *
 * Nothing in a template is rebuilt: the correlation id and, in a fetch, the offset are patched in place. Every answer
 * is checked: correlation id, error codes and, in a fetch, that batch follows batch without a gap. With produce= and
 * fetch= together (rate > 0, one partition, a fresh topic) the latency is end to end: a record's offset is its number.
 *
 * Layouts: Produce v7 and Fetch v11, one topic and one partition per request (see requests.py).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { RING = 1 << 14, SMALL_BYTES = 8192, COPIES_BYTES = 1 << 16, IN_BYTES = 1 << 21, CORRELATION_AT = 8 };
/* A fetch's offset stands this far before the frame's end: offset 8, log start 8, max bytes 4, forgotten 4, rack 2. */
enum { FETCH_OFFSET_FROM_END = 26, FETCH_PARTITION_FROM_END = 34, API_FETCH = 1 };

static void die(const char *what, const char *detail) {
    printf("{\"failed\": \"%s: %s\"}\n", what, detail);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint16_t get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return be16toh(v); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }
static uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return be64toh(v); }
static void put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, 4); }
static void put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, 8); }

/* Latency histogram: 64 steps in each power of two of microseconds, so at most 1.6 % wide. */
enum { STEPS = 64, BUCKETS = 40 * STEPS };
static uint64_t histogram[BUCKETS], histogram_count;

static void note_latency(uint64_t ns) {
    uint64_t us = ns / 1000;
    int index = us < STEPS ? (int)us : 0;
    if (us >= STEPS) {
        int power = 63 - __builtin_clzll(us);
        index = (power - 5) * STEPS + (int)((us >> (power - 6)) & (STEPS - 1));
    }
    histogram[index < BUCKETS ? index : BUCKETS - 1]++;
    histogram_count++;
}

static double percentile_us(double fraction) {
    uint64_t want = (uint64_t)(fraction * (double)histogram_count), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > want || (seen == histogram_count && seen))
            return i < STEPS ? i : (double)((uint64_t)(STEPS + i % STEPS) << (i / STEPS - 1));
    }
    return 0;
}

struct connection {
    int fd, is_fetch, wants_out;
    uint8_t *out;              /* `copies` templates one after the other */
    size_t frame_bytes, copies, out_pos, out_end;
    uint8_t *in;
    size_t in_capacity, in_pos, in_end;
    uint32_t next_correlation, answered;
    uint64_t sent_ns[RING];    /* by correlation id modulo RING */
    int64_t *next_offsets;     /* by partition; of one alone where the template says which */
    uint32_t number, partition_at;
    uint64_t batch_bytes;      /* bytes of record batch in one produce request */
};

static struct { int in_flight; uint64_t requests; double warmup, seconds; uint64_t max_bytes; double rate; int64_t end; uint32_t partitions; } want =
    {1, 0, 0.2, 1.0, 0, 0, 0, 0};
static struct { uint64_t requests, bytes, records, errors, empty; int first_error; } seen;
static int connection_count, epoll_fd, measuring, stopping, is_end_to_end;
static uint64_t *sent_by_offset, sent_by_offset_capacity, produced;

static void send_some(struct connection *c);

static void watch(struct connection *c, int wants_out) {
    if (c->wants_out == wants_out) return;
    struct epoll_event event = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
    c->wants_out = wants_out;
}

/* Which partition the request of a correlation id is about. */
static uint32_t partition_of(struct connection *c, uint32_t correlation) {
    return want.partitions ? (uint32_t)((c->number + (uint64_t)correlation * (uint64_t)connection_count) % want.partitions) : 0;
}

/* Fill the output with as many requests as may be outstanding; `allowed` bounds them when a rate is kept. */
static int queue_requests(struct connection *c, uint64_t allowed) {
    uint64_t outstanding = c->next_correlation - c->answered;
    uint64_t limit = want.rate > 0 && !c->is_fetch ? RING - 1 : (uint64_t)(c->is_fetch ? 1 : want.in_flight);
    uint64_t n = outstanding < limit ? limit - outstanding : 0;
    if (n > c->copies) n = c->copies;
    if (n > allowed) n = allowed;
    if (want.requests && !c->is_fetch && n > want.requests - c->next_correlation) n = want.requests - c->next_correlation;
    if (!n || stopping) return 0;
    uint64_t now = now_ns();
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *frame = c->out + i * c->frame_bytes;
        put32(frame + CORRELATION_AT, c->next_correlation);
        uint32_t partition = partition_of(c, c->next_correlation);
        if (want.partitions) put32(frame + c->partition_at, partition);
        if (c->is_fetch) put64(frame + c->frame_bytes - FETCH_OFFSET_FROM_END, (uint64_t)c->next_offsets[partition]);
        else if (is_end_to_end && produced < sent_by_offset_capacity) sent_by_offset[produced++] = now;
        c->sent_ns[c->next_correlation++ % RING] = now;
    }
    c->out_pos = 0;
    c->out_end = n * c->frame_bytes;
    return (int)n;
}

static void send_some(struct connection *c) {
    while (1) {
        if (c->out_pos == c->out_end && (want.rate > 0 && !c->is_fetch ? 1 : !queue_requests(c, UINT64_MAX))) break;
        ssize_t n = send(c->fd, c->out + c->out_pos, c->out_end - c->out_pos, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) { watch(c, 1); return; }
            die("send", strerror(errno));
        }
        c->out_pos += (size_t)n;
        /* A rate is kept by the timer, which queues; here only what is queued leaves. */
        if (want.rate > 0 && !c->is_fetch && c->out_pos == c->out_end) break;
    }
    watch(c, 0);
}

static void count_error(int code) {
    seen.errors++;
    if (!seen.first_error) seen.first_error = code;
}

static void take_produce(struct connection *c, const uint8_t *body) {
    const uint8_t *p = body + 4;               /* one topic */
    p += 2 + get16(p) + 4 + 4;                 /* name, one partition, its index */
    int16_t code = (int16_t)get16(p);
    if (code) { count_error(code); return; }
    if (!measuring) return;
    seen.requests++;
    seen.bytes += c->batch_bytes;
}

/* Walk the batches of a fetch answer; a batch cut off by the size limit is left for the next request. */
static void take_batches(struct connection *c, const uint8_t *p, size_t bytes, uint64_t now) {
    const uint8_t *end = p + bytes;
    int64_t *next_offset = &c->next_offsets[partition_of(c, c->answered - 1)];
    int progressed = 0;
    while (end - p >= 61) {
        size_t batch = 12 + get32(p + 8);
        if ((size_t)(end - p) < batch) break;
        int64_t base = (int64_t)get64(p), last = base + get32(p + 23);
        if (p[16] != 2) die("fetch", "a batch whose magic is not 2");
        if (last >= *next_offset) {
            if (base > *next_offset) die("fetch", "a gap between batches");
            if (measuring) { seen.records += (uint64_t)(last - *next_offset + 1); seen.bytes += batch; }
            for (int64_t o = *next_offset; is_end_to_end && measuring && o <= last; o++)
                if ((uint64_t)o < produced) note_latency(now - sent_by_offset[o]);
            *next_offset = last + 1;
            progressed = 1;
        }
        p += batch;
    }
    if (!progressed) seen.empty++;
    if (want.end && *next_offset >= want.end) *next_offset = 0;
}

static void take_fetch(struct connection *c, const uint8_t *body, uint64_t now) {
    int16_t code = (int16_t)get16(body + 4);   /* after throttle time */
    const uint8_t *p = body + 10;              /* session id */
    uint32_t topics = get32(p);
    if (code || !topics) { if (code) count_error(code); else seen.empty++; return; }
    p += 4;
    p += 2 + get16(p) + 4 + 4;
    code = (int16_t)get16(p);
    if (code) { count_error(code); return; }
    p += 2 + 24;                               /* high watermark, last stable offset, log start offset */
    int32_t aborted = (int32_t)get32(p);
    p += 4 + (aborted > 0 ? aborted * 16 : 0) + 4;
    int32_t bytes = (int32_t)get32(p);
    if (measuring) seen.requests++;
    if (bytes > 0) take_batches(c, p + 4, (size_t)bytes, now); else seen.empty++;
}

static void take_frames(struct connection *c, uint64_t now) {
    while (c->in_end - c->in_pos >= 4) {
        size_t bytes = 4 + (size_t)get32(c->in + c->in_pos);
        if (c->in_end - c->in_pos < bytes) {
            if (c->in_pos + bytes > c->in_capacity) {      /* make room for the whole frame at the buffer's start */
                if (bytes > c->in_capacity) {
                    uint8_t *bigger = malloc(bytes + IN_BYTES);
                    memcpy(bigger, c->in + c->in_pos, c->in_end - c->in_pos);
                    free(c->in);
                    c->in = bigger;
                    c->in_capacity = bytes + IN_BYTES;
                } else memmove(c->in, c->in + c->in_pos, c->in_end - c->in_pos);
                c->in_end -= c->in_pos;
                c->in_pos = 0;
            }
            return;
        }
        const uint8_t *frame = c->in + c->in_pos;
        if (get32(frame + 4) != c->answered) die("answer", "a correlation id out of order");
        if (measuring && !is_end_to_end) note_latency(now - c->sent_ns[c->answered % RING]);
        c->answered++;
        if (c->is_fetch) take_fetch(c, frame + 8, now); else take_produce(c, frame + 8);
        c->in_pos += bytes;
    }
    if (c->in_pos == c->in_end) c->in_pos = c->in_end = 0;
    else if (c->in_capacity - c->in_end < 4096) {
        memmove(c->in, c->in + c->in_pos, c->in_end - c->in_pos);
        c->in_end -= c->in_pos;
        c->in_pos = 0;
    }
}

static void receive_some(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->in_end, c->in_capacity - c->in_end, 0);
    if (n == 0) die("receive", "the broker closed the connection");
    if (n < 0) {
        if (errno == EAGAIN) return;
        die("receive", strerror(errno));
    }
    c->in_end += (size_t)n;
    take_frames(c, now_ns());
    if (c->out_pos == c->out_end) send_some(c);
}

static int dial(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static uint8_t *read_file(const char *path, size_t *bytes) {
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status)) die(path, strerror(errno));
    uint8_t *data = malloc((size_t)status.st_size);
    for (*bytes = 0; *bytes < (size_t)status.st_size;) {
        ssize_t n = read(fd, data + *bytes, (size_t)status.st_size - *bytes);
        if (n <= 0) die(path, "cannot be read");
        *bytes += (size_t)n;
    }
    close(fd);
    return data;
}

static uint32_t produced_partition_at(const uint8_t *frame) {
    const uint8_t *p = frame + 12;
    p += 2 + get16(p);                         /* client id */
    p += 2 + 2 + 4 + 4;                        /* no transactional id, acks, timeout, one topic */
    p += 2 + get16(p) + 4;                     /* name, one partition */
    return (uint32_t)(p - frame);
}

static size_t produced_batch_bytes(const uint8_t *frame) { return get32(frame + produced_partition_at(frame) + 4); }

static struct connection *open_connections(const char *host, int port, const char *path, int is_fetch, int count) {
    size_t bytes;
    uint8_t *templates = read_file(path, &bytes);
    struct connection *all = calloc((size_t)count, sizeof *all);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        struct connection *c = &all[i];
        if (at >= bytes) at = 0;
        c->frame_bytes = 4 + get32(templates + at);
        c->copies = c->frame_bytes <= SMALL_BYTES ? COPIES_BYTES / c->frame_bytes : 1;
        c->out = malloc(c->copies * c->frame_bytes);
        for (size_t k = 0; k < c->copies; k++) memcpy(c->out + k * c->frame_bytes, templates + at, c->frame_bytes);
        at += c->frame_bytes;
        c->is_fetch = is_fetch;
        if (!is_fetch) c->batch_bytes = produced_batch_bytes(c->out);
        c->number = (uint32_t)i;
        c->partition_at = is_fetch ? (uint32_t)c->frame_bytes - FETCH_PARTITION_FROM_END : produced_partition_at(c->out);
        c->next_offsets = calloc(want.partitions ? want.partitions : 1, sizeof *c->next_offsets);
        c->in_capacity = is_fetch ? IN_BYTES : 1 << 18;
        c->in = malloc(c->in_capacity);
        c->fd = dial(host, port);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
    }
    free(templates);
    return all;
}

static int open_timer(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    long step_ns = (long)(1e9 / want.rate);
    struct itimerspec every = {{step_ns / 1000000000, step_ns % 1000000000}, {step_ns / 1000000000, step_ns % 1000000000}};
    timerfd_settime(fd, 0, &every, NULL);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    return fd;
}

static int all_answered(struct connection *all, int count, int only_when_done) {
    for (int i = 0; i < count; i++) {
        if (all[i].next_correlation != all[i].answered) return 0;
        if (only_when_done && all[i].next_correlation != want.requests) return 0;
    }
    return 1;
}

static void on_timer(int timer, struct connection *producers, int count, unsigned *turn) {
    uint64_t ticks = 0;
    if (read(timer, &ticks, sizeof ticks) != sizeof ticks) return;
    for (; ticks; ticks--) {
        struct connection *c = &producers[(*turn)++ % (unsigned)count];
        if (c->out_pos == c->out_end && queue_requests(c, 1)) send_some(c);
    }
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int run(int argc, char **argv) {
    const char *host = argv[2], *produce = NULL, *fetch = NULL;
    int port = atoi(argv[3]), connections = 1;
    for (int i = 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) die("not key=value", argv[i]);
        *value++ = 0;
        if (!strcmp(argv[i], "produce")) produce = value;
        else if (!strcmp(argv[i], "fetch")) fetch = value;
        else if (!strcmp(argv[i], "connections")) connections = atoi(value);
        else if (!strcmp(argv[i], "in_flight")) want.in_flight = atoi(value);
        else if (!strcmp(argv[i], "warmup")) want.warmup = atof(value);
        else if (!strcmp(argv[i], "seconds")) want.seconds = atof(value);
        else if (!strcmp(argv[i], "max_bytes")) want.max_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "requests")) want.requests = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "rate")) want.rate = atof(value);
        else if (!strcmp(argv[i], "end")) want.end = atoll(value);
        else if (!strcmp(argv[i], "partitions")) want.partitions = (uint32_t)strtoul(value, NULL, 10);
        else die("unknown key", argv[i]);
    }
    connection_count = connections;
    epoll_fd = epoll_create1(0);
    is_end_to_end = produce && fetch;
    sent_by_offset_capacity = is_end_to_end ? (uint64_t)(want.rate * (want.warmup + want.seconds) * 2) + 1000 : 0;
    sent_by_offset = calloc(sent_by_offset_capacity + 1, sizeof *sent_by_offset);
    struct connection *consumers = fetch ? open_connections(host, port, fetch, 1, connections) : NULL;
    struct connection *producers = produce ? open_connections(host, port, produce, 0, connections) : NULL;
    int timer = want.rate > 0 ? open_timer() : -1;
    unsigned turn = 0;
    uint64_t start = now_ns(), from = start + (uint64_t)(want.warmup * 1e9), until = from + (uint64_t)(want.seconds * 1e9);
    double cpu_start = 0, cpu_used = 0;
    uint64_t stopped = 0;
    if (want.requests) { measuring = 1; from = start; until = start + 600000000000ull; cpu_start = cpu_seconds(); }
    for (int i = 0; i < connections; i++) {
        if (consumers) send_some(&consumers[i]);
        if (producers && !(want.rate > 0)) send_some(&producers[i]);
    }
    struct epoll_event events[64];
    while (1) {
        uint64_t now = now_ns();
        if (!measuring && !stopping && now >= from) { measuring = 1; from = now; cpu_start = cpu_seconds(); }
        int enough = now >= until || (want.max_bytes && seen.bytes >= want.max_bytes)
                     || (want.requests && producers && all_answered(producers, connections, 1));
        if (measuring && enough) { measuring = 0; stopping = 1; stopped = now; cpu_used = cpu_seconds() - cpu_start; }
        /* Let what is outstanding be answered, so that no request is cut off; a long poll need not end. */
        if (stopping && (now > stopped + 5000000000ull || !producers || all_answered(producers, connections, 0))) break;
        if (seen.empty > 200000) die("fetch", "only empty answers: the log ends before end=");
        int n = epoll_wait(epoll_fd, events, 64, 10);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) { on_timer(timer, producers, connections, &turn); continue; }
            if (events[i].events & EPOLLOUT) send_some(c);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive_some(c);
        }
    }
    double seconds = (double)(stopped - from) / 1e9;
    printf("{\"seconds\": %.4f, \"requests\": %llu, \"bytes\": %llu, \"records\": %llu, \"errors\": %llu, \"first_error\": %d, "
           "\"empty\": %llu, \"latencies\": %llu, \"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f, \"max_us\": %.0f, "
           "\"load_busy\": %.3f}\n",
           seconds, (unsigned long long)seen.requests, (unsigned long long)seen.bytes, (unsigned long long)seen.records,
           (unsigned long long)seen.errors, seen.first_error, (unsigned long long)seen.empty,
           (unsigned long long)histogram_count, percentile_us(0.5), percentile_us(0.99), percentile_us(0.999),
           percentile_us(1.0), seconds > 0 ? cpu_used / seconds : 0.0);
    return 0;
}

/* ---- the sink: reads frames, answers each with a prepared success, does nothing else ---- */

struct peer { int fd; uint8_t *in; size_t end; const uint8_t *out; size_t out_pos, out_end; uint8_t *answer; size_t skip; int waits; };
enum { PEER_BYTES = 1 << 18 };

static size_t produce_answer(uint8_t *to, uint32_t correlation) {
    static const uint8_t body[] = {0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                   255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    put32(to, 4 + sizeof body);
    put32(to + 4, correlation);
    memcpy(to + 8, body, sizeof body);
    return 8 + sizeof body;
}

static void peer_flush(struct peer *p) {
    int waits = 0;
    while (p->out_pos < p->out_end && !waits) {
        ssize_t n = send(p->fd, p->out + p->out_pos, p->out_end - p->out_pos, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return;
        if (n < 0) waits = 1; else p->out_pos += (size_t)n;
    }
    if (waits != p->waits) {
        struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = p};
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, p->fd, &event);
        p->waits = waits;
    }
    if (!waits) p->out_pos = p->out_end = 0;
}

/* fetched: a whole Fetch v11 answer with one batch; its records field is found once by its known place. */
static void peer_read(struct peer *p, const uint8_t *fetched, size_t fetched_bytes, size_t offset_at) {
    ssize_t n = recv(p->fd, p->in + p->end, PEER_BYTES - p->end, 0);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) close(p->fd);
        return;
    }
    p->end += (size_t)n;
    size_t pos = 0, made = p->out_end;
    while (1) {
        size_t have = p->end - pos;
        if (p->skip) {
            size_t step = have < p->skip ? have : p->skip;
            p->skip -= step;
            pos += step;
            have -= step;
            if (p->skip) break;
        }
        if (have < 12) break;
        size_t bytes = 4 + (size_t)get32(p->in + pos);
        uint32_t correlation = get32(p->in + pos + CORRELATION_AT);
        if (get16(p->in + pos + 4) == API_FETCH) {
            if (have < bytes) break;
            memcpy(p->answer, fetched, offset_at + 8);
            put32(p->answer + 4, correlation);
            memcpy(p->answer + offset_at, p->in + pos + bytes - FETCH_OFFSET_FROM_END, 8);
            made = fetched_bytes;
            pos += bytes;
        } else {
            made += produce_answer(p->answer + made, correlation);
            p->skip = bytes;
        }
    }
    memmove(p->in, p->in + pos, p->end - pos);
    p->end -= pos;
    p->out = p->answer;
    p->out_end = made;
    if (made) peer_flush(p);
}

static _Noreturn void sink(int port, const char *path) {
    size_t fetched_bytes;
    uint8_t *fetched = read_file(path, &fetched_bytes);
    size_t offset_at = fetched_bytes;
    for (size_t i = 8; i + 61 < fetched_bytes; i++)        /* the records field: its length reaches to the end */
        if (get32(fetched + i) == fetched_bytes - i - 4) { offset_at = i + 4; break; }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) die("listen", strerror(errno));
    epoll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[64];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    puts("ready");
    fflush(stdout);
    while (1) {
        int n = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;
            if (p) {
                if (events[i].events & EPOLLOUT) peer_flush(p);
                if (events[i].events & ~(uint32_t)EPOLLOUT) peer_read(p, fetched, fetched_bytes, offset_at);
                continue;
            }
            p = calloc(1, sizeof *p);
            p->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            p->in = malloc(PEER_BYTES);
            p->answer = malloc(fetched_bytes + PEER_BYTES);
            memcpy(p->answer, fetched, fetched_bytes);
            event = (struct epoll_event){.events = EPOLLIN, .data.ptr = p};
            epoll_ctl(epoll_fd, EPOLL_CTL_ADD, p->fd, &event);
        }
    }
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "sink")) sink(atoi(argv[2]), argv[3]);
    if (argc >= 5 && !strcmp(argv[1], "run")) return run(argc, argv);
    fputs("usage: load run HOST PORT key=value ... | load sink PORT FETCH_RESPONSE_FILE\n", stderr);
    return 2;
}

package barnabas.feeds;

import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * The source of one streaming query. Its rows are ranges of offsets, one for each task, as JSON.
 *
 * <p>What is read next is planned in Python, in the process that started the query (feeds.py). A query for which nothing
 * has arrived sleeps here until Python rings.
 */
public class Feed implements MicroBatchStream, SupportsTriggerAvailableNow {
  private static final ExecutorService ASKING =
      Executors.newCachedThreadPool(
          new ThreadFactory() {
            public Thread newThread(Runnable work) {
              Thread thread = new Thread(work, "barnabas-feed");
              thread.setDaemon(true);
              return thread;
            }
          });
  private static final String WAIT = "wait ";

  private final Function planner;
  private final ReadLimit limit;
  private final ArrayBlockingQueue rung = new ArrayBlockingQueue(1);

  /** planner: takes the name of a call and its arguments as lines. limit: of a micro-batch. */
  public Feed(Function planner, ReadLimit limit) {
    this.planner = planner;
    this.limit = limit;
  }

  /** The rows of a new query, which has this source. */
  public Dataset open(SparkSession spark) {
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    thread.setContextClassLoader(getClass().getClassLoader());
    Topics.OPENING.set(this);
    try {
      return spark.readStream().format("barnabas.feeds.Topics").load();
    } finally {
      Topics.OPENING.remove();
      thread.setContextClassLoader(before);
    }
  }

  /** To be called when there may be something new: records, or a reason to stop. */
  public void ring() {
    rung.offer(Boolean.TRUE);
  }

  public Offset latestOffset(Offset start, ReadLimit limit) {
    long rows = limit instanceof ReadMaxRows ? ((ReadMaxRows) limit).maxRows() : -1;
    String call = "latest\n" + rows + "\n" + start.json();
    boolean again = true;
    while (true) {
      rung.clear();
      String found = ask(call);
      if (!found.startsWith(WAIT)) return new Place(found);
      long ms = Long.parseLong(found.substring(WAIT.length()));
      try {
        if (!again || rung.poll(ms, TimeUnit.MILLISECONDS) == null) return start;
      } catch (InterruptedException e) {
        throw stopped();
      }
      again = false;
    }
  }

  public Offset latestOffset() {
    throw new UnsupportedOperationException();
  }

  public ReadLimit getDefaultReadLimit() {
    return limit;
  }

  public Offset reportLatestOffset() {
    String found = ask("newest");
    return found.isEmpty() ? null : new Place(found);
  }

  public void prepareForTriggerAvailableNow() {
    ask("prepare");
  }

  public Offset initialOffset() {
    return new Place(ask("initial"));
  }

  public Offset deserializeOffset(String json) {
    return new Place(json);
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    String found = ask("tasks\n" + start.json() + "\n" + end.json());
    if (found.isEmpty()) return new InputPartition[0];
    String[] lines = found.split("\n");
    InputPartition[] tasks = new InputPartition[lines.length];
    for (int i = 0; i < lines.length; i++) tasks[i] = new Ranges(lines[i]);
    return tasks;
  }

  public PartitionReaderFactory createReaderFactory() {
    return new RangesReaderFactory();
  }

  public void commit(Offset end) {
    ask("commit\n" + end.json());
  }

  public void stop() {
    ask("stop");
  }

  public String toString() {
    return "barnabas";
  }

  /** Python's answer. It is awaited in a way that can be interrupted: a broker may not answer Python for a minute. */
  private String ask(final String call) {
    Future answer =
        ASKING.submit(
            new Callable() {
              public Object call() {
                return planner.apply(call);
              }
            });
    try {
      return (String) answer.get();
    } catch (InterruptedException e) {
      throw stopped();
    } catch (ExecutionException e) {
      throw new RuntimeException(e.getCause().getMessage(), e.getCause());
    }
  }

  private static RuntimeException stopped() {
    return new UncheckedIOException(new InterruptedIOException("the query is stopped"));
  }
}

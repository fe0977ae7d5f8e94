import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * CleanTimed MAP_BYTES IO_BUFFER_BYTES: the counterpart of clean_timed.py. Each line of standard input names a partition directory;
 * one Cleaner, kept from line to line as in a broker's cleaner thread, cleans it in place. Answers with a line of JSON: the seconds
 * and counts that Kafka's own statistics report (what LogCleaner logs as "Cleaned log ...").
 */
public class CleanTimed {
    public static void main(String[] a) throws Exception {
        int map = Integer.parseInt(a[0]), io = Integer.parseInt(a[1]);
        Properties conf = new Properties();
        conf.put("cleanup.policy", "compact");
        LogConfig config = new LogConfig(conf);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(map), io, Math.max(io, config.maxMessageSize()), 0.9,
            new Throttler(Double.MAX_VALUE, 300, "bench", "bytes", Time.SYSTEM), Time.SYSTEM, tp -> { });
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            UnifiedLog log = UnifiedLog.create(new File(line), config, 0, 0, scheduler, new BrokerTopicStats(false), Time.SYSTEM,
                900000, new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true, Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            long now = System.currentTimeMillis();
            var range = LogCleanerManager.cleanableOffsets(log, Optional.empty(), now);
            LogToClean what = new LogToClean(log, range.firstDirtyOffset(), range.firstUncleanableDirtyOffset(), false);
            CleanerStats stats = cleaner.doClean(what, now).getValue();
            log.close();
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("cleanable_bytes", what.cleanableBytes());
            answer.put("seconds", stats.elapsedSecs());
            answer.put("map_seconds", stats.elapsedIndexSecs());
            answer.put("messages_read", stats.messagesRead());
            answer.put("messages_written", stats.messagesWritten());
            System.out.println(json.writeValueAsString(answer));
        }
        System.exit(0);
    }
}

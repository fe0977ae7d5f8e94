import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;

/**
 * CompactMany: rounds of the kit's Compact, many directories in one JVM. Standard input holds one JSON object a line: rounds, each
 * with source, out, now, logStart, hw, roll, unclean, mapBytes, ioBuffer, loadFactor, set, firstDirty (-1: none, -2: where the round
 * before ended). Standard output gets the list of their results; one that fails is {"error": text} and the last.
 */
public class CompactMany {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] a) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            List<Map<String, Object>> results = new ArrayList<>();
            long before = -1;
            for (JsonNode round : JSON.readTree(line).get("rounds")) {
                try {
                    Map<String, Object> result = compact(round, before);
                    before = ((Number) result.get("endOffset")).longValue();
                    results.add(result);
                } catch (Throwable e) {
                    results.add(Map.of("error", e.toString()));
                    break;
                }
            }
            System.out.println(JSON.writeValueAsString(results));
        }
        if (a.length == 0) System.exit(0); // threads of the log are left; an argument: the JVM is somebody else's
    }

    static Map<String, Object> compact(JsonNode q, long before) throws Exception {
        Properties conf = new Properties();
        conf.put("cleanup.policy", "compact");
        JSON.convertValue(q.get("set"), Map.class).forEach((k, v) -> conf.put(k, v));
        long now = q.get("now").asLong(), asked = q.get("firstDirty").asLong();
        long first = asked == -2 ? before : asked;
        int io = q.get("ioBuffer").asInt();
        Load l = new Load(Path.of(q.get("source").asText()), Path.of(q.get("out").asText()), conf, !q.get("unclean").asBoolean(), 0,
            q.get("logStart").asLong(), q.get("hw").asLong(), now);
        if (q.get("roll").asBoolean()) l.log.roll();
        Map<String, Object> r = new LinkedHashMap<>();
        r.put("now", now);
        r.put("before", Load.state(l.log));
        var range = LogCleanerManager.cleanableOffsets(l.log, first < 0 ? Optional.empty() : Optional.of(first), now);
        LogToClean what = new LogToClean(l.log, range.firstDirtyOffset(), range.firstUncleanableDirtyOffset(), false);
        r.put("firstDirtyOffset", what.firstDirtyOffset());
        r.put("firstUncleanableOffset", what.firstUncleanableOffset());
        r.put("cleanBytes", what.cleanBytes());
        r.put("cleanableBytes", what.cleanableBytes());
        r.put("cleanableRatio", what.cleanableRatio());
        SkimpyOffsetMap m = new SkimpyOffsetMap(q.get("mapBytes").asInt());
        r.put("mapSlots", m.slots());
        Cleaner c = new Cleaner(0, m, io, Math.max(io, l.config.maxMessageSize()), q.get("loadFactor").asDouble(),
            new Throttler(Double.MAX_VALUE, 300, "oracle", "bytes", Time.SYSTEM), l.time, tp -> { });
        if (what.cleanableBytes() > 0) {
            Map.Entry<Long, CleanerStats> done = c.doClean(what, now);
            CleanerStats s = done.getValue();
            r.put("endOffset", done.getKey());
            r.put("mapMessagesRead", s.mapMessagesRead());
            r.put("messagesRead", s.messagesRead());
            r.put("messagesWritten", s.messagesWritten());
            r.put("invalidMessagesRead", s.invalidMessagesRead());
            r.put("bytesRead", s.bytesRead());
            r.put("bytesWritten", s.bytesWritten());
            r.put("mapSize", m.size());
        } else {
            r.put("endOffset", what.firstDirtyOffset());
            r.put("nothingToClean", true);
        }
        r.put("after", Load.state(l.log));
        l.close();
        r.put("files", Load.files(l.out));
        return r;
    }
}

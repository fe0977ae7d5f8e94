import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;

/**
 * LoadMany: the kit's Load, many times in one JVM. Standard input holds one JSON object a line with source, out, clean,
 * recoveryPoint, logStart, hw, now, deleteRecords, roll, retention and set; standard output gets the result of each, or {"error": text}.
 */
public class LoadMany {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] a) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            Map<String, Object> result;
            try {
                result = load(JSON.readTree(line));
            } catch (Exception e) {
                result = Map.of("error", e.toString());
            }
            System.out.println(JSON.writeValueAsString(result));
        }
        if (a.length == 0) System.exit(0); // threads of the log are left; an argument: the JVM is somebody else's
    }

    static Map<String, Object> load(JsonNode q) throws Exception {
        Properties conf = new Properties();
        JSON.convertValue(q.get("set"), Map.class).forEach((k, v) -> conf.put(k, v));
        Load load = new Load(Path.of(q.get("source").asText()), Path.of(q.get("out").asText()), conf, q.get("clean").asBoolean(),
            q.get("recoveryPoint").asLong(), q.get("logStart").asLong(), q.get("hw").asLong(), q.get("now").asLong());
        Map<String, Object> r = new LinkedHashMap<>();
        r.put("loaded", Load.state(load.log));
        long del = q.get("deleteRecords").asLong();
        boolean roll = q.get("roll").asBoolean();
        if (del >= 0) {
            r.put("deleteRecords", load.log.maybeIncrementLogStartOffset(del, LogStartOffsetIncrementReason.ClientRecordDeletion));
        }
        if (roll) load.log.roll();
        boolean retention = q.get("retention").asBoolean();
        if (retention) r.put("deletedSegments", load.log.deleteOldSegments());
        if (del >= 0 || roll || retention) r.put("after", Load.state(load.log));
        load.close();
        r.put("files", Load.files(load.out));
        return r;
    }
}

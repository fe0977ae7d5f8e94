import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/**
 * TextFiles: what Kafka and Java read in small text files. Standard input holds a line for each file: offsets, epochs,
 * properties or store, and the bytes in hexadecimal (store: key=value pairs, each half in hexadecimal of UTF-16BE).
 * Standard output gets "ok" and one word an entry, or "refused", the exception's class and its message, all in one line.
 */
public class TextFiles {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] a) throws Exception {
        Path directory = Files.createTempDirectory("text");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            try {
                String found = read(words, directory).toString();
                out.append("ok").append(found).append('\n');
            } catch (Exception | OutOfMemoryError e) { // of room for as many entries as the count line says
                Throwable cause = e.getCause() == null ? e : e.getCause();
                String message = String.valueOf(cause.getMessage()).replace(directory.toString(), "");
                out.append("refused ").append(cause.getClass().getSimpleName()).append(' ').append(text(message)).append('\n');
            }
        }
        System.out.print(out);
    }

    static StringBuilder read(String[] words, Path directory) throws Exception {
        StringBuilder found = new StringBuilder();
        if (words[0].equals("store")) {
            Properties properties = new Properties();
            for (int i = 1; i + 1 < words.length; i += 2) {
                properties.put(new String(HEX.parseHex(words[i]), StandardCharsets.UTF_16BE),
                    new String(HEX.parseHex(words[i + 1]), StandardCharsets.UTF_16BE));
            }
            var bytes = new java.io.ByteArrayOutputStream();
            properties.store(bytes, null);
            return found.append(' ').append(HEX.formatHex(bytes.toByteArray()));
        }
        byte[] data = HEX.parseHex(words[1]);
        if (words[0].equals("properties")) {
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(data));
            new TreeMap<>(properties).forEach((k, v) -> found.append(' ').append(text(k)).append('=').append(text(v)));
            return found;
        }
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        if (words[0].equals("offsets")) {
            Path file = Files.write(directory.resolve("offsets"), data);
            Map<TopicPartition, Long> offsets = new OffsetCheckpointFile(file.toFile(), failures).read();
            for (Map.Entry<TopicPartition, Long> e : offsets.entrySet()) {
                found.append(' ').append(text(e.getKey().topic())).append(':').append(e.getKey().partition()).append(':').append(e.getValue());
            }
        } else {
            Path file = Files.write(directory.resolve("epochs"), data);
            for (EpochEntry e : new LeaderEpochCheckpointFile(file.toFile(), failures).read()) {
                found.append(' ').append(e.epoch).append(':').append(e.startOffset);
            }
        }
        return found;
    }

    static String text(Object text) {
        return HEX.formatHex(text.toString().getBytes(StandardCharsets.UTF_16BE));
    }
}

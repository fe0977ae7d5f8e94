import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * OneJvm: the main methods of many programs in one JVM, one after another. Standard input holds one JSON object a line with class, arguments
 * and stdin; standard output gets stdout and stderr of each, and error, which is null when it returned. What they print is caught below
 * System.out, because Scala's Console keeps the first one that it saw.
 */
public class OneJvm {
    static final ObjectMapper JSON = new ObjectMapper();

    static final class Caught extends OutputStream {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int b) {
            bytes.write(b);
        }

        @Override
        public synchronized void write(byte[] b, int off, int len) {
            bytes.write(b, off, len);
        }

        synchronized String take() {
            String text = bytes.toString(StandardCharsets.UTF_8);
            bytes = new ByteArrayOutputStream();
            return text;
        }
    }

    public static void main(String[] a) throws Exception {
        PrintStream answers = System.out;
        Caught out = new Caught();
        Caught err = new Caught();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode q = JSON.readTree(line);
            String error = null;
            InputStream stdin = System.in;
            System.setIn(new ByteArrayInputStream(q.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            try {
                String[] arguments = JSON.convertValue(q.get("arguments"), String[].class);
                Class.forName(q.get("class").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (Throwable e) {
                error = String.valueOf(e.getCause() == null ? e : e.getCause());
            }
            System.setIn(stdin);
            System.out.flush();
            var answer = new java.util.HashMap<String, Object>(Map.of("stdout", out.take(), "stderr", err.take()));
            answer.put("error", error);
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.stream.Stream;

/** Produces three records and reads them again. Nothing but the JDK, 17 or later: java Example.java */
class Example {
    static final String LINES = """
        {"key": "alice", "value": {"drink": "tea", "cups": 1}}
        {"key": "bob", "value": {"drink": "coffee", "cups": 2}}
        {"key": "alice", "value": {"drink": "water", "cups": 3}}
        """;

    public static void main(String[] arguments) throws Exception {
        String url = System.getenv().getOrDefault("KAFKALOG_URL", "http://127.0.0.1:8082");
        String records = url + "/v1/topics/examples/records";
        HttpClient client = HttpClient.newHttpClient();

        // One record a line. The first one creates the topic; the answer comes when all are on the disk.
        var produce = HttpRequest.newBuilder(URI.create(records))
            .header("Content-Type", "application/x-ndjson")
            .POST(HttpRequest.BodyPublishers.ofString(LINES))
            .build();
        var appended = client.send(produce, BodyHandlers.ofString());
        System.out.println(appended.statusCode() + " " + appended.body());

        // A line for each record as it comes; the answer ends at the end of the log.
        var read = HttpRequest.newBuilder(URI.create(records + "?tail=3&fields=partition,offset,key,value"))
            .header("Accept", "application/x-ndjson")
            .build();
        try (Stream<String> lines = client.send(read, BodyHandlers.ofLines()).body()) {
            lines.forEach(System.out::println);
        }
    }
}

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;

/**
 * InJvmBroker: a broker of Kafka 1.1 to 4.1, its ZooKeeper where it needs one, and its clients, in one JVM. Each line of standard input is a
 * command, answered by lines that end with "ok", or with "error" and a reason:
 *
 *   zookeeper DIR | format PROPERTIES CLUSTER | start PROPERTIES | stop
 *   create TOPIC PARTITIONS | produce TOPIC PARTITION COUNT CODEC [transactional] | commit GROUP TOPIC OFFSET | consume TOPIC
 *
 * consume prints a line a record: partition, offset, timestamp, key, value, headers; bytes in base64, - for null.
 */
public class InJvmBroker {
    static String bootstrap;
    static Object broker;
    static int zookeeperPort;

    public static void main(String[] a) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String answer = "ok";
            try {
                run(line.split(" "), out);
            } catch (Throwable e) {
                Throwable cause = e instanceof InvocationTargetException ? e.getCause() : e;
                cause.printStackTrace();
                answer = "error " + String.valueOf(cause).replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
        System.exit(0);
    }

    static void run(String[] a, PrintStream out) throws Exception {
        switch (a[0]) {
            case "zookeeper": zookeeper(Paths.get(a[1])); break;
            case "format": format(a[1], a[2]); break;
            case "start": start(a[1]); break;
            case "stop": stop(); break;
            case "create": create(a[1], Integer.parseInt(a[2])); break;
            case "produce": produce(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]), a[4], a.length > 5); break;
            case "commit": commit(a[1], a[2], Long.parseLong(a[3])); break;
            case "consume": consume(a[1], out); break;
            default: throw new IllegalArgumentException(a[0]);
        }
    }

    // ---- servers, whose classes differ

    static void zookeeper(Path dir) throws Exception {
        Class<?> serverClass = Class.forName("org.apache.zookeeper.server.ZooKeeperServer");
        Object server = serverClass.getConstructor(java.io.File.class, java.io.File.class, int.class)
            .newInstance(Files.createDirectories(dir).toFile(), dir.toFile(), 2000);
        Class<?> factoryClass = Class.forName("org.apache.zookeeper.server.NIOServerCnxnFactory");
        Object factory = factoryClass.getConstructor().newInstance();
        factoryClass.getMethod("configure", InetSocketAddress.class, int.class)
            .invoke(factory, new InetSocketAddress("127.0.0.1", 0), 20);
        factoryClass.getMethod("startup", serverClass).invoke(factory, server);
        zookeeperPort = (Integer) factoryClass.getMethod("getLocalPort").invoke(factory);
    }

    static void format(String properties, String cluster) throws Exception {
        String[] arguments = {"format", "-t", cluster, "-c", properties};
        Method execute = Class.forName("kafka.tools.StorageTool").getMethod("execute", String[].class, PrintStream.class);
        Object status = execute.invoke(null, arguments, System.err);
        if (!Integer.valueOf(0).equals(status)) throw new IllegalStateException("StorageTool: " + status);
    }

    static void start(String file) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            properties.load(in);
        }
        String name = "kafka.server.KafkaRaftServer";
        if (zookeeperPort != 0) {
            name = "kafka.server.KafkaServer";
            properties.setProperty("zookeeper.connect", "127.0.0.1:" + zookeeperPort);
        }
        Object config = Class.forName("kafka.server.KafkaConfig").getMethod("fromProps", Properties.class).invoke(null, properties);
        Constructor<?> constructor = Class.forName(name).getConstructors()[0];
        List<Object> arguments = new ArrayList<>();
        for (Class<?> type : constructor.getParameterTypes()) {
            if (type.isInstance(config)) arguments.add(config);
            else if (type == Time.class) arguments.add(Time.SYSTEM);
            else if (type == boolean.class) arguments.add(false);
            else if (type.getName().equals("scala.Option")) arguments.add(type.getMethod("empty").invoke(null));
            else arguments.add(Class.forName("scala.collection.immutable.Nil$").getField("MODULE$").get(null));
        }
        broker = constructor.newInstance(arguments.toArray());
        bootstrap = properties.getProperty("listeners").split(",")[0].replace("PLAINTEXT://", "");
        broker.getClass().getMethod("startup").invoke(broker);
    }

    static void stop() throws Exception {
        broker.getClass().getMethod("shutdown").invoke(broker);
        broker.getClass().getMethod("awaitShutdown").invoke(broker);
    }

    // ---- clients

    static Properties client(String... pairs) {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) properties.setProperty(pairs[i], pairs[i + 1]);
        return properties;
    }

    static void create(String topic, int partitions) throws Exception {
        try (AdminClient admin = AdminClient.create(client())) {
            admin.createTopics(Collections.singleton(new NewTopic(topic, partitions, (short) 1))).all().get(60, TimeUnit.SECONDS);
        }
    }

    static void produce(String topic, int partition, int count, String codec, boolean transactional) throws Exception {
        Properties properties = client("compression.type", codec, "linger.ms", "5", "batch.size", "2000", "acks", "all");
        if (transactional) properties.setProperty("transactional.id", topic + partition);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (int i = 0; i < count; i++) {
                byte[] key = i % 7 == 0 ? null : ("key " + i % 5).getBytes(StandardCharsets.UTF_8);
                byte[] value = i % 11 == 10 ? null : (topic + " " + codec + " " + i).getBytes(StandardCharsets.UTF_8);
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, 1700000000000L + i * 1000L, key, value);
                if (i % 3 == 0) record.headers().add("h" + i, value);
                producer.send(record);
                if (i % 10 == 9) producer.flush();
            }
            producer.flush();
            if (transactional) producer.commitTransaction();
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(String... pairs) {
        return new KafkaConsumer<>(client(pairs), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void commit(String group, String topic, long offset) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group, "enable.auto.commit", "false")) {
            consumer.assign(Collections.singleton(new TopicPartition(topic, 0)));
            consumer.commitSync(Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(offset)));
        }
    }

    static void consume(String topic, PrintStream out) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", "read_uncommitted")) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo each : led(consumer, topic)) partitions.add(new TopicPartition(topic, each.partition()));
            partitions.sort(Comparator.comparingInt(TopicPartition::partition));
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            for (TopicPartition partition : partitions) {
                consumer.assign(Collections.singleton(partition));
                consumer.seekToBeginning(Collections.singleton(partition));
                while (consumer.position(partition) < ends.get(partition)) {
                    for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) print(record, out);
                }
            }
        }
    }

    /** With ZooKeeper a broker that has started learns of its partitions a little later. */
    static List<PartitionInfo> led(KafkaConsumer<byte[], byte[]> consumer, String topic) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            List<PartitionInfo> found = consumer.partitionsFor(topic);
            if (found != null && !found.isEmpty() && found.stream().allMatch(each -> each.leader() != null && !each.leader().isEmpty())) {
                return found;
            }
            if (System.nanoTime() > end) throw new IllegalStateException(topic + ": " + found);
            Thread.sleep(50);
        }
    }

    /** poll(long) went with 4.0, poll(Duration) came with 2.0. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        Method poll;
        Object bound = java.time.Duration.ofMillis(500);
        try {
            poll = KafkaConsumer.class.getMethod("poll", java.time.Duration.class);
        } catch (NoSuchMethodException e) {
            poll = KafkaConsumer.class.getMethod("poll", long.class);
            bound = 500L;
        }
        return (ConsumerRecords<byte[], byte[]>) poll.invoke(consumer, bound);
    }

    static void print(ConsumerRecord<byte[], byte[]> record, PrintStream out) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) headers.append(' ').append(header.key()).append('=').append(text(header.value()));
        out.println("record " + record.partition() + " " + record.offset() + " " + record.timestamp() + " " + text(record.key()) + " "
            + text(record.value()) + headers);
    }

    static String text(byte[] data) {
        return data == null ? "-" : "b" + Base64.getEncoder().encodeToString(data);
    }
}

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * GroupCommits BOOTSTRAP commit TOPIC PARTITIONS ROUNDS | list
 * commit: the groups GROUPS commit offsets of the topic's partitions, over and over: one by hand, one as a member that joins
 * and leaves, one in transactions of which every third is aborted, one that is deleted at the end (tombstones).
 * list: what each group has committed, one JSON object.
 */
public class GroupCommits {
    static final List<String> GROUPS = List.of("by-hand", "member", "transacted", "gone");
    static Properties base;

    public static void main(String[] a) throws Exception {
        base = new Properties();
        base.put("bootstrap.servers", a[0]);
        if (a[1].equals("commit")) commit(a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]));
        else list();
        System.exit(0);
    }

    static void commit(String topic, int partitions, int rounds) throws Exception {
        for (String group : List.of("by-hand", "gone")) {
            try (KafkaConsumer<byte[], byte[]> c = consumer(group)) {
                List<TopicPartition> all = new ArrayList<>();
                for (int p = 0; p < partitions; p++) all.add(new TopicPartition(topic, p));
                c.assign(all);
                for (int n = 1; n <= rounds; n++) c.commitSync(offsets(topic, partitions, n));
            }
        }
        for (int times = 0; times < 2; times++) {
            try (KafkaConsumer<byte[], byte[]> c = consumer("member")) {
                c.subscribe(List.of(topic));
                while (c.assignment().isEmpty()) c.poll(Duration.ofMillis(100));
                for (int n = 1; n <= rounds / 2; n++) c.commitSync(offsets(topic, partitions, times * rounds + n));
            }
        }
        Properties p = new Properties();
        p.putAll(base);
        p.put("transactional.id", "committer");
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> k = new KafkaProducer<>(p)) {
            k.initTransactions();
            for (int n = 1; n <= rounds; n++) {
                k.beginTransaction();
                k.sendOffsetsToTransaction(offsets(topic, partitions, n), new ConsumerGroupMetadata("transacted"));
                if (n % 3 == 0) k.abortTransaction();
                else k.commitTransaction();
            }
        }
        try (Admin admin = Admin.create(base)) {
            admin.deleteConsumerGroups(List.of("gone")).all().get();
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties p = new Properties();
        p.putAll(base);
        p.put("group.id", group);
        p.put("enable.auto.commit", "false");
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(p);
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(String topic, int partitions, int round) {
        Map<TopicPartition, OffsetAndMetadata> all = new HashMap<>();
        for (int p = 0; p < partitions; p++)
            all.put(new TopicPartition(topic, p), new OffsetAndMetadata(round * 1000L + p, "round " + round));
        return all;
    }

    static void list() throws Exception {
        Map<String, Map<String, String>> found = new TreeMap<>();
        try (Admin admin = Admin.create(base)) {
            for (String group : GROUPS) {
                Map<String, String> committed = new TreeMap<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                    .forEach((tp, o) -> committed.put(tp.toString(), o.offset() + " " + o.metadata()));
                found.put(group, committed);
            }
        }
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }
}

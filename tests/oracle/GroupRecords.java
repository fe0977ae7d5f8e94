import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.generated.LegacyOffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;

/**
 * GroupRecords encode GROUP TOPIC PARTITION OFFSET EPOCH METADATA COMMIT_MS EXPIRE_MS PARTITIONS
 *   prints, a line each: the group's partition; both key versions and all value versions in hex.
 * GroupRecords decode KEY_HEX VALUE_HEX
 *   prints the fields of an OffsetCommitKey and OffsetCommitValue as Kafka's classes read them.
 * GroupRecords commit BOOTSTRAP GROUP TOPIC PARTITION OFFSET METADATA
 *   commits through a running broker.
 * GroupRecords committed BOOTSTRAP GROUP
 *   prints what a running broker says the group has committed: topic-partition offset metadata.
 */
public class GroupRecords {
    public static void main(String[] a) throws Exception {
        switch (a[0]) {
            case "encode": encode(a); break;
            case "decode": decode(a); break;
            case "committed": committed(a); break;
            default: commit(a);
        }
    }

    static void encode(String[] a) {
        System.out.println(Utils.abs(a[1].hashCode()) % Integer.parseInt(a[9]));
        LegacyOffsetCommitKey legacy = new LegacyOffsetCommitKey().setGroup(a[1]).setTopic(a[2]).setPartition(Integer.parseInt(a[3]));
        OffsetCommitKey key = new OffsetCommitKey().setGroup(a[1]).setTopic(a[2]).setPartition(Integer.parseInt(a[3]));
        print(MessageUtil.toCoordinatorTypePrefixedByteBuffer(legacy).array());
        print(MessageUtil.toCoordinatorTypePrefixedByteBuffer(key).array());
        for (short version = 0; version <= OffsetCommitValue.HIGHEST_SUPPORTED_VERSION; version++) {
            OffsetCommitValue value = new OffsetCommitValue().setOffset(Long.parseLong(a[4])).setMetadata(a[6]).setCommitTimestamp(Long.parseLong(a[7]));
            if (version >= 3) value.setLeaderEpoch(Integer.parseInt(a[5]));
            if (version == 1) value.setExpireTimestamp(Long.parseLong(a[8]));
            if (version >= 4) value.setTopicId(new Uuid(1, 2));
            print(MessageUtil.toVersionPrefixedByteBuffer(version, value).array());
        }
    }

    static void decode(String[] a) {
        ByteBufferAccessor key = new ByteBufferAccessor(java.nio.ByteBuffer.wrap(java.util.HexFormat.of().parseHex(a[1])));
        ByteBufferAccessor value = new ByteBufferAccessor(java.nio.ByteBuffer.wrap(java.util.HexFormat.of().parseHex(a[2])));
        System.out.println(key.readShort() + " " + new OffsetCommitKey(key, (short) 0));
        short version = value.readShort();
        System.out.println(version + " " + new OffsetCommitValue(value, version));
    }

    static void commit(String[] a) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", a[1]);
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(new TopicPartition(a[3], Integer.parseInt(a[4])), new OffsetAndMetadata(Long.parseLong(a[5]), a[6]));
        try (Admin admin = Admin.create(p)) {
            admin.alterConsumerGroupOffsets(a[2], offsets).all().get();
        }
    }

    static void committed(String[] a) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", a[1]);
        try (Admin admin = Admin.create(p)) {
            admin.listConsumerGroupOffsets(a[2]).partitionsToOffsetAndMetadata().get().forEach((at, found) ->
                System.out.println(at + " " + found.offset() + " " + found.metadata()));
        }
    }

    static void print(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte one : bytes) hex.append(String.format("%02x", one));
        System.out.println(hex);
    }
}

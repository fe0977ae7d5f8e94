import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.BufferSupplier;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * OldFormats DIR: a log as brokers of Kafka 0.8 to 1.1 left it, written with the classes of Kafka 1.1: a segment for each message
 * format and codec, sets with CreateTime and LogAppendTime, and sets that its cleaner took records from. Prints what its reader
 * makes of each record: offset, timestamp, timestamp type of the set, key and value in base64.
 */
public class OldFormats {
    static final long NOW = 1_500_000_000_000L;
    static long offset = 0;

    public static void main(String[] a) throws Exception {
        Path dir = Path.of(a[0]);
        Files.createDirectories(dir);
        for (byte magic : new byte[] {0, 1}) {
            for (CompressionType codec : Arrays.asList(CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)) {
                List<MemoryRecords> sets = new ArrayList<>();
                sets.add(set(magic, codec, TimestampType.CREATE_TIME, 7, 20));
                sets.add(set(magic, codec, TimestampType.CREATE_TIME, 1, 0));
                if (magic == 1) sets.add(set(magic, codec, TimestampType.LOG_APPEND_TIME, 5, 20));
                sets.add(cleaned(set(magic, codec, TimestampType.CREATE_TIME, 9, 20)));
                sets.add(set(magic, codec, TimestampType.CREATE_TIME, 40, 5_000));
                write(dir, sets);
            }
        }
        // the upgrade, in the middle of a segment
        write(dir, Arrays.asList(
            set((byte) 1, CompressionType.GZIP, TimestampType.CREATE_TIME, 3, 20),
            set((byte) 2, CompressionType.GZIP, TimestampType.CREATE_TIME, 3, 20),
            set((byte) 2, CompressionType.NONE, TimestampType.LOG_APPEND_TIME, 3, 20)));
        write(dir, Arrays.asList(set((byte) 2, CompressionType.NONE, TimestampType.CREATE_TIME, 3, 20)));
        System.exit(0);
    }

    static MemoryRecords set(byte magic, CompressionType codec, TimestampType type, int count, int valueBytes) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), magic, codec, type, offset, NOW + offset);
        for (int i = 0; i < count; i++, offset++) {
            byte[] key = i % 3 == 2 ? null : ("key-" + offset).getBytes(StandardCharsets.UTF_8);
            byte[] value = new byte[valueBytes];
            for (int j = 0; j < valueBytes; j++) value[j] = (byte) (offset * 31 + j * j);
            long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : NOW - 1_000 * (i % 5) + offset;
            builder.appendWithOffset(offset, timestamp, key, i % 4 == 3 ? null : value);
        }
        return builder.build();
    }

    /** Without the first record, the last one and some between them, as compaction leaves a set. */
    static MemoryRecords cleaned(MemoryRecords records) {
        long last = offset - 1;
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter() {
            @Override
            protected BatchRetention checkBatchRetention(RecordBatch batch) {
                return BatchRetention.DELETE_EMPTY;
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return record.offset() % 3 == 1 && record.offset() != last;
            }
        };
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        records.filterTo(new TopicPartition("t", 0), filter, out, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        out.flip();
        return MemoryRecords.readableRecords(out);
    }

    static void write(Path dir, List<MemoryRecords> sets) throws Exception {
        long base = -1;
        ByteBuffer all = ByteBuffer.allocate(1 << 24);
        for (MemoryRecords records : sets) {
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    if (base < 0) base = record.offset();
                    System.out.println(record.offset() + " " + record.timestamp() + " " + batch.timestampType() + " "
                        + text(record.key()) + " " + text(record.value()));
                }
            }
            all.put(records.buffer().duplicate());
        }
        all.flip();
        byte[] bytes = new byte[all.remaining()];
        all.get(bytes);
        Files.write(dir.resolve(String.format("%020d.log", base)), bytes);
    }

    static String text(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}

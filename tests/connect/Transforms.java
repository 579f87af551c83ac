import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;

/** Reads cases (type, settings, key, value) as a JSON list and prints what Kafka Connect's own transforms make of them. */
public class Transforms {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<Object> answers = new ArrayList<>();
        for (Map<String, Object> one : json.readValue(System.in, Map[].class)) {
            answers.add(answer(one));
        }
        System.out.println(json.writeValueAsString(answers));
    }

    @SuppressWarnings("unchecked")
    static Object answer(Map<String, Object> one) {
        try {
            Class<?> kind = Class.forName("org.apache.kafka.connect.transforms." + one.get("type"));
            Transformation<SinkRecord> made = (Transformation<SinkRecord>) kind.getDeclaredConstructor().newInstance();
            made.configure((Map<String, ?>) one.get("settings"));
            SinkRecord given = new SinkRecord("topic-1", 2, null, one.get("key"), null, widened(one.get("value")), 7,
                1700000000123L, org.apache.kafka.common.record.TimestampType.CREATE_TIME);
            SinkRecord found = made.apply(given);
            if (found == null) {
                return "dropped";
            }
            Map<String, Object> answer = new TreeMap<>();
            answer.put("topic", found.topic());
            answer.put("key", found.key());
            answer.put("value", found.value());
            List<Object> headers = new ArrayList<>();
            for (Header header : found.headers()) {
                headers.add(List.of(header.key(), String.valueOf(header.value())));
            }
            answer.put("headers", headers);
            return answer;
        } catch (Exception problem) {
            return "error";
        }
    }

    /** Whole numbers are longs, as JsonConverter has them. */
    @SuppressWarnings("unchecked")
    static Object widened(Object value) {
        if (value instanceof Integer) {
            return ((Integer) value).longValue();
        }
        if (value instanceof Map) {
            Map<String, Object> made = new HashMap<>();
            ((Map<String, Object>) value).forEach((name, inner) -> made.put(name, widened(inner)));
            return made;
        }
        return value;
    }
}

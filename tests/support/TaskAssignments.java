// Apache Kafka's own sticky task assignor, asked case by case: one line in, one line out.
// In:  replicas;sub:tasks:stateful,...;member:process:active:standby,...   (tasks of a member as sub_n+sub_n, or -)
// Out: member=active|standby;...  in the order of the member ids, tasks sorted by subtopology and number.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.coordinator.group.streams.assignor.*;

public class TaskAssignments {
    record Sub(int tasks, boolean stateful) { }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(assign(line.split(";")));
        }
    }

    static String assign(String[] parts) {
        TreeMap<String, Sub> subs = new TreeMap<>();
        for (String each : parts[1].split(",")) {
            String[] words = each.split(":");
            subs.put(words[0], new Sub(Integer.parseInt(words[1]), words[2].equals("1")));
        }
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (String each : parts[2].split(",")) {
            String[] words = each.split(":");
            members.put(words[0], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(words[2]),
                tasks(words[3]), Map.of(), words[1], Map.of(), Map.of(), Map.of()));
        }
        TopologyDescriber topology = new TopologyDescriber() {
            public List<String> subtopologies() { return List.copyOf(subs.keySet()); }
            public int maxNumInputPartitions(String id) { return subs.get(id).tasks(); }
            public boolean isStateful(String id) { return subs.get(id).stateful(); }
        };
        Map<String, String> configs = Map.of("num.standby.replicas", parts[0]);
        GroupAssignment found = new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), topology);
        return new TreeMap<>(found.members()).entrySet().stream()
            .map(e -> e.getKey() + "=" + text(e.getValue().activeTasks()) + "|" + text(e.getValue().standbyTasks()))
            .collect(Collectors.joining(";"));
    }

    static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> found = new HashMap<>();
        for (String each : text.equals("-") ? new String[0] : text.split("\\+")) {
            String[] words = each.split("_");
            found.computeIfAbsent(words[0], x -> new HashSet<>()).add(Integer.parseInt(words[1]));
        }
        return found;
    }

    static String text(Map<String, Set<Integer>> tasks) {
        String text = new TreeMap<>(tasks).entrySet().stream()
            .flatMap(e -> new TreeSet<>(e.getValue()).stream().map(n -> e.getKey() + "_" + n))
            .collect(Collectors.joining("+"));
        return text.isEmpty() ? "-" : text;
    }
}

// Apache Kafka's own cache of fetch sessions, asked case by case: one line in, one line out.
// In:  slots;create,now,privileged,size;touch,now,session,size;remove,session;...   (a session by its number in the case)
// Out: for each step the sessions that are left, as numbers in order: 0+1+3;...

package org.apache.kafka.server;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.ImplicitLinkedHashCollection;

public class FetchSessionCases {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(said(line.split(";")));
        }
    }

    static String said(String[] steps) {
        FetchSessionCacheShard shard = new FetchSessionCacheShard(Integer.parseInt(steps[0]), 120_000, Integer.MAX_VALUE, 0);
        List<Integer> ids = new ArrayList<>();
        List<String> answers = new ArrayList<>();
        for (int i = 1; i < steps.length; i++) {
            String[] words = steps[i].split(",");
            switch (words[0]) {
                case "create" -> {
                    int size = Integer.parseInt(words[3]);
                    ids.add(shard.maybeCreateSession(Long.parseLong(words[1]), words[2].equals("1"), size, false, () -> partitions(size)));
                }
                case "touch" -> shard.get(ids.get(Integer.parseInt(words[2]))).ifPresent(session -> {
                    session.partitionMap().clear();
                    fill(session.partitionMap(), Integer.parseInt(words[3]));
                    shard.touch(session, Long.parseLong(words[1]));
                });
                default -> shard.remove(ids.get(Integer.parseInt(words[1])));
            }
            answers.add(java.util.stream.IntStream.range(0, ids.size()).filter(n -> shard.get(ids.get(n)).isPresent())
                .mapToObj(Integer::toString).collect(Collectors.joining("+")));
        }
        return String.join(";", answers);
    }

    static ImplicitLinkedHashCollection<FetchSession.CachedPartition> partitions(int count) {
        ImplicitLinkedHashCollection<FetchSession.CachedPartition> found = new ImplicitLinkedHashCollection<>(count);
        fill(found, count);
        return found;
    }

    static void fill(ImplicitLinkedHashCollection<FetchSession.CachedPartition> into, int count) {
        for (int i = 0; i < count; i++) into.mustAdd(new FetchSession.CachedPartition("t", Uuid.ZERO_UUID, i));
    }
}

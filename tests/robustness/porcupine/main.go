// Reads a recorded history and asks porcupine whether it can be linearized: `agree HISTORY.jsonl`.
//
// Two models. A partition is a log: an append adds a record at the end and returns its offset, a read returns the records
// from an offset on, and a settled read (all writers rest, all replicas are in sync) returns everything up to the end. A
// topic of transactions is a set: a commit adds a transaction, and a snapshot shows exactly the records of the
// transactions that were committed since the snapshot before, each of them whole and once.
//
// An outcome that nobody knows has no return: its operation may take effect at any later time, or after everything else.
// Three rules keep the search short and change no verdict. An append whose offset is unknown is placed where a read shows
// its value; without such a read it is placed where no read shows anything. A commit of unknown outcome takes effect before
// the first snapshot that shows its transaction. An operation of unknown outcome that no read shows takes no effect, and
// is left out. A transaction that nobody has asked to commit counts as aborted.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const nowhere = int64(-1)
const timeLimit = 120 * time.Second

type line struct {
	Event     string            `json:"event"`
	Op        string            `json:"op"`
	ID        string            `json:"id"`
	At        int64             `json:"at"`
	Topic     string            `json:"topic"`
	Partition int               `json:"partition"`
	Value     string            `json:"value"`
	From      int64             `json:"from"`
	Size      int               `json:"size"`
	Outcome   string            `json:"outcome"`
	Offset    *int64            `json:"offset"`
	Settled   bool              `json:"settled"`
	End       int64             `json:"end"`
	Records   []json.RawMessage `json:"records"`
}

type record struct {
	offset int64
	value  string
}

type operation struct {
	op, topic, value string
	partition        int
	from, end        int64
	offset, pinned   int64
	size             int
	settled, known   bool
	asked            bool // somebody has asked to commit the transaction
	records          []record
	firstShown       int // number of the first snapshot that shows the transaction, -1 if there is none
	call, answer     int64
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func parseRecord(raw json.RawMessage) record {
	var parts []any
	check(json.Unmarshal(raw, &parts))
	return record{int64(parts[0].(float64)), parts[1].(string)}
}

func readHistory(path string) []*operation {
	file, err := os.Open(path)
	check(err)
	defer file.Close()
	var operations []*operation
	open := map[string]*operation{}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<20), 1<<30)
	for scanner.Scan() {
		var entry line
		check(json.Unmarshal(scanner.Bytes(), &entry))
		switch entry.Event {
		case "invoke":
			made := &operation{op: entry.Op, topic: entry.Topic, value: entry.Value, partition: entry.Partition,
				from: entry.From, size: entry.Size, offset: nowhere, pinned: nowhere, firstShown: -1,
				call: entry.At, answer: math.MaxInt64}
			open[entry.ID] = made
			operations = append(operations, made)
		case "ask":
			open[entry.ID].asked = true
		case "complete":
			made := open[entry.ID]
			delete(open, entry.ID)
			made.known = entry.Outcome == "ok"
			if entry.Outcome == "aborted" {
				made.op = "aborted"
			}
			if made.known || made.op == "aborted" {
				made.answer = entry.At
			}
			if entry.Offset != nil {
				made.offset = *entry.Offset
			}
			made.settled, made.end = entry.Settled, entry.End
			for _, raw := range entry.Records {
				made.records = append(made.records, parseRecord(raw))
			}
		}
	}
	check(scanner.Err())
	for _, made := range operations {
		if made.op == "transact" && !made.asked {
			made.op = "aborted"
		}
	}
	return operations
}

// ---------------------------------------------------------------------------------------------------- a partition's log

type appended struct {
	value  string
	before *appended
}

type logState struct {
	length int64
	hash   uint64
	last   *appended
}

func (state logState) add(value string) logState {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %s", state.hash, value)
	return logState{state.length + 1, hash.Sum64(), &appended{value, state.last}}
}

func (state logState) has(read *operation) bool {
	count := int64(len(read.records))
	if read.settled && (state.length != read.end || read.from+count != read.end) {
		return false
	}
	if read.from+count > state.length {
		return false
	}
	node := state.last
	for skipped := state.length; skipped > read.from+count; skipped-- {
		node = node.before
	}
	for index := count - 1; index >= 0; index-- {
		if read.records[index] != (record{read.from + index, node.value}) {
			return false
		}
		node = node.before
	}
	return true
}

// logModel: `shown` has the offsets that reads show.
func logModel(shown map[int64]bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return logState{} },
		Step: func(before, input, _ any) (bool, any) {
			state, done := before.(logState), input.(*operation)
			switch {
			case done.op == "read":
				return state.has(done), state
			case done.offset != nowhere:
				return state.length == done.offset, state.add(done.value)
			case done.pinned != nowhere:
				return state.length == done.pinned, state.add(done.value)
			}
			return !shown[state.length], state.add(done.value)
		},
		Equal: func(a, b any) bool {
			left, right := a.(logState), b.(logState)
			return left.length == right.length && left.hash == right.hash
		},
	}
}

func logHistory(operations []*operation) porcupine.Model {
	shown, places := map[int64]bool{}, map[string]int64{}
	for _, done := range operations {
		for _, read := range done.records {
			shown[read.offset] = true
			if _, has := places[read.value]; !has {
				places[read.value] = read.offset
			}
		}
	}
	for _, done := range operations {
		if place, has := places[done.value]; has && done.op == "append" && done.offset == nowhere {
			done.pinned = place
		}
	}
	return logModel(shown)
}

// ------------------------------------------------------------------------------------------------ a topic of transactions

type setState struct {
	count, snapshots int
	hash             uint64 // of the transactions that no snapshot has shown yet
}

func hashOf(text string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(text))
	return hash.Sum64()
}

func transactions(snapshot *operation) map[string]int {
	counts := map[string]int{}
	for _, read := range snapshot.records {
		counts[read.value]++
	}
	return counts
}

// setModel: `sizes` has the number of records of each transaction.
func setModel(sizes map[string]int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return setState{} },
		Step: func(before, input, _ any) (bool, any) {
			state, done := before.(setState), input.(*operation)
			switch {
			case done.op == "transact":
				timely := done.known || done.firstShown == state.snapshots
				return timely, setState{state.count + 1, state.snapshots, state.hash ^ hashOf(done.value)}
			}
			counts := transactions(done)
			hash := uint64(0)
			for name, count := range counts {
				if sizes[name] != count {
					return false, state
				}
				hash ^= hashOf(name)
			}
			return len(counts) == state.count && hash == state.hash, setState{snapshots: state.snapshots + 1}
		},
	}
}

func setHistory(operations []*operation) porcupine.Model {
	sizes, first := map[string]int{}, map[string]int{}
	snapshots := 0
	for _, done := range operations {
		switch {
		case done.op == "transact":
			sizes[done.value] = done.size
		case done.op == "snapshot" && done.known:
			for name := range transactions(done) {
				if _, has := first[name]; !has {
					first[name] = snapshots
				}
			}
			snapshots++
		}
	}
	for _, done := range operations {
		if number, has := first[done.value]; has {
			done.firstShown = number
		}
	}
	return setModel(sizes)
}

// ------------------------------------------------------------------------------------------------------------------------

// effective: whether the operation may change anything, or shows something.
func effective(done *operation) bool {
	switch done.op {
	case "append":
		return done.known || done.pinned != nowhere
	case "transact":
		return done.known || done.firstShown >= 0
	}
	return done.known
}

func judge(operations []*operation) porcupine.CheckResult {
	model := setHistory
	if operations[0].op == "append" || operations[0].op == "read" {
		model = logHistory
	}
	specification := model(operations)
	var history []porcupine.Operation
	for number, done := range operations {
		if effective(done) {
			history = append(history, porcupine.Operation{
				ClientId: number, Input: done, Call: done.call, Output: nil, Return: done.answer})
		}
	}
	return porcupine.CheckOperationsTimeout(specification, history, timeLimit)
}

func main() {
	groups := map[string][]*operation{}
	for _, done := range readHistory(os.Args[1]) {
		name := ""
		switch done.op {
		case "append", "read":
			name = fmt.Sprintf("%s-%d", done.topic, done.partition)
		case "transact", "snapshot", "aborted":
			name = done.topic
		default:
			continue
		}
		groups[name] = append(groups[name], done)
	}
	var names []string
	for name := range groups {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("%s %s %d\n", judge(groups[name]), name, len(groups[name]))
	}
}

package main

// What a process and its children used, from /proc.

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// family returns pid and all that it has started.
func family(pid int) []int {
	found := []int{pid}
	for _, thread := range threads(pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread))
		for _, child := range strings.Fields(string(text)) {
			if number, err := strconv.Atoi(child); err == nil {
				found = append(found, family(number)...)
			}
		}
	}
	return found
}

func threads(pid int) (names []string) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return
}

// cpuNanoseconds sums the run time of all threads. schedstat counts nanoseconds; utime and stime count ticks of 10 ms.
func cpuNanoseconds(pids []int) (sum int64) {
	for _, pid := range pids {
		for _, thread := range threads(pid) {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread))
			if fields := strings.Fields(string(text)); len(fields) > 0 {
				value, _ := strconv.ParseInt(fields[0], 10, 64)
				sum += value
			}
		}
	}
	return
}

// memoryMB sums a line of /proc/PID/status (VmRSS, VmHWM), in 10^6 bytes.
func memoryMB(pids []int, line string) float64 {
	var kib int64
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for _, each := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(each, line+":") {
				value, _ := strconv.ParseInt(strings.Fields(each)[1], 10, 64)
				kib += value
			}
		}
	}
	return float64(kib) * 1024 / 1e6
}

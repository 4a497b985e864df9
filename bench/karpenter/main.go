// Karpenter's own scheduler, imported as a module, on the input of `dovetail plan`: the same objects, the same
// catalogue, what it would buy. It reads {"objects": [...], "catalog": [...]} from every file named, or from standard
// input, and prints a line of JSON for each.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
)

type problem struct {
	Objects []json.RawMessage `json:"objects"`
	Catalog []instanceType    `json:"catalog"`
}

type launched struct {
	NodePool      string            `json:"nodePool"`
	InstanceType  string            `json:"instanceType"`
	Zone          string            `json:"zone"`
	CapacityType  string            `json:"capacityType"`
	ReservationID string            `json:"reservationId,omitempty"`
	Price         float64           `json:"price"`
	Labels        map[string]string `json:"labels"`
	Pods          []string          `json:"pods"`
	Types         int               `json:"types"`
}

type answer struct {
	Seconds  float64           `json:"seconds"`
	Cost     float64           `json:"cost"`
	Nodes    []launched        `json:"machines"`
	Existing map[string]string `json:"existing"`
	Errors   map[string]string `json:"errors"`
	Ignored  []string          `json:"ignored"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func solved(raw []byte) answer {
	var given problem
	check(json.Unmarshal(raw, &given))
	return solve(given)
}

func main() {
	log.SetLogger(logging.NopLogger)
	out := json.NewEncoder(os.Stdout)
	if len(os.Args) == 1 {
		raw, err := io.ReadAll(os.Stdin)
		check(err)
		check(out.Encode(solved(raw)))
	}
	for _, file := range os.Args[1:] {
		raw, err := os.ReadFile(file)
		check(err)
		check(out.Encode(solved(raw)))
	}
}

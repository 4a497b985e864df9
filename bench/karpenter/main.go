// Solves a scenario of `dovetail plan` with Karpenter's own scheduler, imported as a module, so that both can be
// compared on the same pods. It reads a scenario on standard input and prints what Karpenter would buy.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	sched "sigs.k8s.io/karpenter/pkg/scheduling"
)

type offering struct {
	Zone                string   `json:"zone"`
	CapacityType        string   `json:"capacityType"`
	Price               *float64 `json:"price"`
	Available           *bool    `json:"available"`
	ReservationID       string   `json:"reservationId"`
	ReservationCapacity int      `json:"reservationCapacity"`
}

type instanceType struct {
	Name      string              `json:"name"`
	Capacity  map[string]string   `json:"capacity"`
	Overhead  map[string]string   `json:"overhead"`
	Labels    map[string][]string `json:"labels"`
	Offerings []offering          `json:"offerings"`
}

type scenario struct {
	Pods      []*corev1.Pod  `json:"pods"`
	NodePools []*v1.NodePool `json:"nodePools"`
	Daemons   []*corev1.Pod  `json:"daemons"`
	Catalog   []instanceType `json:"catalog"`
}

type claim struct {
	NodePool string   `json:"nodePool"`
	Type     string   `json:"instanceType"`
	Zone     string   `json:"zone"`
	Capacity string   `json:"capacityType"`
	Price    float64  `json:"price"`
	Pods     []string `json:"pods"`
	Types    int      `json:"types"`
}

type answer struct {
	Seconds float64           `json:"seconds"`
	Cost    float64           `json:"cost"`
	Claims  []claim           `json:"claims"`
	Errors  map[string]string `json:"errors"`
}

func list(amounts map[string]string) corev1.ResourceList {
	found := corev1.ResourceList{}
	for name, amount := range amounts {
		found[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return found
}

func convert(it instanceType) *cloudprovider.InstanceType {
	var offerings cloudprovider.Offerings
	zones, kinds := map[string]bool{}, map[string]bool{}
	for _, o := range it.Offerings {
		if o.Price == nil {
			continue
		}
		labels := map[string]string{v1.CapacityTypeLabelKey: o.CapacityType, corev1.LabelTopologyZone: o.Zone}
		if o.ReservationID != "" {
			labels[cloudprovider.ReservationIDLabel] = o.ReservationID
		}
		available := o.Available == nil || *o.Available
		offerings = append(offerings, &cloudprovider.Offering{
			Requirements: sched.NewLabelRequirements(labels), Price: *o.Price, Available: available,
			ReservationCapacity: o.ReservationCapacity,
		})
		if available {
			zones[o.Zone], kinds[o.CapacityType] = true, true
		}
	}
	requirements := sched.NewRequirements(
		sched.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, it.Name),
		sched.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, keys(zones)...),
		sched.NewRequirement(v1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, keys(kinds)...),
	)
	for key, values := range it.Labels {
		if key == corev1.LabelTopologyZone || key == v1.CapacityTypeLabelKey || key == corev1.LabelInstanceTypeStable {
			continue
		}
		requirements.Add(sched.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
	}
	return &cloudprovider.InstanceType{
		Name: it.Name, Requirements: requirements, Offerings: offerings, Capacity: list(it.Capacity),
		Overhead: &cloudprovider.InstanceTypeOverhead{KubeReserved: list(it.Overhead)},
	}
}

func keys(of map[string]bool) []string {
	var found []string
	for key := range of {
		found = append(found, key)
	}
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	log.SetLogger(logging.NopLogger)
	var s scenario
	check(json.NewDecoder(os.Stdin).Decode(&s))
	for i, pod := range s.Pods {
		pod.UID = types.UID(fmt.Sprintf("%08d", i))
		pod.Status.Phase = corev1.PodPending
	}
	for _, it := range s.Catalog {
		for key := range it.Labels {
			v1.WellKnownLabels.Insert(key)
		}
	}
	var its []*cloudprovider.InstanceType
	for _, it := range s.Catalog {
		its = append(its, convert(it))
	}
	byPool := map[string][]*cloudprovider.InstanceType{}
	for _, pool := range s.NodePools {
		byPool[pool.Name] = its
	}
	opts := &options.Options{PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict, CPURequests: 1000}
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), opts)
	client := fake.NewClientBuilder().Build()
	clk := &clock.RealClock{}
	cluster := state.NewCluster(clk, client, nil)
	extra := []scheduling.Options{scheduling.NumConcurrentReconciles(2)}
	topology, err := scheduling.NewTopology(ctx, client, cluster, nil, s.NodePools, byPool, s.Pods, extra...)
	check(err)
	scheduler := scheduling.NewScheduler(ctx, client, s.NodePools, cluster, nil, topology, byPool, s.Daemons,
		events.NewRecorder(&record.FakeRecorder{}), clk, nil, nil, extra...)
	start := time.Now()
	results, err := scheduler.Solve(ctx, s.Pods)
	check(err)
	found := answer{Seconds: time.Since(start).Seconds(), Errors: map[string]string{}}
	for _, c := range results.NewNodeClaims {
		c.FinalizeScheduling()
		best := claim{NodePool: c.NodePoolName, Price: -1, Types: len(c.InstanceTypeOptions)}
		for _, it := range c.InstanceTypeOptions {
			for _, o := range it.Offerings.Available().Compatible(c.Requirements) {
				if best.Price < 0 || o.Price < best.Price {
					best.Price, best.Type, best.Zone, best.Capacity = o.Price, it.Name, o.Zone(), o.CapacityType()
				}
			}
		}
		for _, pod := range c.Pods {
			best.Pods = append(best.Pods, pod.Namespace+"/"+pod.Name)
		}
		found.Cost += best.Price
		found.Claims = append(found.Claims, best)
	}
	for pod, err := range results.PodErrors {
		found.Errors[pod.Namespace+"/"+pod.Name] = err.Error()
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

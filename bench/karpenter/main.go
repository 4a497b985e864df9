// Karpenter's own scheduler on the input of `dovetail plan`, for comparison.
//
// Reads {"objects": [...], "catalog": [...]} from each file named, prints one JSON line per file:
// who was placed, on how many new claims, at what price (each claim at its cheapest offering), how long it took.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocks "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	_ "sigs.k8s.io/karpenter/pkg/apis"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

type offering struct {
	Zone, CapacityType  string
	Price               float64
	Available           *bool
	ReservationID       string `json:"reservationId"`
	ReservationCapacity int    `json:"reservationCapacity"`
}

type instanceType struct {
	Name         string
	Capacity     map[string]string
	Overhead     map[string]string
	Labels       map[string][]string
	Offerings    []offering
	AttachLimits map[string]int
}

type input struct {
	Objects []json.RawMessage
	Catalog []instanceType
}

type machine struct {
	NodePool     string   `json:"nodePool"`
	InstanceType string   `json:"instanceType"`
	Zone         string   `json:"zone"`
	CapacityType string   `json:"capacityType"`
	Price        float64  `json:"price"`
	Pods         []string `json:"pods"`
}

type output struct {
	File     string            `json:"file"`
	Seconds  float64           `json:"seconds"`
	Cost     float64           `json:"cost"`
	Machines []machine         `json:"machines"`
	Existing map[string]string `json:"existing"`
	Errors   map[string]string `json:"errors"`
}

const reservationID = "karpenter.test.sh/reservation-id"

func resources(in map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range in {
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

func typeOf(in instanceType) *cloudprovider.InstanceType {
	requirements := scheduling.NewRequirements()
	for key, values := range in.Labels {
		v1.WellKnownLabels.Insert(key)
		requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
	}
	zones, kinds := map[string]bool{}, map[string]bool{}
	offers := cloudprovider.Offerings{}
	for _, o := range in.Offerings {
		zones[o.Zone], kinds[o.CapacityType] = true, true
		labels := map[string]string{corev1.LabelTopologyZone: o.Zone, v1.CapacityTypeLabelKey: o.CapacityType}
		if o.CapacityType == v1.CapacityTypeReserved {
			labels[cloudprovider.ReservationIDLabel] = o.ReservationID
		}
		offers = append(offers, &cloudprovider.Offering{
			Requirements:        scheduling.NewLabelRequirements(labels),
			Price:               o.Price,
			Available:           o.Available == nil || *o.Available,
			ReservationCapacity: o.ReservationCapacity,
		})
	}
	add := func(key string, set map[string]bool) {
		values := []string{}
		for value := range set {
			values = append(values, value)
		}
		requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
	}
	add(corev1.LabelTopologyZone, zones)
	add(v1.CapacityTypeLabelKey, kinds)
	requirements.Add(scheduling.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, in.Name))
	return &cloudprovider.InstanceType{
		Name: in.Name, Requirements: requirements, Offerings: offers, Capacity: resources(in.Capacity),
		Overhead:               &cloudprovider.InstanceTypeOverhead{KubeReserved: resources(in.Overhead)},
		VolumeAttachmentLimits: in.AttachLimits,
	}
}

func decode(raw json.RawMessage, index int) client.Object {
	var kind struct{ APIVersion, Kind string }
	check(json.Unmarshal(raw, &kind))
	object, err := scheme.Scheme.New(schemaOf(kind.APIVersion, kind.Kind))
	if err != nil {
		fmt.Fprintln(os.Stderr, "ignored:", kind.Kind)
		return nil
	}
	check(json.Unmarshal(raw, object))
	found := object.(client.Object)
	if found.GetUID() == "" {
		found.SetUID(types.UID(fmt.Sprintf("uid-%06d", index)))
	}
	found.SetResourceVersion("")
	prepare(found)
	return found
}

func prepare(object client.Object) {
	switch o := object.(type) {
	case *corev1.Pod:
		if o.Namespace == "" {
			o.Namespace = "default"
		}
		if o.Spec.NodeName == "" && len(o.Spec.SchedulingGates) == 0 {
			o.Status.Phase = corev1.PodPending
			o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		}
	case *v1.NodePool:
		o.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{
			Group: "karpenter.test.sh", Kind: "TestNodeClass", Name: "default",
		}
		for _, condition := range []string{v1.ConditionTypeValidationSucceeded, v1.ConditionTypeNodeClassReady} {
			o.StatusConditions().SetTrue(condition)
		}
	}
}

func schemaOf(apiVersion, kind string) (gvk schema.GroupVersionKind) {
	gvk.Kind, gvk.Version = kind, apiVersion
	if group, version, found := strings.Cut(apiVersion, "/"); found {
		gvk.Group, gvk.Version = group, version
	}
	return gvk
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func solve(file string) output {
	raw, err := os.ReadFile(file)
	check(err)
	var in input
	check(json.Unmarshal(raw, &in))
	provider := fake.NewCloudProvider()
	for _, entry := range in.Catalog {
		provider.InstanceTypes = append(provider.InstanceTypes, typeOf(entry))
	}
	objects := []client.Object{}
	for i, one := range in.Objects {
		if object := decode(one, i); object != nil {
			objects = append(objects, object)
		}
	}
	objects = append(objects, &v1alpha1.TestNodeClass{})
	objects[len(objects)-1].SetName("default")
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), test.Options())
	builder := fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }).
		WithIndex(&v1.NodeClaim{}, "status.providerID", func(o client.Object) []string { return []string{o.(*v1.NodeClaim).Status.ProviderID} }).
		WithIndex(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName} }).
		WithIndex(&v1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(o client.Object) []string {
			return []string{o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef.Group}
		}).
		WithIndex(&v1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(o client.Object) []string { return []string{o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef.Kind} }).
		WithIndex(&v1.NodePool{}, "spec.template.spec.nodeClassRef.name", func(o client.Object) []string { return []string{o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef.Name} })
	kube := builder.Build()
	clock := clocks.RealClock{}
	cluster := state.NewCluster(clock, kube, provider)
	feed(ctx, kube, cluster)
	provisioner := provisioning.NewProvisioner(kube, events.NewRecorder(&record.FakeRecorder{}), provider, cluster, clock, nil, nil)
	start := time.Now()
	results, err := provisioner.Schedule(ctx)
	took := time.Since(start).Seconds()
	check(err)
	out := output{File: file, Seconds: took, Existing: map[string]string{}, Errors: map[string]string{}}
	for pod, problem := range results.PodErrors {
		out.Errors[name(pod)] = problem.Error()
	}
	for _, node := range results.ExistingNodes {
		for _, pod := range node.Pods {
			out.Existing[name(pod)] = node.Name()
		}
	}
	for _, claim := range results.NewNodeClaims {
		best := machine{Price: math.Inf(1), NodePool: claim.NodePoolName}
		for _, candidate := range claim.InstanceTypeOptions {
			for _, offer := range candidate.Offerings {
				if offer.Available && claim.Requirements.IsCompatible(offer.Requirements, scheduling.AllowUndefinedWellKnownLabels) && offer.Price < best.Price {
					best.Price, best.InstanceType = offer.Price, candidate.Name
					best.Zone = offer.Requirements.Get(corev1.LabelTopologyZone).Any()
					best.CapacityType = offer.Requirements.Get(v1.CapacityTypeLabelKey).Any()
				}
			}
		}
		for _, pod := range claim.Pods {
			best.Pods = append(best.Pods, name(pod))
		}
		sort.Strings(best.Pods)
		out.Machines = append(out.Machines, best)
		out.Cost += best.Price
	}
	return out
}

func feed(ctx context.Context, kube client.Client, cluster *state.Cluster) {
	claims, nodes, pods, daemons := &v1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PodList{}, &appsv1.DaemonSetList{}
	for _, list := range []client.ObjectList{claims, nodes, pods, daemons} {
		check(kube.List(ctx, list))
	}
	for i := range claims.Items {
		cluster.UpdateNodeClaim(&claims.Items[i])
	}
	for i := range nodes.Items {
		check(cluster.UpdateNode(ctx, &nodes.Items[i]))
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			check(cluster.UpdatePod(ctx, &pods.Items[i]))
		}
	}
	for i := range daemons.Items {
		check(cluster.UpdateDaemonSet(ctx, &daemons.Items[i]))
	}
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func main() {
	cloudprovider.ReservationIDLabel = reservationID
	v1.WellKnownLabels.Insert(reservationID)
	encoder := json.NewEncoder(os.Stdout)
	for _, file := range os.Args[1:] {
		check(encoder.Encode(solve(file)))
	}
}

package main

import (
	"context"
	"encoding/json"
	"math"
	"sort"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	_ "sigs.k8s.io/karpenter/pkg/apis"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	alpha "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	sched "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

func init() {
	cloudprovider.ReservationIDLabel = reservationID
	v1.WellKnownLabels.Insert(reservationID)
}

// solve does what a provisioning round does, up to the claims; only the scheduling itself is timed.
func solve(given problem) answer {
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), &options.Options{
		PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict, CPURequests: 2000,
		FeatureGates: options.FeatureGates{ReservedCapacity: true, NodeOverlay: true}, IgnoreDRARequests: true,
	})
	var sold market
	labels := described(given.Catalog)
	for _, each := range given.Catalog {
		sold = append(sold, each.convert(labels))
	}
	kube := clusterOf(given.Objects)
	store := nodeoverlay.NewInstanceTypeStore()
	cloud := overlay.Decorate(sold, kube, store)
	cluster := state.NewCluster(clock.RealClock{}, kube, cloud)
	_, err := nodeoverlay.NewController(clock.RealClock{}, kube, sold, store, cluster).Reconcile(ctx, reconcile.Request{})
	check(err)
	feed(ctx, kube, cluster)
	recorder := events.NewRecorder(&record.FakeRecorder{})
	provisioner := provisioning.NewProvisioner(kube, recorder, cloud, cluster, clock.RealClock{}, nil, nil)
	nodes := cluster.DeepCopyNodes()
	pods, err := provisioner.GetPendingPods(ctx)
	check(err)
	moving, err := nodes.Deleting().CurrentlyReschedulablePods(ctx, kube, clock.RealClock{}, recorder)
	check(err)
	going := sets.New[types.UID]()
	for _, pod := range moving {
		going.Insert(pod.UID)
	}
	pods = append(pods, moving...)
	scheduler, err := provisioner.NewScheduler(ctx, pods, nodes.Active(), going, scheduling.DisableReservedCapacityFallback,
		scheduling.NumConcurrentReconciles(2), scheduling.MinValuesPolicy(options.MinValuesPolicyStrict))
	check(err)
	start := time.Now()
	results, err := scheduler.Solve(ctx, pods)
	took := time.Since(start).Seconds()
	check(err)
	found := told(results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes))
	found.Seconds, found.Ignored = took, ignored(ctx, kube, pods)
	return found
}

// ignored are waiting pods that are not even tried, such as those with claims that cannot be bound.
func ignored(ctx context.Context, kube client.Client, tried []*corev1.Pod) []string {
	known := sets.New[string]()
	for _, pod := range tried {
		known.Insert(key(pod))
	}
	waiting, found := &corev1.PodList{}, []string{}
	check(kube.List(ctx, waiting, client.MatchingFields{"spec.nodeName": ""}))
	for i := range waiting.Items {
		if name := key(&waiting.Items[i]); !known.Has(name) {
			found = append(found, name)
		}
	}
	return found
}

func told(results scheduling.Results) answer {
	found := answer{Existing: map[string]string{}, Errors: map[string]string{}}
	for pod, problem := range results.PodErrors {
		found.Errors[key(pod)] = problem.Error()
	}
	for _, node := range results.ExistingNodes {
		for _, pod := range node.Pods {
			found.Existing[key(pod)] = node.Name()
		}
	}
	for _, claim := range results.NewNodeClaims {
		bought := cheapest(claim)
		found.Nodes = append(found.Nodes, bought)
		found.Cost += bought.Price
	}
	return found
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// cheapest is the claim as it would be launched at best: its cheapest offering, and the labels its node would have.
func cheapest(claim *scheduling.NodeClaim) launched {
	best := launched{Price: math.Inf(1), NodePool: claim.NodePoolName, Types: len(claim.InstanceTypeOptions)}
	var kind *cloudprovider.InstanceType
	for _, each := range claim.InstanceTypeOptions {
		for _, o := range each.Offerings.Launchable().Compatible(claim.Requirements) {
			if o.Price < best.Price {
				kind, best.Price, best.InstanceType, best.Zone, best.CapacityType = each, o.Price, each.Name, o.Zone(), o.CapacityType()
				best.ReservationID = ""
				if best.CapacityType == v1.CapacityTypeReserved {
					best.ReservationID = o.ReservationID()
				}
			}
		}
	}
	needs := sched.NewRequirements(claim.Requirements.Values()...)
	if kind != nil {
		needs.Add(kind.Requirements.Values()...)
	}
	best.Labels = map[string]string{}
	for name, need := range needs {
		if need.Operator() == corev1.NodeSelectorOpIn && need.Len() > 0 {
			best.Labels[name] = need.Any()
		}
	}
	for name, value := range claim.Labels {
		best.Labels[name] = value
	}
	best.Labels[corev1.LabelTopologyZone], best.Labels[v1.CapacityTypeLabelKey] = best.Zone, best.CapacityType
	best.Labels[corev1.LabelInstanceTypeStable], best.Labels[v1.NodePoolLabelKey] = best.InstanceType, best.NodePool
	for _, pod := range claim.Pods {
		best.Pods = append(best.Pods, key(pod))
	}
	sort.Strings(best.Pods)
	return best
}

// clusterOf is an API server with the objects in it.
func clusterOf(given []json.RawMessage) client.Client {
	class := &v1alpha1.TestNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	objects := []client.Object{class}
	for at, raw := range given {
		if made := decoded(raw, at); made != nil {
			objects = append(objects, made)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&alpha.NodeOverlay{})
	byField := func(kind client.Object, field string, read func(client.Object) string) {
		builder = builder.WithIndex(kind, field, func(o client.Object) []string { return []string{read(o)} })
	}
	byField(&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName })
	byField(&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID })
	byField(&v1.NodeClaim{}, "status.providerID", func(o client.Object) string { return o.(*v1.NodeClaim).Status.ProviderID })
	byField(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) string {
		return o.(*storagev1.VolumeAttachment).Spec.NodeName
	})
	reference := func(o client.Object) *v1.NodeClassReference { return o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef }
	path := "spec.template.spec.nodeClassRef."
	byField(&v1.NodePool{}, path+"group", func(o client.Object) string { return reference(o).Group })
	byField(&v1.NodePool{}, path+"kind", func(o client.Object) string { return reference(o).Kind })
	byField(&v1.NodePool{}, path+"name", func(o client.Object) string { return reference(o).Name })
	return builder.WithInterceptorFuncs(interceptor.Funcs{Get: anywhere}).Build()
}

// anywhere gets a volume as a server would: it has no namespace, whatever the key says.
func anywhere(ctx context.Context, kube client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, volume := o.(*corev1.PersistentVolume); volume {
		key.Namespace = ""
	}
	return kube.Get(ctx, key, o, opts...)
}

func decoded(raw json.RawMessage, at int) client.Object {
	var kind metav1.TypeMeta
	check(json.Unmarshal(raw, &kind))
	made, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
	check(err)
	check(json.Unmarshal(raw, made))
	object := made.(client.Object)
	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-" + strconv.Itoa(at)))
	}
	switch o := object.(type) {
	case *corev1.Pod:
		waits := o.Spec.NodeName == "" && len(o.Spec.SchedulingGates) == 0
		if waits {
			o.Status.Phase = corev1.PodPending
			o.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		}
	case *v1.NodePool:
		o.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: v1alpha1.Group, Kind: "TestNodeClass", Name: "default"}
		for _, condition := range []string{v1.ConditionTypeValidationSucceeded, v1.ConditionTypeNodeClassReady} {
			o.StatusConditions().SetTrue(condition)
		}
	}
	return object
}

// feed tells the cluster's mirror what the watches would.
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

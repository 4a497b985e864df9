package main

import (
	"context"
	"errors"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

const reservationID = "karpenter.k8s.aws/capacity-reservation-id"

type offering struct {
	Zone                string   `json:"zone"`
	CapacityType        string   `json:"capacityType"`
	Price               *float64 `json:"price"`
	Available           *bool    `json:"available"`
	ReservationID       string   `json:"reservationId"`
	ReservationCapacity int      `json:"reservationCapacity"`
}

type instanceType struct {
	Name         string              `json:"name"`
	Capacity     map[string]string   `json:"capacity"`
	Overhead     map[string]string   `json:"overhead"`
	Labels       map[string][]string `json:"labels"`
	Offerings    []offering          `json:"offerings"`
	AttachLimits map[string]int      `json:"attachLimits"`
}

func amounts(of map[string]string) corev1.ResourceList {
	found := corev1.ResourceList{}
	for name, amount := range of {
		found[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return found
}

func (o offering) convert() *cloudprovider.Offering {
	labels := map[string]string{v1.CapacityTypeLabelKey: o.CapacityType, corev1.LabelTopologyZone: o.Zone}
	if o.CapacityType == v1.CapacityTypeReserved {
		labels[reservationID] = o.ReservationID
	}
	return &cloudprovider.Offering{
		Requirements: scheduling.NewLabelRequirements(labels), Price: *o.Price,
		Available: o.Available == nil || *o.Available, ReservationCapacity: o.ReservationCapacity,
	}
}

// described are the labels that any type of the catalogue has. Whoever lacks one does not have it, as EC2's types say.
func described(catalog []instanceType) []string {
	found := sets.New[string]()
	for _, it := range catalog {
		for key := range it.Labels {
			found.Insert(key)
		}
	}
	return sets.List(found)
}

func (it instanceType) convert(described []string) *cloudprovider.InstanceType {
	requirements := scheduling.NewRequirements(
		scheduling.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, it.Name))
	for key, values := range it.Labels {
		v1.WellKnownLabels.Insert(key)
		requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
	}
	var offerings cloudprovider.Offerings
	seen := map[string]map[string]bool{}
	for _, o := range it.Offerings {
		if o.Price == nil {
			continue
		}
		made := o.convert()
		offerings = append(offerings, made)
		for key, need := range made.Requirements {
			if seen[key] == nil {
				seen[key] = map[string]bool{}
			}
			for _, value := range need.Values() {
				seen[key][value] = seen[key][value] || made.Available
			}
		}
	}
	for key, values := range seen {
		var available []string
		for value, had := range values {
			if had {
				available = append(available, value)
			}
		}
		requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, available...))
	}
	for _, key := range append(described, reservationID) {
		if !requirements.Has(key) {
			requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		}
	}
	return &cloudprovider.InstanceType{
		Name: it.Name, Requirements: requirements, Offerings: offerings, Capacity: amounts(it.Capacity),
		Overhead:               &cloudprovider.InstanceTypeOverhead{KubeReserved: amounts(it.Overhead)},
		VolumeAttachmentLimits: it.AttachLimits,
	}
}

// market is a cloud that sells a catalogue and does nothing else.
type market []*cloudprovider.InstanceType

var errOnlySells = errors.New("this cloud only shows what it sells")

func (m market) GetInstanceTypes(context.Context, *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return m, nil
}
func (m market) Create(context.Context, *v1.NodeClaim) (*v1.NodeClaim, error) {
	return nil, errOnlySells
}
func (m market) Delete(context.Context, *v1.NodeClaim) error         { return errOnlySells }
func (m market) Get(context.Context, string) (*v1.NodeClaim, error)  { return nil, errOnlySells }
func (m market) List(context.Context) ([]*v1.NodeClaim, error)       { return nil, errOnlySells }
func (m market) Reboot(context.Context, *v1.NodeClaim, string) error { return errOnlySells }
func (m market) RepairPolicies() []cloudprovider.RepairPolicy        { return nil }
func (m market) Name() string                                        { return "market" }
func (m market) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.TestNodeClass{}}
}
func (m market) IsDrifted(context.Context, *v1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

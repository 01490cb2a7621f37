package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The world: which Services there are, how many pods each has, and what all objects but pods look
// like. As in ../generate.ts, everything is a function of the seed and of a number, so nothing of
// it is held. Names, addresses and versions have fixed widths; see pods.go.

const (
	seed        = 20_261_121
	maxPerSlice = 100
	capacity    = 1000
	namespaces  = 500
)

var zones = []string{"eu-1a", "eu-1b", "eu-1c"}

// size says how many Services have how many pods.
type size struct{ pods, services int }

// plan is a Service; its pods are those numbered from first on.
type plan struct {
	number, first, pods int
	stateful, hinted    bool
	ports               int
}

type world struct {
	nodes  int
	plans  []plan
	pods   int
	owner  []int32 // pod -> plan
	slices []sliceID
	// The number of the first slice of each plan.
	firstSlice []int
	templates  [2][podKinds]template
	created    metav1.Time
	changed    int64
}

type sliceID struct{ plan, slice int }

// fullSizes sum to 10,000 Services and 150,000 pods.
var fullSizes = []size{{5000, 1}, {250, 204}, {30, 1761}, {15, 100}, {5, 7934}}

func mix(number, salt int) uint32 {
	hash := uint32(seed) ^ uint32(number+1)*0x9e3779b1 ^ uint32(salt+1)*0x85ebca77
	hash = (hash ^ hash>>16) * 0x85ebca6b
	hash = (hash ^ hash>>13) * 0xc2b2ae35
	return hash ^ hash>>16
}

// newWorld makes a world of the full shape with all numbers divided by share, and at most this many
// pods in a Service.
func newWorld(share, most int) *world {
	now := time.Now().Truncate(time.Second)
	w := &world{
		nodes:   max(5000/share, 10),
		created: metav1.NewTime(now.Add(-2 * time.Hour)),
		changed: now.Add(-time.Hour).Unix(),
	}
	for _, of := range fullSizes {
		for range max(of.services/share, 1) {
			number, pods := len(w.plans), min(of.pods, most)
			luck := mix(number, 0) % 100
			p := plan{number: number, first: w.pods, pods: pods, ports: 1}
			p.stateful = luck < 10 && pods <= 250
			p.hinted = luck >= 95
			if luck%5 == 0 {
				p.ports = 2
			}
			w.firstSlice = append(w.firstSlice, len(w.slices))
			for slice := range (pods + maxPerSlice - 1) / maxPerSlice {
				w.slices = append(w.slices, sliceID{number, slice})
			}
			for range pods {
				w.owner = append(w.owner, int32(number))
			}
			w.plans = append(w.plans, p)
			w.pods += pods
		}
	}
	return w
}

const alphabet = "bcdfghjklmnpqrstvwxz2456789"

// suffix has five letters, different for different numbers below 27^5.
func suffix(number int) string {
	left := (number*7_368_787 + seed) % (27 * 27 * 27 * 27 * 27)
	var letters [5]byte
	for place := range letters {
		letters[place] = alphabet[left%27]
		left /= 27
	}
	return string(letters[:])
}

func uid(kind, number int) string {
	a, b, c, d := mix(number, 16*kind), mix(number, 16*kind+1), mix(number, 16*kind+2), uint32(number)
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%04x%08x", a, b>>16, b&0xffff, c>>16, c&0xffff, d)
}

const (
	nodeUID = iota + 1
	serviceUID
	podUID
	endpointsUID
	sliceUID
	ownerUID
)

func (p plan) namespace() string { return fmt.Sprintf("team-%03d", p.number%namespaces) }
func (p plan) name() string      { return fmt.Sprintf("app-%05d", p.number) }
func (p plan) template() string  { return suffix(p.number) + suffix(p.number+1) }

func (p plan) podName(pod int) string {
	if p.stateful {
		return fmt.Sprintf("%s-%05d", p.name(), pod-p.first)
	}
	return p.name() + "-" + p.template() + "-" + suffix(pod)
}

func nodeName(node int) string { return fmt.Sprintf("node-%04d.example.internal", node) }
func zoneOf(node int) string   { return zones[node%len(zones)] }
func podIP(pod int) string {
	return fmt.Sprintf("10.%d.%d.%d", 100+pod/10_000, 100+pod/100%100, 100+pod%100)
}

func (w *world) nodeOf(pod int) int { return int(mix(pod, 8) % uint32(w.nodes)) }

func (w *world) meta(name, namespace string, kind, number int, version uint64) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              name,
		Namespace:         namespace,
		UID:               types.UID(uid(kind, number)),
		ResourceVersion:   fmt.Sprint(version),
		CreationTimestamp: w.created,
	}
}

func managed(manager, subresource string, at metav1.Time, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}, Subresource: subresource,
	}
}

func (w *world) node(node int, version uint64) *corev1.Node {
	name := nodeName(node)
	meta := w.meta(name, "", nodeUID, node, version)
	meta.Labels = map[string]string{
		"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
		"topology.kubernetes.io/region": "eu-1", "topology.kubernetes.io/zone": zoneOf(node),
	}
	meta.ManagedFields = []metav1.ManagedFieldsEntry{managed("kubelet", "status", w.created,
		`{"f:status":{"f:allocatable":{"f:cpu":{}},"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{}}}}}`)}
	amounts := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("15890m"),
		corev1.ResourceMemory: resource.MustParse("61255492Ki"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: w.created,
			LastTransitionTime: w.created, Reason: "KubeletReports", Message: "kubelet reports its state"}
	}
	return &corev1.Node{
		ObjectMeta: meta,
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{
				condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
				condition("PIDPressure", "False"), condition("Ready", "True"),
			},
			Addresses: []corev1.NodeAddress{{Type: "InternalIP",
				Address: fmt.Sprintf("192.168.%d.%d", node>>8, node&255)}},
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.12.0", KubeletVersion: "v1.36.3"},
		},
	}
}

func (p plan) labels() map[string]string {
	return map[string]string{"app": p.name(), "app.kubernetes.io/managed-by": "Helm"}
}

func (w *world) service(number int, version uint64) *corev1.Service {
	p := w.plans[number]
	meta := w.meta(p.name(), p.namespace(), serviceUID, number, version)
	meta.Labels = p.labels()
	ip := fmt.Sprintf("172.20.%d.%d", number>>8, number&255)
	if p.stateful {
		ip = corev1.ClusterIPNone
	}
	cluster, single := corev1.ServiceInternalTrafficPolicyCluster, corev1.IPFamilyPolicySingleStack
	spec := corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": p.name()},
		ClusterIP: ip, ClusterIPs: []string{ip}, SessionAffinity: corev1.ServiceAffinityNone,
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: &single,
		InternalTrafficPolicy: &cluster,
		Ports: []corev1.ServicePort{
			{Name: "http", Protocol: "TCP", Port: 80, TargetPort: intstr.FromString("http")},
			{Name: "metrics", Protocol: "TCP", Port: 9090, TargetPort: intstr.FromInt32(9090)},
		}[:p.ports],
	}
	if p.hinted {
		preference := corev1.ServiceTrafficDistributionPreferClose
		spec.TrafficDistribution = &preference
	}
	return &corev1.Service{ObjectMeta: meta, Spec: spec}
}

func (w *world) target(p plan, pod int) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", Namespace: p.namespace(), Name: p.podName(pod),
		UID: types.UID(uid(podUID, pod))}
}

func (p plan) outputMeta(meta metav1.ObjectMeta, trigger int64) metav1.ObjectMeta {
	meta.Labels = p.labels()
	if p.stateful {
		meta.Labels[corev1.IsHeadlessService] = ""
	}
	meta.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: triggerTime(trigger)}
	return meta
}

func triggerTime(trigger int64) string { return time.Unix(trigger, 0).UTC().Format(time.RFC3339Nano) }

// endpoints are what the endpoints controller writes: of more than 1,000 addresses, the ready ones
// first.
func (w *world) endpoints(number int, s *state) *corev1.Endpoints {
	p, of := w.plans[number], s.endpoints[number]
	meta := p.outputMeta(w.meta(p.name(), p.namespace(), endpointsUID, number, of.version), of.trigger)
	meta.Labels["endpoints.kubernetes.io/managed-by"] = "endpoint-controller"
	if p.pods > capacity {
		meta.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	var ready, others []corev1.EndpointAddress
	for pod := p.first; pod < p.first+p.pods; pod++ {
		node := nodeName(w.nodeOf(pod))
		address := corev1.EndpointAddress{IP: podIP(pod), NodeName: &node, TargetRef: w.target(p, pod)}
		if p.stateful {
			address.Hostname = p.podName(pod)
		}
		if s.listed[pod] {
			ready = append(ready, address)
		} else {
			others = append(others, address)
		}
	}
	ready = ready[:min(len(ready), capacity)]
	others = others[:min(len(others), capacity-len(ready))]
	return &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{
		Addresses: ready, NotReadyAddresses: others,
		Ports: []corev1.EndpointPort{
			{Name: "http", Port: 8080, Protocol: "TCP"},
			{Name: "metrics", Port: 9090, Protocol: "TCP"},
		}[:p.ports],
	}}}
}

func (w *world) slice(number int, s *state) *discoveryv1.EndpointSlice {
	id, of := w.slices[number], s.slices[number]
	p := w.plans[id.plan]
	name := p.name() + "-" + suffix(p.first+id.slice)
	meta := p.outputMeta(w.meta(name, p.namespace(), sliceUID, number, of.version), of.trigger)
	yes := true
	meta.GenerateName = p.name() + "-"
	meta.Generation = of.generation
	meta.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	meta.Labels[discoveryv1.LabelServiceName] = p.name()
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: p.name(),
		UID: types.UID(uid(serviceUID, id.plan)), Controller: &yes, BlockOwnerDeletion: &yes}}
	result := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	from := p.first + id.slice*maxPerSlice
	for pod := from; pod < min(from+maxPerSlice, p.first+p.pods); pod++ {
		result.Endpoints = append(result.Endpoints, w.endpoint(p, pod, s.listed[pod]))
	}
	names, numbers, tcp := []string{"http", "metrics"}, []int32{8080, 9090}, corev1.ProtocolTCP
	for port := range p.ports {
		result.Ports = append(result.Ports,
			discoveryv1.EndpointPort{Name: &names[port], Port: &numbers[port], Protocol: &tcp})
	}
	return result
}

func (w *world) endpoint(p plan, pod int, ready bool) discoveryv1.Endpoint {
	node := w.nodeOf(pod)
	name, zone, terminating := nodeName(node), zoneOf(node), false
	serving := ready
	result := discoveryv1.Endpoint{
		Addresses: []string{podIP(pod)},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving,
			Terminating: &terminating},
		NodeName: &name, Zone: &zone, TargetRef: w.target(p, pod),
	}
	if p.stateful {
		hostname := p.podName(pod)
		result.Hostname = &hostname
	}
	if p.hinted && ready {
		result.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
	return result
}

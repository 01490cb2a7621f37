package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pods are 12 KB of JSON each, and there are 150,000: too many to hold and too many to encode one by
// one. So one pod of each kind is encoded by the real encoders with marks where pods differ, and a
// pod is a copy of that with its own values in the place of the marks, which have the same length.

type format int

const (
	asJSON format = iota
	asProtobuf
)

type mark int

const (
	markName mark = iota
	markNamespace
	markService
	markTemplate
	markUID
	markOwner
	markVersion
	markNode
	markIP
	markTime
	marks
)

// spot is where a mark stands in a template.
type spot struct {
	at, length int
	mark       mark
}

type template struct {
	bytes []byte
	spots []spot
}

// kindOf numbers the templates: ready or not, of a StatefulSet or not, one or two ports.
func kindOf(p plan, ready bool) int {
	kind := p.ports - 1
	if p.stateful {
		kind += 2
	}
	if ready {
		kind += 4
	}
	return kind
}

const podKinds = 8

// markedTime is a moment that nothing else has; as a varint it has five bytes, like all of now.
const markedTime = 1_999_999_999

func markText(of mark, length int) string {
	letter := string(rune('a' + of))
	return "zq" + letter + strings.Repeat(letter, length-4) + "q"
}

// templates are by format and kind.
func newTemplates(w *world, jsonBytes int) [2][podKinds]template {
	var result [2][podKinds]template
	for kind := range podKinds {
		p := plan{ports: kind&1 + 1, stateful: kind&2 != 0}
		pod, values := w.markedPod(p, kind&4 != 0, jsonBytes)
		text, err := json.Marshal(pod)
		check(err)
		message, err := pod.Marshal()
		check(err)
		result[asJSON][kind] = newTemplate(text, values, []byte(timeText(markedTime)))
		result[asProtobuf][kind] = newTemplate(message, values, binary.AppendUvarint(nil, markedTime))
	}
	return result
}

func newTemplate(text []byte, values [marks]string, when []byte) template {
	result := template{bytes: text}
	for of := range marks {
		value := []byte(values[of])
		if of == markTime {
			value = when
		}
		for at := 0; ; {
			found := bytes.Index(text[at:], value)
			if found < 0 {
				break
			}
			result.spots = append(result.spots, spot{at + found, len(value), of})
			at += found + len(value)
		}
	}
	return result
}

func timeText(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// values are what a pod has in the place of the marks; times are apart, since each format has its
// own.
func (w *world) values(pod int, version uint64) [marks]string {
	p := w.plans[w.owner[pod]]
	return [marks]string{
		markName: p.podName(pod), markNamespace: p.namespace(), markService: p.name(),
		markTemplate: p.template(), markUID: uid(podUID, pod), markOwner: uid(ownerUID, p.number),
		markVersion: fmt.Sprint(version), markNode: nodeName(w.nodeOf(pod)), markIP: podIP(pod),
	}
}

// appendPod appends a pod in this format, without kind and apiVersion.
func (w *world) appendPod(to []byte, as format, pod int, s podState) []byte {
	p := w.plans[w.owner[pod]]
	from := &w.templates[as][kindOf(p, s.ready)]
	start := len(to)
	to = append(to, from.bytes...)
	values := w.values(pod, s.version)
	var when []byte
	if as == asJSON {
		when = []byte(timeText(s.changed))
	} else {
		when = binary.AppendUvarint(nil, uint64(s.changed))
	}
	for _, spot := range from.spots {
		at := to[start+spot.at : start+spot.at+spot.length]
		if spot.mark == markTime {
			copy(at, when)
		} else if copy(at, values[spot.mark]) != len(values[spot.mark]) {
			panic("a value is longer than its mark")
		}
	}
	return to
}

func (w *world) markedPod(p plan, ready bool, jsonBytes int) (*corev1.Pod, [marks]string) {
	nameLength := len("app-00000-0123456789-01234")
	if p.stateful {
		nameLength = len("app-00000-00000")
	}
	values := [marks]string{
		markName: markText(markName, nameLength), markNamespace: markText(markNamespace, 8),
		markService: markText(markService, 9), markTemplate: markText(markTemplate, 10),
		markUID: markText(markUID, 36), markOwner: markText(markOwner, 36),
		markVersion: markText(markVersion, 9), markNode: markText(markNode, 26),
		markIP: markText(markIP, 14),
	}
	pod := w.examplePod(p, ready, values)
	env := &pod.Spec.Containers[0].Env
	text, err := json.Marshal(pod)
	check(err)
	setting := func() corev1.EnvVar {
		return corev1.EnvVar{Name: fmt.Sprintf("SETTING_%03d", len(*env)),
			Value: "a value as long as they often are"}
	}
	one, err := json.Marshal(setting())
	check(err)
	for missing := jsonBytes - len(text); missing >= 60; missing -= len(one) + 1 {
		*env = append(*env, setting())
	}
	return pod, values
}

func (w *world) examplePod(p plan, ready bool, values [marks]string) *corev1.Pod {
	yes := true
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet",
		Name: values[markService] + "-" + values[markTemplate], UID: types.UID(values[markOwner]),
		Controller: &yes, BlockOwnerDeletion: &yes}
	labels := map[string]string{"app": values[markService], "pod-template-hash": values[markTemplate]}
	spec := podSpec(p, values)
	if p.stateful {
		owner.Kind, owner.Name = "StatefulSet", values[markService]
		labels = map[string]string{"app": values[markService],
			"controller-revision-hash":           values[markService] + "-" + values[markTemplate],
			"statefulset.kubernetes.io/pod-name": values[markName]}
		spec.Hostname, spec.Subdomain = values[markName], values[markService]
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: values[markName], GenerateName: values[markService] + "-",
			Namespace: values[markNamespace], UID: types.UID(values[markUID]),
			ResourceVersion: values[markVersion], CreationTimestamp: w.created, Labels: labels,
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
				"kubectl.kubernetes.io/restartedAt": timeText(w.changed),
			},
			OwnerReferences: []metav1.OwnerReference{owner},
			ManagedFields: []metav1.ManagedFieldsEntry{
				managed("kube-controller-manager", "", w.created, controllerFields()),
				managed("kubelet", "status", w.created, kubeletFields),
			},
		},
		Spec:   spec,
		Status: podStatus(w, ready, values),
	}
}

func podSpec(p plan, values [marks]string) corev1.PodSpec {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString("http"), Scheme: "HTTP"}},
			PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	mode, grace, seconds := int32(420), int64(30), int64(300)
	toleration := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute",
			TolerationSeconds: &seconds}
	}
	return corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, DefaultMode: &mode}}},
			{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode}}},
		},
		Containers: []corev1.Container{{
			Name: "app", Image: "images.example/team/app:v1.4.2", Args: []string{"--config=/etc/app.yaml"},
			Ports: []corev1.ContainerPort{
				{Name: "http", ContainerPort: 8080, Protocol: "TCP"},
				{Name: "metrics", ContainerPort: 9090, Protocol: "TCP"},
			}[:p.ports],
			Env: []corev1.EnvVar{field("POD_IP", "status.podIP"), field("POD_NAME", "metadata.name")},
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
					corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app"},
				{Name: "kube-api-access", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io"}},
			LivenessProbe: probe("/live"), ReadinessProbe: probe("/ready"),
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: "File", ImagePullPolicy: "IfNotPresent",
		}},
		RestartPolicy: "Always", TerminationGracePeriodSeconds: &grace, DNSPolicy: "ClusterFirst",
		ServiceAccountName: "default", DeprecatedServiceAccount: "default",
		NodeName: values[markNode], SecurityContext: &corev1.PodSecurityContext{},
		SchedulerName: "default-scheduler",
		Tolerations: []corev1.Toleration{toleration("node.kubernetes.io/not-ready"),
			toleration("node.kubernetes.io/unreachable")},
	}
}

func podStatus(w *world, ready bool, values [marks]string) corev1.PodStatus {
	changed := metav1.NewTime(time.Unix(markedTime, 0))
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, at metav1.Time,
	) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: at}
	}
	return corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			condition("PodReadyToStartContainers", "True", w.created),
			condition("Initialized", "True", w.created), condition("Ready", status, changed),
			condition("ContainersReady", status, changed), condition("PodScheduled", "True", w.created),
		},
		HostIP: "192.168.0.1", HostIPs: []corev1.HostIP{{IP: "192.168.0.1"}},
		PodIP: values[markIP], PodIPs: []corev1.PodIP{{IP: values[markIP]}}, StartTime: &w.created,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Ready: ready, Started: &ready, Image: "images.example/team/app:v1.4.2",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.created}},
			ImageID:     "images.example/team/app@sha256:" + strings.Repeat("0123456789abcdef", 4),
			ContainerID: "containerd://" + strings.Repeat("0123456789abcdef", 4),
		}},
		QOSClass: corev1.PodQOSBurstable,
	}
}

// controllerFields are what a ReplicaSet's pod has in managedFields: nearly half of its bytes.
func controllerFields() string {
	var env strings.Builder
	for number := range 40 {
		fmt.Fprintf(&env, `"k:{\"name\":\"SETTING_%03d\"}":{".":{},"f:name":{},"f:value":{}},`, number)
	}
	return `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},` +
		`"f:ownerReferences":{".":{},"k:{\"uid\":\"0\"}":{}}},"f:spec":{"f:containers":{` +
		`"k:{\"name\":\"app\"}":{".":{},"f:args":{},"f:env":{` + env.String() + `".":{}},"f:image":{},` +
		`"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},` +
		`"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{}},"f:name":{},"f:ports":{".":{},` +
		`"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},` +
		`"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}}}}},` +
		`"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},` +
		`"f:securityContext":{},"f:terminationGracePeriodSeconds":{},"f:volumes":{".":{}}}}`
}

const kubeletFields = `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},` +
	`"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},` +
	`"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:status":{},"f:type":{}},` +
	`"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},` +
	`"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},` +
	`"f:podIPs":{".":{},"k:{\"ip\":\"10.0.0.1\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`

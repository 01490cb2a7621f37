package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What is sent: objects, lists and frames of watches, each in JSON and in protobuf. Protobuf as in
// k8s.io/apimachinery@v0.36.3 pkg/runtime/serializer/protobuf: a prefix and an envelope around
// everything but the frames of a watch.

var resources = []string{"nodes", "services", "pods", "endpoints", "endpointslices"}

var kinds = map[string]metav1.TypeMeta{
	"nodes":          {Kind: "Node", APIVersion: "v1"},
	"services":       {Kind: "Service", APIVersion: "v1"},
	"pods":           {Kind: "Pod", APIVersion: "v1"},
	"endpoints":      {Kind: "Endpoints", APIVersion: "v1"},
	"endpointslices": {Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
}

var prefix = []byte("k8s\x00")

// count is how many objects of a resource there are.
func (w *world) count(resource string) int {
	return map[string]int{"nodes": w.nodes, "services": len(w.plans), "pods": w.pods,
		"endpoints": len(w.plans), "endpointslices": len(w.slices)}[resource]
}

// appendObject appends an object as the item of a list, that is, without kind and apiVersion.
func (w *world) appendObject(to []byte, as format, resource string, index int, s *state) []byte {
	var object interface{ Marshal() ([]byte, error) }
	switch resource {
	case "pods":
		return w.appendPod(to, as, index, s.pods[index])
	case "nodes":
		object = w.node(index, firstVersion)
	case "services":
		object = w.service(index, firstVersion)
	case "endpoints":
		object = w.endpoints(index, s)
	default:
		object = w.slice(index, s)
	}
	encode := object.Marshal
	if as == asJSON {
		encode = func() ([]byte, error) { return json.Marshal(object) }
	}
	data, err := encode()
	check(err)
	return append(to, data...)
}

// objectSize is the length of what appendObject appends.
func (w *world) objectSize(as format, resource string, index int, s *state) int {
	if resource == "pods" {
		p := w.plans[w.owner[index]]
		return len(w.templates[as][kindOf(p, s.pods[index].ready)].bytes)
	}
	return len(w.appendObject(nil, as, resource, index, s))
}

// wrapped is an object with its type, as it stands alone.
func wrapped(as format, kind metav1.TypeMeta, object []byte) []byte {
	if as == asJSON {
		head := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, kind.Kind, kind.APIVersion)
		return append(head, object[1:]...)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: kind.Kind, APIVersion: kind.APIVersion}, Raw: object}
	data, err := unknown.Marshal()
	check(err)
	return append(append(make([]byte, 0, len(prefix)+len(data)), prefix...), data...)
}

func status(as format, of metav1.Status) []byte {
	kind := metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	data, err := json.Marshal(of)
	if as == asProtobuf {
		data, err = of.Marshal()
	}
	check(err)
	return wrapped(as, kind, data)
}

// frame is one event of a watch.
func frame(as format, kind string, object []byte) []byte {
	if as == asJSON {
		text := fmt.Appendf(nil, `{"type":%q,"object":`, kind)
		return append(append(text, object...), '}', '\n')
	}
	event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}
	data, err := event.Marshal()
	check(err)
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(len(data)))
	return append(head, data...)
}

func eventFrame(as format, kind, resource string, object []byte) []byte {
	return frame(as, kind, wrapped(as, kinds[resource], object))
}

// writeEvent writes what eventFrame would be, without a copy of the object.
func writeEvent(out *bufio.Writer, as format, kind, resource string, object []byte) {
	if as == asJSON {
		_, _ = out.Write(eventFrame(as, kind, resource, object))
		return
	}
	types := typeMessages[resource]
	unknown := append(append(make([]byte, 0, 96), prefix...), 0x0a)
	unknown = append(binary.AppendUvarint(unknown, uint64(len(types))), types...)
	unknown = binary.AppendUvarint(append(unknown, 0x12), uint64(len(object)))
	raw := len(unknown) + len(object) + len(tail)
	head := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(kind))), kind...)
	inner := binary.AppendUvarint([]byte{0x0a}, uint64(raw))
	head = binary.AppendUvarint(append(head, 0x12), uint64(len(inner)+raw))
	head = append(head, inner...)
	length := binary.BigEndian.AppendUint32(nil, uint32(len(head)+raw))
	for _, part := range [][]byte{length, head, unknown, object, tail} {
		_, _ = out.Write(part)
	}
}

// typeMessages are kind and apiVersion of each resource's objects.
var typeMessages = func() map[string][]byte {
	result := map[string][]byte{}
	for resource, kind := range kinds {
		data, err := (&runtime.TypeMeta{Kind: kind.Kind, APIVersion: kind.APIVersion}).Marshal()
		check(err)
		result[resource] = data
	}
	return result
}()

// tail is what an envelope ends with: no encoding and no type of the content.
var tail = []byte{0x1a, 0, 0x22, 0}

func bookmark(as format, resource string, version uint64, end bool) []byte {
	object := metav1.PartialObjectMetadata{}
	object.ResourceVersion = fmt.Sprint(version)
	if end {
		object.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	data, err := json.Marshal(struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}{object.ObjectMeta})
	if as == asProtobuf {
		data, err = object.Marshal()
	}
	check(err)
	return eventFrame(as, "BOOKMARK", resource, data)
}

// listHead is what a list begins with; the items are size bytes with what separates them.
func listHead(as format, resource string, meta metav1.ListMeta, size int) []byte {
	kind := kinds[resource]
	if as == asJSON {
		data, err := json.Marshal(meta)
		check(err)
		return fmt.Appendf(nil, `{"kind":"%sList","apiVersion":%q,"metadata":%s,"items":[`, kind.Kind,
			kind.APIVersion, data)
	}
	types, err := (&runtime.TypeMeta{Kind: kind.Kind + "List", APIVersion: kind.APIVersion}).Marshal()
	check(err)
	data, err := meta.Marshal()
	check(err)
	list := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(data))), data...)
	head := append(append([]byte{}, prefix...), 0x0a)
	head = append(binary.AppendUvarint(head, uint64(len(types))), types...)
	head = binary.AppendUvarint(append(head, 0x12), uint64(len(list)+size))
	return append(head, list...)
}

// itemHead is what stands before an item.
func itemHead(to []byte, as format, index, size int) []byte {
	if as == asProtobuf {
		return binary.AppendUvarint(append(to, 0x12), uint64(size))
	}
	if index > 0 {
		return append(to, ',')
	}
	return to
}

func listTail(as format) []byte {
	if as == asProtobuf {
		return tail
	}
	return []byte("]}\n")
}

// Writes objects as an API server sends them in protobuf, for the test of src/cluster/protobuf*.ts:
//
//	go run . < objects.ndjson > objects.bin
//
// Reads JSON lines of two kinds. {"resource":"pods","object":{...}} is one object; it is read from
// JSON, stored and read again as protobuf (which is what etcd does to it) and written as a watch
// event by the serializers of k8s.io/apimachinery. {"list":"pods","resourceVersion":"7",
// "continue":"c","objects":[...]} is a page of a list, and {"error":{...}} and {"bookmark":"pods",
// ...} are what a watch says besides.
//
// Writes for each line: four bytes of length, big-endian, and a document of JSON with what a client
// would have got in JSON, then four bytes of length and the same in protobuf.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
)

type line struct {
	Resource string          `json:"resource"`
	Type     watch.EventType `json:"type"`
	Object   json.RawMessage `json:"object"`

	List            string            `json:"list"`
	ResourceVersion string            `json:"resourceVersion"`
	Continue        string            `json:"continue"`
	Objects         []json.RawMessage `json:"objects"`

	Error *metav1.Status `json:"error"`

	Bookmark string `json:"bookmark"`
	End      bool   `json:"end"`
}

var kinds = map[string]schema.GroupVersionKind{
	"nodes":          corev1.SchemeGroupVersion.WithKind("Node"),
	"services":       corev1.SchemeGroupVersion.WithKind("Service"),
	"pods":           corev1.SchemeGroupVersion.WithKind("Pod"),
	"endpoints":      corev1.SchemeGroupVersion.WithKind("Endpoints"),
	"endpointslices": discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
}

var scheme = newScheme()

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	check(corev1.AddToScheme(scheme))
	check(discoveryv1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return scheme
}

// info is the serializer of a media type, as the API server negotiates it.
func info(mediaType string) runtime.SerializerInfo {
	codecs := serializer.NewCodecFactory(scheme)
	found, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic(mediaType)
	}
	return found
}

var jsonInfo, protobufInfo = info(runtime.ContentTypeJSON), info(runtime.ContentTypeProtobuf)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// stored is the object as it comes out of etcd.
func stored(resource string, raw []byte) runtime.Object {
	kind, ok := kinds[resource]
	if !ok {
		check(fmt.Errorf("expected a resource: %q", resource))
	}
	object, err := scheme.New(kind)
	check(err)
	check(json.Unmarshal(raw, object))
	object.GetObjectKind().SetGroupVersionKind(kind)
	data, err := runtime.Encode(protobufInfo.Serializer, object)
	check(err)
	again, _, err := protobufInfo.Serializer.Decode(data, nil, nil)
	check(err)
	again.GetObjectKind().SetGroupVersionKind(kind)
	return again
}

// event is a frame of a watch, as apiserver's handlers/watch.go writes it.
func event(of runtime.SerializerInfo, kind watch.EventType, object runtime.Object) []byte {
	var embedded, frame bytes.Buffer
	check(of.Serializer.Encode(object, &embedded))
	event := metav1.WatchEvent{Type: string(kind)}
	event.Object.Raw = embedded.Bytes()
	stream := of.StreamSerializer
	check(stream.Serializer.Encode(&event, stream.Framer.NewFrameWriter(&frame)))
	return frame.Bytes()
}

func list(of line) runtime.Object {
	kind := kinds[of.List]
	kind.Kind += "List"
	result, err := scheme.New(kind)
	check(err)
	result.GetObjectKind().SetGroupVersionKind(kind)
	meta := metav1.ListMeta{ResourceVersion: of.ResourceVersion, Continue: of.Continue}
	switch items := result.(type) {
	case *corev1.NodeList:
		items.ListMeta, items.Items = meta, itemsOf[corev1.Node](of)
	case *corev1.ServiceList:
		items.ListMeta, items.Items = meta, itemsOf[corev1.Service](of)
	case *corev1.PodList:
		items.ListMeta, items.Items = meta, itemsOf[corev1.Pod](of)
	case *corev1.EndpointsList:
		items.ListMeta, items.Items = meta, itemsOf[corev1.Endpoints](of)
	case *discoveryv1.EndpointSliceList:
		items.ListMeta, items.Items = meta, itemsOf[discoveryv1.EndpointSlice](of)
	}
	return result
}

// itemsOf are the objects of a list; there they do not say their kind.
func itemsOf[T any, P interface {
	*T
	runtime.Object
}](of line) []T {
	items := make([]T, 0, len(of.Objects))
	for _, raw := range of.Objects {
		object := stored(of.List, raw).(P)
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		items = append(items, *object)
	}
	return items
}

func answer(of line, as runtime.SerializerInfo) []byte {
	switch {
	case of.Error != nil:
		of.Error.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Status"))
		return event(as, watch.Error, of.Error)
	case of.Bookmark != "":
		object, err := scheme.New(kinds[of.Bookmark])
		check(err)
		object.GetObjectKind().SetGroupVersionKind(kinds[of.Bookmark])
		meta := object.(metav1.Object)
		meta.SetResourceVersion(of.ResourceVersion)
		if of.End {
			meta.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
		return event(as, watch.Bookmark, object)
	case of.List != "":
		var body bytes.Buffer
		check(as.Serializer.Encode(list(of), &body))
		return body.Bytes()
	default:
		kind := of.Type
		if kind == "" {
			kind = watch.Added
		}
		return event(as, kind, stored(of.Resource, of.Object))
	}
}

func write(out io.Writer, data []byte) {
	check(binary.Write(out, binary.BigEndian, uint32(len(data))))
	_, err := out.Write(data)
	check(err)
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	decoder := json.NewDecoder(in)
	for decoder.More() {
		var next line
		check(decoder.Decode(&next))
		write(out, answer(next, jsonInfo))
		write(out, answer(next, protobufInfo))
	}
	check(out.Flush())
}

package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// The API as clients see it: lists with pages, watches with initial events and bookmarks, and the
// control of the load itself.

type server struct {
	*cluster
	gate     *gate
	token    string
	bookmark time.Duration
	onlyJSON bool
	counting sync.Mutex
	requests map[string]int
	storm    storm
}

// storm is what happens to connections: the chance that an answer comes with a GOAWAY, and the
// seconds after which a watch ends, 0 for those that the client wants.
type storm struct {
	chance  float64
	seconds int
}

var paths = map[string]string{
	"/api/v1/nodes": "nodes", "/api/v1/services": "services", "/api/v1/pods": "pods",
	"/api/v1/endpoints": "endpoints", "/apis/discovery.k8s.io/v1/endpointslices": "endpointslices",
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	as := asJSON
	accept := r.Header.Get("Accept")
	if !s.onlyJSON && strings.Contains(accept, "application/vnd.kubernetes.protobuf") {
		as = asProtobuf
	}
	if r.Header.Get("Authorization") != "Bearer "+s.token {
		fail(w, as, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		return
	}
	query := r.URL.Query()
	path, namespace := r.URL.Path, ""
	if at := strings.Index(path, "/namespaces/"); at >= 0 {
		var rest string
		namespace, rest, _ = strings.Cut(path[at+len("/namespaces/"):], "/")
		path = path[:at] + "/" + rest
	}
	resource, known := paths[path]
	verb := "list"
	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		verb = "watch"
	}
	s.counting.Lock()
	s.requests[strings.TrimSpace(r.Method+" "+r.URL.Path+" "+map[bool]string{true: verb}[known])]++
	storm := s.storm
	s.counting.Unlock()
	if !strings.HasPrefix(path, "/control/") && rand.Float64() < storm.chance {
		// As in k8s.io/apiserver/pkg/server/filters/goaway.go.
		w.Header().Set("Connection", "close")
	}
	switch {
	case known && namespace != "":
		s.listOf(w, r, as, resource, namespace)
	case known && verb == "watch":
		s.watch(w, r, as, resource)
	case known:
		s.list(w, r, as, resource)
	case strings.HasPrefix(r.URL.Path, "/control/"):
		s.control(w, r)
	case r.URL.Path == "/version":
		answer(w, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3", Platform: "linux/amd64"})
	case r.URL.Path == "/livez", r.URL.Path == "/readyz", r.URL.Path == "/healthz":
		fmt.Fprint(w, "ok")
	default:
		fail(w, as, http.StatusNotFound, metav1.StatusReasonNotFound,
			"the server could not find the requested resource")
	}
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	check(json.NewEncoder(w).Encode(value))
}

func failure(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: message}
}

func contentType(as format) string {
	if as == asProtobuf {
		return "application/vnd.kubernetes.protobuf"
	}
	return "application/json"
}

func fail(w http.ResponseWriter, as format, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", contentType(as))
	w.WriteHeader(code)
	_, _ = w.Write(status(as, failure(code, reason, message)))
}

const expired = "The provided continue parameter or resourceVersion is too old"

// --- lists ---

func (s *server) list(w http.ResponseWriter, r *http.Request, as format, resource string) {
	query := r.URL.Query()
	of, from := (*state)(nil), 0
	if token := query.Get("continue"); token != "" {
		text, _ := base64.RawURLEncoding.DecodeString(token)
		var at uint64
		if _, err := fmt.Sscanf(string(text), "%d:%d", &at, &from); err == nil {
			of = s.at(at)
		}
		if of == nil {
			fail(w, as, http.StatusGone, metav1.StatusReasonExpired, expired)
			return
		}
	} else {
		of = s.snapshot()
	}
	to := s.count(resource)
	meta := metav1.ListMeta{ResourceVersion: fmt.Sprint(of.version)}
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < to {
		left := int64(to - from - limit)
		to = from + limit
		meta.RemainingItemCount = &left
		meta.Continue = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d:%d", of.version, to))
	}
	w.Header().Set("Content-Type", contentType(as))
	indices := make([]int, to-from)
	for place := range indices {
		indices[place] = from + place
	}
	s.writeList(w, as, resource, meta, of, indices)
}

// listOf lists the objects of a namespace, of one Service if a selector names it.
func (s *server) listOf(w http.ResponseWriter, r *http.Request, as format, resource, namespace string) {
	name := r.URL.Query().Get("fieldSelector") + r.URL.Query().Get("labelSelector")
	name = name[strings.LastIndex(name, "=")+1:]
	of := s.snapshot()
	var indices []int
	for index := range s.count(resource) {
		p := s.planOf(resource, index)
		if p != nil && p.namespace() == namespace && (name == "" || p.name() == name) {
			indices = append(indices, index)
		}
	}
	w.Header().Set("Content-Type", contentType(as))
	s.writeList(w, as, resource, metav1.ListMeta{ResourceVersion: fmt.Sprint(of.version)}, of, indices)
}

// planOf is the Service that an object belongs to.
func (s *server) planOf(resource string, index int) *plan {
	switch resource {
	case "nodes":
		return nil
	case "pods":
		return &s.plans[s.owner[index]]
	case "endpointslices":
		return &s.plans[s.slices[index].plan]
	}
	return &s.plans[index]
}

func (s *server) writeList(w http.ResponseWriter, as format, resource string, meta metav1.ListMeta,
	of *state, indices []int) {
	size := 0
	if as == asProtobuf {
		for _, index := range indices {
			object := s.objectSize(as, resource, index, of)
			size += len(itemHead(nil, as, index, object)) + object
		}
	}
	out := bufio.NewWriterSize(w, 128<<10)
	_, _ = out.Write(listHead(as, resource, meta, size))
	var object, head []byte
	for place, index := range indices {
		object = s.appendObject(object[:0], as, resource, index, of)
		head = itemHead(head[:0], as, place, len(object))
		_, _ = out.Write(head)
		if _, err := out.Write(object); err != nil {
			return
		}
	}
	_, _ = out.Write(listTail(as))
	_ = out.Flush()
}

// --- watches ---

func (s *server) watch(w http.ResponseWriter, r *http.Request, as format, resource string) {
	query := r.URL.Query()
	s.mutex.Lock()
	s.asked[as] = true
	s.mutex.Unlock()
	text := query.Get("resourceVersion")
	version, _ := strconv.ParseUint(text, 10, 64)
	initial := query.Get("sendInitialEvents") == "true"
	of := (*state)(nil)
	if initial || version == 0 {
		of = s.snapshot()
		version = of.version
	}
	if _, _, ok := s.after(resource, version); !ok {
		fail(w, as, http.StatusGone, metav1.StatusReasonExpired, expired)
		return
	}
	kind := contentType(as)
	if as == asProtobuf {
		kind += ";stream=watch"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, 64<<10)
	flush := func() { _ = out.Flush(); w.(http.Flusher).Flush() }
	flush()
	if of != nil {
		var object []byte
		for index := range s.count(resource) {
			object = s.appendObject(object[:0], as, resource, index, of)
			writeEvent(out, as, "ADDED", resource, object)
			if r.Context().Err() != nil {
				return
			}
		}
		if initial {
			_, _ = out.Write(bookmark(as, resource, version, true))
		}
		flush()
	}
	s.follow(r, as, resource, version, out, flush)
}

// follow sends what happens after a version until the client or the time is gone.
func (s *server) follow(r *http.Request, as format, resource string, version uint64,
	out *bufio.Writer, flush func()) {
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if seconds == 0 {
		seconds = 1800 + rand.IntN(1800)
	}
	s.counting.Lock()
	if s.storm.seconds > 0 {
		seconds = s.storm.seconds
	}
	s.counting.Unlock()
	end := time.After(time.Duration(seconds) * time.Second)
	marks := time.NewTicker(s.bookmark)
	defer marks.Stop()
	wantsMarks := r.URL.Query().Get("allowWatchBookmarks") == "true"
	for {
		events, more, ok := s.after(resource, version)
		if !ok || !s.send(as, events, out) {
			gone := failure(http.StatusGone, metav1.StatusReasonExpired, expired)
			_, _ = out.Write(frame(as, "ERROR", status(as, gone)))
			flush()
			return
		}
		if len(events) > 0 {
			version = events[len(events)-1].version
			flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case <-more:
		case <-marks.C:
			if wantsMarks {
				s.sendBookmark(as, resource, version, out)
				flush()
			}
		}
	}
}

// send writes events; false when they were not encoded in this format, for nobody had asked for it.
func (s *server) send(as format, events []entry, out *bufio.Writer) bool {
	at := unixNow()
	for _, event := range events {
		if event.frames[as] == nil {
			return false
		}
		_, _ = out.Write(event.frames[as])
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, event := range events {
		if event.stamp.SentAt == 0 {
			event.stamp.SentAt = at
		}
	}
	return true
}

// sendBookmark tells the version up to which this watch has seen everything.
func (s *server) sendBookmark(as format, resource string, version uint64, out *bufio.Writer) {
	s.mutex.Lock()
	log := s.logs[resource]
	if len(log) == 0 || log[len(log)-1].version <= version {
		version = s.now.version
	}
	s.mutex.Unlock()
	_, _ = out.Write(bookmark(as, resource, version, false))
}

// --- control ---

func (s *server) control(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /control/churn":
		rate, err := strconv.ParseFloat(r.URL.Query().Get("rate"), 64)
		if err != nil || rate < 0 {
			http.Error(w, "Expected a rate: events per second", http.StatusBadRequest)
			return
		}
		s.mutex.Lock()
		s.rate = rate
		s.alone = r.URL.Query().Get("kind") == "alone"
		s.stopped = r.URL.Query().Get("kind") == "stopped"
		s.mutex.Unlock()
		answer(w, map[string]float64{"rate": rate})
	case "POST /control/outage":
		seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
		if err != nil || seconds < 0 {
			http.Error(w, "Expected seconds", http.StatusBadRequest)
			return
		}
		s.gate.shut(time.Duration(seconds*float64(time.Second)), r.RemoteAddr)
		answer(w, map[string]float64{"seconds": seconds})
	case "POST /control/storm":
		chance, err := strconv.ParseFloat(r.URL.Query().Get("chance"), 64)
		if err != nil {
			http.Error(w, "Expected a chance", http.StatusBadRequest)
			return
		}
		seconds, _ := strconv.Atoi(r.URL.Query().Get("seconds"))
		s.counting.Lock()
		s.storm = storm{chance, seconds}
		s.counting.Unlock()
		answer(w, map[string]float64{"chance": chance})
	case "GET /control/connections":
		now, most := s.gate.connections()
		answer(w, map[string]int{"now": now, "most": most})
	case "GET /control/stamps":
		s.mutex.Lock()
		stamps := make([]stamp, 0, len(s.stamps))
		for _, of := range s.stamps {
			stamps = append(stamps, *of)
		}
		if r.URL.Query().Get("clear") == "true" {
			s.stamps = nil
		}
		s.mutex.Unlock()
		answer(w, stamps)
	case "GET /control/requests":
		s.counting.Lock()
		defer s.counting.Unlock()
		answer(w, s.requests)
	case "GET /control/world":
		counts := map[string]int{}
		for _, resource := range resources {
			counts[resource] = s.count(resource)
		}
		answer(w, counts)
	default:
		http.NotFound(w, r)
	}
}

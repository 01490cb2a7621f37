package main

import (
	"sync"
	"time"
)

// What changes: which pods are ready, what the controllers have written of it, and the log of
// events that watches follow. A snapshot is a copy of all that at one version, so the pages of a
// list are of one moment.

type podState struct {
	ready   bool
	version uint64
	changed int64
}

type outputState struct {
	version    uint64
	generation int64
	trigger    int64
}

// state is all that can change, at one version.
type state struct {
	version   uint64
	pods      []podState
	listed    []bool // what Endpoints and slices say of each pod
	endpoints []outputState
	slices    []outputState
}

func (s *state) clone() *state {
	return &state{
		version:   s.version,
		pods:      append([]podState(nil), s.pods...),
		listed:    append([]bool(nil), s.listed...),
		endpoints: append([]outputState(nil), s.endpoints...),
		slices:    append([]outputState(nil), s.slices...),
	}
}

// entry is an event in the log, encoded in the formats that anyone has asked for.
type entry struct {
	version uint64
	frames  [2][]byte
	stamp   *stamp
}

// stamp tells when an event was made and first sent, Unix seconds.
type stamp struct {
	Resource  string  `json:"resource"`
	Namespace string  `json:"namespace"`
	Service   string  `json:"service"`
	Name      string  `json:"name"`
	Version   uint64  `json:"resourceVersion"`
	Ready     bool    `json:"ready"`
	MadeAt    float64 `json:"madeAt"`
	SentAt    float64 `json:"sentAt"`
}

const (
	firstVersion = 100_000_000
	logLimit     = 20_000
	stampLimit   = 200_000
)

type cluster struct {
	*world
	mutex sync.Mutex
	now   *state
	// By resource: the log from the version `since` on, and who waits for more of it.
	logs      map[string][]entry
	since     map[string]uint64
	grown     map[string]chan struct{}
	asked     [2]bool
	snapshots map[uint64]*state
	stamps    []*stamp
	rate      float64
	alone     bool // pods have new versions that concern no controller
	stopped   bool // the controllers write nothing
	due       []write
	waiting   map[int]bool
	chance    uint64
}

// write is what the controllers are about to write for a Service.
type write struct {
	at      time.Time
	plan    int
	slice   int
	trigger int64
}

func newCluster(w *world) *cluster {
	s := &state{
		version:   firstVersion,
		pods:      make([]podState, w.pods),
		listed:    make([]bool, w.pods),
		endpoints: make([]outputState, len(w.plans)),
		slices:    make([]outputState, len(w.slices)),
	}
	for pod := range s.pods {
		ready := mix(pod, 7)%50 != 0
		s.version++
		s.pods[pod] = podState{ready, s.version, w.changed}
		s.listed[pod] = ready
	}
	for _, outputs := range [][]outputState{s.endpoints, s.slices} {
		for number := range outputs {
			s.version++
			outputs[number] = outputState{s.version, 1, w.changed}
		}
	}
	c := &cluster{world: w, now: s, logs: map[string][]entry{}, since: map[string]uint64{},
		grown: map[string]chan struct{}{}, snapshots: map[uint64]*state{}, waiting: map[int]bool{},
		chance: seed}
	for _, resource := range resources {
		c.since[resource] = s.version
		c.grown[resource] = make(chan struct{})
	}
	return c
}

// snapshot is the state now, kept for the pages that follow.
func (c *cluster) snapshot() *state {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known := c.snapshots[c.now.version]
	if known == nil {
		known = c.now.clone()
		if len(c.snapshots) > 16 {
			clear(c.snapshots)
		}
		c.snapshots[c.now.version] = known
	}
	return known
}

// at is a state that was kept; nil when it is gone.
func (c *cluster) at(version uint64) *state {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.snapshots[version]
}

// logEvent adds the object's present state to the log. The mutex is held.
func (c *cluster) logEvent(resource string, index int, version uint64, of *stamp) {
	added := entry{version: version, stamp: of}
	for as, asked := range c.asked {
		if asked {
			object := c.appendObject(nil, format(as), resource, index, c.now)
			added.frames[as] = eventFrame(format(as), "MODIFIED", resource, object)
		}
	}
	of.MadeAt = unixNow()
	if len(c.stamps) < stampLimit {
		c.stamps = append(c.stamps, of)
	}
	log := append(c.logs[resource], added)
	if len(log) > 2*logLimit {
		c.since[resource] = log[len(log)-logLimit-1].version
		log = append([]entry(nil), log[len(log)-logLimit:]...)
	}
	c.logs[resource] = log
	close(c.grown[resource])
	c.grown[resource] = make(chan struct{})
}

// after are the events after a version, and a channel that is closed when there are more; false
// when some of them are gone.
func (c *cluster) after(resource string, version uint64) ([]entry, <-chan struct{}, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if version < c.since[resource] && version < c.now.version && c.since[resource] > c.start() {
		return nil, nil, false
	}
	log := c.logs[resource]
	from := len(log)
	for from > 0 && log[from-1].version > version {
		from--
	}
	return log[from:], c.grown[resource], true
}

// start is the version before the first event.
func (c *cluster) start() uint64 {
	return firstVersion + uint64(len(c.now.pods)+len(c.now.endpoints)+len(c.now.slices))
}

// --- churn ---

// controllerDelay is how long the controllers take.
const controllerDelay = 3 * time.Millisecond

// churnLoop makes pods ready or not, at the rate that is asked for, and writes what the controllers
// write then.
func (c *cluster) churnLoop() {
	last, owed := time.Now(), 0.0
	for now := range time.Tick(time.Millisecond) {
		c.mutex.Lock()
		owed = min(owed+c.rate*now.Sub(last).Seconds(), 1000)
		for ; owed >= 1; owed-- {
			c.flip()
		}
		for len(c.due) > 0 && !c.due[0].at.After(now) {
			c.settle(c.due[0])
			c.due = c.due[1:]
		}
		last = now
		c.mutex.Unlock()
	}
}

// flip changes the readiness of a pod of a Service of at most 250 pods; an Endpoints object of 1,000
// addresses for each event would be another measurement.
func (c *cluster) flip() {
	var pod int
	for {
		c.chance ^= c.chance << 13
		c.chance ^= c.chance >> 7
		c.chance ^= c.chance << 17
		pod = int(c.chance % uint64(len(c.now.pods)))
		if c.plans[c.owner[pod]].pods <= 250 {
			break
		}
	}
	p := c.plans[c.owner[pod]]
	c.now.version++
	was := c.now.pods[pod]
	c.now.pods[pod] = podState{!was.ready, c.now.version, time.Now().Unix()}
	if c.alone {
		c.now.pods[pod] = podState{was.ready, c.now.version, was.changed}
	}
	c.logEvent("pods", pod, c.now.version, &stamp{Resource: "pods", Namespace: p.namespace(),
		Service: p.name(), Name: p.podName(pod), Version: c.now.version, Ready: c.now.pods[pod].ready})
	if c.alone || c.stopped {
		return
	}
	slice := c.firstSlice[p.number] + (pod-p.first)/maxPerSlice
	if !c.waiting[slice] {
		c.waiting[slice] = true
		c.due = append(c.due,
			write{time.Now().Add(controllerDelay), p.number, slice, c.now.pods[pod].changed})
	}
}

// settle writes a slice and the Endpoints of a Service as they should be now.
func (c *cluster) settle(due write) {
	delete(c.waiting, due.slice)
	p := c.plans[due.plan]
	from := p.first + c.slicesOf(due.slice)*maxPerSlice
	for pod := from; pod < min(from+maxPerSlice, p.first+p.pods); pod++ {
		c.now.listed[pod] = c.now.pods[pod].ready
	}
	c.now.version++
	slice := &c.now.slices[due.slice]
	*slice = outputState{c.now.version, slice.generation + 1, due.trigger}
	of := stamp{Namespace: p.namespace(), Service: p.name(), Name: p.name()}
	sliceStamp, endpointsStamp := of, of
	sliceStamp.Resource, sliceStamp.Version = "endpointslices", c.now.version
	c.logEvent("endpointslices", due.slice, c.now.version, &sliceStamp)
	c.now.version++
	c.now.endpoints[due.plan] = outputState{c.now.version, 0, due.trigger}
	endpointsStamp.Resource, endpointsStamp.Version = "endpoints", c.now.version
	c.logEvent("endpoints", due.plan, c.now.version, &endpointsStamp)
}

// slicesOf is the number of a slice within its Service.
func (c *cluster) slicesOf(slice int) int { return c.slices[slice].slice }

func unixNow() float64 { return float64(time.Now().UnixMicro()) / 1e6 }
